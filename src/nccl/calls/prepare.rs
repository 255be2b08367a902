//! From buffers to validated calls: lengths, ranks, devices.
//!
//! Every operation is prepared here, whether it is issued by a communicator or recorded in a group.

use super::buffers::{Buffer, Elements, Everywhere, Rooted};
use super::call::Call;
use super::kind::Kind;
use super::mixed;
use super::operator::Operator;
use super::site::Site;
use crate::cuda::DeviceBuffer;
use crate::error::Result;
use crate::sys;

pub(crate) fn all_reduce<'a>(site: Site<'a>, io: Everywhere<'a>, op: Operator<'a>) -> Result<Call<'a>> {
    let kind = Kind::AllReduce { op: op.to_raw(&site, io.elements())? };
    let scalar = op.scalar();
    match io {
        Everywhere::OutOfPlace { send, recv } => {
            site.at_least("recv", send.len, recv.len)?;
            let call = site.call(kind, send.elements, send.len);
            Ok(Call { send: Some(site.read(send)?), recv: Some(site.write(recv)?), scalar, ..call })
        }
        Everywhere::InPlace(buffer) => {
            let call = site.call(kind, buffer.elements, buffer.len);
            Ok(Call { send_in_recv: Some(0), recv: Some(site.in_place(buffer)?), scalar, ..call })
        }
    }
}

/// What no rank is done with before all have come to it: an all_reduce of nothing that anybody reads.
pub(crate) fn barrier<'a>(site: Site<'a>, scratch: &'a DeviceBuffer<u8>) -> Result<Call<'a>> {
    let mut call = site.call(Kind::AllReduce { op: sys::ncclRedOp_t::ncclMax }, Elements::of::<u8>(), 1);
    call.send_in_recv = Some(0);
    call.recv = Some(scratch.as_slice().region());
    Ok(call)
}

pub(crate) fn reduce<'a>(site: Site<'a>, io: Rooted<'a>, op: Operator<'a>, root: usize) -> Result<Call<'a>> {
    site.comm.check_rank(site.operation, "root", root)?;
    let kind = Kind::Reduce { op: op.to_raw(&site, io.elements())?, root };
    let mut call;
    match io {
        Rooted::OutOfPlace { send, recv } => {
            call = site.call(kind, send.elements, send.len);
            if site.is_root(root) {
                site.at_least("recv", send.len, recv.len)?;
                call.recv = Some(site.write(recv)?);
            }
            call.send = Some(site.read(send)?);
            mixed::check(&site, call.send.as_ref(), call.recv.as_ref())?;
        }
        Rooted::InPlace(buffer) => {
            call = site.call(kind, buffer.elements, buffer.len);
            call.send_in_recv = Some(0);
            call.recv = Some(site.in_place(buffer)?);
        }
        Rooted::Other(send) => {
            if site.is_root(root) {
                return Err(site.root_only("recv", "SendOnly"));
            }
            call = site.call(kind, send.elements, send.len);
            call.send = Some(site.read(send)?);
        }
    }
    call.scalar = op.scalar();
    Ok(call)
}

pub(crate) fn broadcast<'a>(site: Site<'a>, io: Rooted<'a>, root: usize) -> Result<Call<'a>> {
    site.comm.check_rank(site.operation, "root", root)?;
    let kind = Kind::Broadcast { root };
    match io {
        Rooted::OutOfPlace { send, recv } => {
            let mut call = site.call(kind, recv.elements, recv.len);
            if site.is_root(root) {
                site.exactly("send", recv.len, send.len)?;
                call.send = Some(site.read(send)?);
            }
            call.recv = Some(site.write(recv)?);
            mixed::check(&site, call.send.as_ref(), call.recv.as_ref())?;
            Ok(call)
        }
        Rooted::InPlace(buffer) => {
            let mut call = site.call(kind, buffer.elements, buffer.len);
            call.send_in_recv = Some(0);
            call.recv = Some(site.in_place(buffer)?);
            Ok(call)
        }
        Rooted::Other(recv) => {
            if site.is_root(root) {
                return Err(site.root_only("send", "RecvOnly"));
            }
            let mut call = site.call(kind, recv.elements, recv.len);
            call.recv = Some(site.write(recv)?);
            Ok(call)
        }
    }
}

pub(crate) fn all_gather<'a>(site: Site<'a>, io: Everywhere<'a>) -> Result<Call<'a>> {
    match io {
        Everywhere::OutOfPlace { send, recv } => {
            site.at_least("recv", site.all("send", send.len)?, recv.len)?;
            let mut call = site.call(Kind::AllGather, send.elements, send.len);
            call.send = Some(site.read(send)?);
            call.recv = Some(site.write(recv)?);
            Ok(call)
        }
        Everywhere::InPlace(buffer) => {
            let part = site.part("buffer", buffer.len)?;
            let mut call = site.call(Kind::AllGather, buffer.elements, part);
            call.send_in_recv = Some(site.comm.rank * part * buffer.elements.size);
            call.recv = Some(site.in_place(buffer)?);
            Ok(call)
        }
    }
}

pub(crate) fn reduce_scatter<'a>(site: Site<'a>, io: Everywhere<'a>, op: Operator<'a>) -> Result<Call<'a>> {
    let kind = Kind::ReduceScatter { op: op.to_raw(&site, io.elements())? };
    let mut call;
    match io {
        Everywhere::OutOfPlace { send, recv } => {
            let part = site.part("send", send.len)?;
            site.at_least("recv", part, recv.len)?;
            call = site.call(kind, send.elements, part);
            call.send = Some(site.read(send)?);
            call.recv = Some(site.write(recv)?);
        }
        Everywhere::InPlace(buffer) => {
            let part = site.part("buffer", buffer.len)?;
            call = site.call(kind, buffer.elements, part);
            call.send_in_recv = Some(0);
            call.recv_offset = site.comm.rank * part * buffer.elements.size;
            call.recv = Some(site.in_place(buffer)?);
        }
    }
    call.scalar = op.scalar();
    Ok(call)
}

/// A message to `peer`.
pub(crate) fn send<'a>(site: Site<'a>, buffer: Buffer<'a>, peer: usize) -> Result<Call<'a>> {
    site.comm.check_rank(site.operation, "peer", peer)?;
    let call = site.call(Kind::Send { peer }, buffer.elements, buffer.len);
    Ok(Call { send: Some(site.read(buffer)?), ..call })
}

/// A message from `peer`.
pub(crate) fn recv<'a>(site: Site<'a>, buffer: Buffer<'a>, peer: usize) -> Result<Call<'a>> {
    site.comm.check_rank(site.operation, "peer", peer)?;
    let call = site.call(Kind::Recv { peer }, buffer.elements, buffer.len);
    Ok(Call { recv: Some(site.write(buffer)?), ..call })
}
