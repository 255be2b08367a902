//! From typed buffers to validated calls: lengths, ranks, devices.
//!
//! Every operation is prepared here, whether it is issued by a communicator or recorded in a group.

use super::call::{Call, Kind};
use super::io::{FromRoot, SendRecv, ToRoot};
use super::mixed;
use crate::cuda::{Device, Region, Slice, SliceMut, Stream};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nccl::reduce_op::ReduceOp;
use crate::nccl::state::inner::Inner;

/// Where an operation is to run.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) operation: &'static str,
    pub(crate) comm: &'a Inner,
    pub(crate) stream: &'a Stream,
}

impl<'a> Site<'a> {
    #[inline]
    pub(crate) fn new(operation: &'static str, comm: &'a Inner, stream: &'a Stream) -> Result<Self> {
        let site = Self { operation, comm, stream };
        site.check_device("stream", stream.device())?;
        Ok(site)
    }

    #[inline]
    fn check_device(&self, what: &'static str, device: Device) -> Result<()> {
        if device == self.comm.device {
            return Ok(());
        }
        Err(Error::argument(self.operation, what, format!("{} of rank {}", self.comm.device, self.comm.rank), device))
    }

    /// Memory that this communicator may touch.
    #[inline]
    fn check_region(&self, what: &'static str, region: Region<'a>) -> Result<Region<'a>> {
        self.check_device(what, region.device())?;
        if let Some(owner) = region.communicator()
            && owner != self.comm.id
        {
            return Err(Error::argument(
                self.operation,
                what,
                "memory of this communicator",
                "a CommBuffer of another communicator",
            ));
        }
        Ok(region)
    }

    #[inline]
    pub(crate) fn read<T: Element>(&self, slice: Slice<'a, T>) -> Result<Region<'a>> {
        self.check_region("send", slice.region())
    }

    #[inline]
    pub(crate) fn write<T: Element>(&self, slice: SliceMut<'a, T>) -> Result<Region<'a>> {
        self.check_region("recv", slice.into_region())
    }

    #[inline]
    pub(crate) fn call<T: Element>(&self, kind: Kind, count: usize) -> Call<'a> {
        Call::new(self.operation, self.comm, self.stream, kind, T::KIND, count)
    }

    /// `count` elements for each rank.
    #[inline]
    pub(crate) fn all(&self, what: &'static str, count: usize) -> Result<usize> {
        count.checked_mul(self.comm.size).ok_or_else(|| {
            Error::argument(
                self.operation,
                what,
                format!("a count that can be multiplied by {} ranks", self.comm.size),
                count,
            )
        })
    }

    /// The part of one rank in a buffer that holds a part for each.
    #[inline]
    pub(crate) fn part(&self, what: &'static str, len: usize) -> Result<usize> {
        if len.is_multiple_of(self.comm.size) {
            return Ok(len / self.comm.size);
        }
        Err(Error::argument(
            self.operation,
            what,
            format!("a length that {} ranks can share evenly", self.comm.size),
            format!("{len} elements"),
        ))
    }

    #[inline]
    pub(crate) fn at_least(&self, what: &'static str, needed: usize, len: usize) -> Result<()> {
        if len >= needed {
            return Ok(());
        }
        Err(Error::argument(self.operation, what, format!("at least {needed} elements"), format!("{len} elements")))
    }

    pub(crate) fn is_root(&self, root: usize) -> bool {
        self.comm.rank == root
    }

    pub(crate) fn root_only(&self, what: &'static str, form: &str) -> Error {
        Error::argument(self.operation, what, "both buffers at the root", form)
    }
}

/// Adds the factor of a pre-multiplied sum.
fn with_op<'a, T: Element>(mut call: Call<'a>, op: ReduceOp<'a, T>) -> Call<'a> {
    if let ReduceOp::PreMul(op) = op {
        call.scalar = op.factor();
    }
    call
}

#[inline]
pub(crate) fn all_reduce<'a, T: Element>(site: Site<'a>, io: SendRecv<'a, T>, op: ReduceOp<'a, T>) -> Result<Call<'a>> {
    let kind = Kind::AllReduce { op: op.to_raw(site.operation, site.comm)? };
    let mut call;
    match io {
        SendRecv::OutOfPlace { send, recv } => {
            site.at_least("recv", send.len(), recv.len())?;
            call = site.call::<T>(kind, send.len());
            call.send = Some(site.read(send)?);
            call.recv = Some(site.write(recv)?);
        }
        SendRecv::InPlace(buffer) => {
            call = site.call::<T>(kind, buffer.len());
            call.send_in_recv = Some(0);
            call.recv = Some(site.write(buffer)?);
        }
    }
    Ok(with_op(call, op))
}

