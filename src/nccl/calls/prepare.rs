//! From typed buffers to validated calls: lengths, ranks, devices.
//!
//! Every operation is prepared here, whether it is issued by a communicator or recorded in a group.

use super::call::Call;
use super::io::{FromRoot, SendRecv, ToRoot};
use super::kind::Kind;
use super::mixed;
use super::reduction::Reduction;
use super::site::Site;
use crate::cuda::{DeviceBuffer, Slice, SliceMut};
use crate::element::{Element, Reduce};
use crate::error::Result;
use crate::sys;

#[inline]
pub(crate) fn all_reduce<'a, T: Reduce>(site: Site<'a>, io: SendRecv<'a, T>, op: Reduction<'a>) -> Result<Call<'a>> {
    let kind = Kind::AllReduce { op: op.to_raw::<T>(&site)? };
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
            call.recv = Some(site.in_place(buffer)?);
        }
    }
    call.scalar = op.scalar();
    Ok(call)
}

/// What no rank is done with before all have come to it: an all_reduce of nothing that anybody reads.
pub(crate) fn barrier<'a>(site: Site<'a>, scratch: &'a DeviceBuffer<u8>) -> Result<Call<'a>> {
    let mut call = site.call::<u8>(Kind::AllReduce { op: sys::ncclRedOp_t::ncclMax }, 1);
    call.send_in_recv = Some(0);
    call.recv = Some(scratch.as_slice().region());
    Ok(call)
}

#[inline]
pub(crate) fn reduce<'a, T: Reduce>(
    site: Site<'a>,
    io: ToRoot<'a, T>,
    op: Reduction<'a>,
    root: usize,
) -> Result<Call<'a>> {
    site.comm.check_rank(site.operation, "root", root)?;
    let kind = Kind::Reduce { op: op.to_raw::<T>(&site)?, root };
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
            call.recv = Some(site.in_place(buffer)?);
        }
        ToRoot::SendOnly(send) => {
            if site.is_root(root) {
                return Err(site.root_only("recv", "SendOnly"));
            }
            call = site.call::<T>(kind, send.len());
            call.send = Some(site.read(send)?);
        }
    }
    call.scalar = op.scalar();
    Ok(call)
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
            call.recv = Some(site.in_place(buffer)?);
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
            call.recv = Some(site.in_place(buffer)?);
            Ok(call)
        }
    }
}

#[inline]
pub(crate) fn reduce_scatter<'a, T: Reduce>(
    site: Site<'a>,
    io: SendRecv<'a, T>,
    op: Reduction<'a>,
) -> Result<Call<'a>> {
    let kind = Kind::ReduceScatter { op: op.to_raw::<T>(&site)? };
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
            call.recv = Some(site.in_place(buffer)?);
        }
    }
    call.scalar = op.scalar();
    Ok(call)
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