#[inline]
pub(crate) fn reduce<'a, T: Element>(
    site: Site<'a>,
    io: ToRoot<'a, T>,
    op: ReduceOp<'a, T>,
    root: usize,
) -> Result<Call<'a>> {
    site.comm.check_rank(site.operation, "root", root)?;
    let kind = Kind::Reduce { op: op.to_raw(site.operation, site.comm)?, root };
    let mut call;
    match io {
        ToRoot::OutOfPlace { send, recv } => {
            call = site.call::<T>(kind, send.len());
            if site.is_root(root) {
                site.at_least("recv", send.len(), recv.len())?;
                call.recv = Some(site.write(recv)?);
            }
            call.send = Some(site.read(send)?);
            mixed::check(&site, call.send.as_ref(), call.recv.as_ref())?;
        }
        ToRoot::InPlace(buffer) => {
            call = site.call::<T>(kind, buffer.len());
            call.send_in_recv = Some(0);
            call.recv = Some(site.write(buffer)?);
        }
        ToRoot::SendOnly(send) => {
            if site.is_root(root) {
                return Err(site.root_only("recv", "SendOnly"));
            }
            call = site.call::<T>(kind, send.len());
            call.send = Some(site.read(send)?);
        }
    }
    Ok(with_op(call, op))
}

#[inline]
pub(crate) fn broadcast<'a, T: Element>(site: Site<'a>, io: FromRoot<'a, T>, root: usize) -> Result<Call<'a>> {
    site.comm.check_rank(site.operation, "root", root)?;
    let kind = Kind::Broadcast { root };
    match io {
        FromRoot::OutOfPlace { send, recv } => {
            site.at_least("recv", send.len(), recv.len())?;
            let mut call = site.call::<T>(kind, send.len());
            if site.is_root(root) {
                call.send = Some(site.read(send)?);
            }
            call.recv = Some(site.write(recv)?);
            mixed::check(&site, call.send.as_ref(), call.recv.as_ref())?;
            Ok(call)
        }
        FromRoot::InPlace(buffer) => {
            let mut call = site.call::<T>(kind, buffer.len());
            call.send_in_recv = Some(0);
            call.recv = Some(site.write(buffer)?);
            Ok(call)
        }
        FromRoot::RecvOnly(recv) => {
            if site.is_root(root) {
                return Err(site.root_only("send", "RecvOnly"));
            }
            let mut call = site.call::<T>(kind, recv.len());
            call.recv = Some(site.write(recv)?);
            Ok(call)
        }
    }
}

#[inline]
pub(crate) fn all_gather<'a, T: Element>(site: Site<'a>, io: SendRecv<'a, T>) -> Result<Call<'a>> {
    match io {
        SendRecv::OutOfPlace { send, recv } => {
            site.at_least("recv", site.all("send", send.len())?, recv.len())?;
            let mut call = site.call::<T>(Kind::AllGather, send.len());
            call.send = Some(site.read(send)?);
            call.recv = Some(site.write(recv)?);
            Ok(call)
        }
        SendRecv::InPlace(buffer) => {
            let part = site.part("buffer", buffer.len())?;
            let mut call = site.call::<T>(Kind::AllGather, part);
            call.send_in_recv = Some(site.comm.rank * part * size_of::<T>());
            call.recv = Some(site.write(buffer)?);
            Ok(call)
        }
    }
}

#[inline]
pub(crate) fn reduce_scatter<'a, T: Element>(
    site: Site<'a>,
    io: SendRecv<'a, T>,
    op: ReduceOp<'a, T>,
) -> Result<Call<'a>> {
    let kind = Kind::ReduceScatter { op: op.to_raw(site.operation, site.comm)? };
    let mut call;
    match io {
        SendRecv::OutOfPlace { send, recv } => {
            let part = site.part("send", send.len())?;
            site.at_least("recv", part, recv.len())?;
            call = site.call::<T>(kind, part);
            call.send = Some(site.read(send)?);
            call.recv = Some(site.write(recv)?);
        }
        SendRecv::InPlace(buffer) => {
            let part = site.part("buffer", buffer.len())?;
            call = site.call::<T>(kind, part);
            call.send_in_recv = Some(0);
            call.recv_offset = site.comm.rank * part * size_of::<T>();
            call.recv = Some(site.write(buffer)?);
        }
    }
    Ok(with_op(call, op))
}

/// A message to `peer`.
#[inline]
pub(crate) fn send<'a, T: Element>(site: Site<'a>, slice: Slice<'a, T>, peer: usize) -> Result<Call<'a>> {
    site.comm.check_rank(site.operation, "peer", peer)?;
    let mut call = site.call::<T>(Kind::Send { peer }, slice.len());
    call.send = Some(site.read(slice)?);
    Ok(call)
}

/// A message from `peer`.
#[inline]
pub(crate) fn recv<'a, T: Element>(site: Site<'a>, slice: SliceMut<'a, T>, peer: usize) -> Result<Call<'a>> {
    site.comm.check_rank(site.operation, "peer", peer)?;
    let mut call = site.call::<T>(Kind::Recv { peer }, slice.len());
    call.recv = Some(site.write(slice)?);
    Ok(call)
}
