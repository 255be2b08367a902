//! Operations with a count for each rank. NCCL has none of them; each is a group of calls that it has.
//!
//! Parts without elements are compared among the ranks of a clique like all others, and then not sent.

use super::call::Call;
use super::io::{FromRoot, Layout, SendRecv, ToRoot};
use super::kind::Kind;
use super::mixed;
use super::pieces::{part, recv_part, send_part};
use super::reduction::Reduction;
use super::site::Site;
use crate::cuda::{Slice, SliceMut};
use crate::element::{Element, Reduce};
use crate::error::{Error, Result};

pub(crate) fn all_to_all_v<'a, T: Element>(
    site: Site<'a>,
    (send, send_layout): (Slice<'a, T>, Layout<'_>),
    (recv, recv_layout): (SliceMut<'a, T>, Layout<'_>),
    push: &mut impl FnMut(Call<'a>),
) -> Result<()> {
    let size = site.comm.size;
    send_layout.check(site.operation, "send layout", size, send.len())?;
    recv_layout.check_disjoint(site.operation, "recv layout", size, recv.len())?;
    let own = site.comm.rank;
    equal_parts(&site, "own part", send_layout.counts[own], recv_layout.counts[own])?;
    let (send, recv) = (site.read(send)?, site.write(recv)?);
    for (peer, (sent, received)) in send_layout.parts().zip(recv_layout.parts()).enumerate() {
        push(send_part::<T>(&site, send, sent, peer));
        push(recv_part::<T>(&site, recv, received, peer));
    }
    Ok(())
}

pub(crate) fn all_gather_v<'a, T: Element>(
    site: Site<'a>,
    io: SendRecv<'a, T>,
    layout: Layout<'_>,
    push: &mut impl FnMut(Call<'a>),
) -> Result<()> {
    let (send, recv) = match io {
        SendRecv::OutOfPlace { send, recv } => (Some(send), recv),
        SendRecv::InPlace(buffer) => (None, buffer),
    };
    layout.check_disjoint(site.operation, "layout", site.comm.size, recv.len())?;
    if let Some(send) = send {
        equal_parts(&site, "send", layout.counts[site.comm.rank], send.len())?;
    }
    let send = send.map(|send| site.read(send)).transpose()?;
    let recv = site.write(recv)?;
    mixed::check(&site, send.as_ref(), Some(&recv))?;
    for (root, (offset, count)) in layout.parts().enumerate() {
        let mut call = site.call::<T>(Kind::Broadcast { root }, count);
        call.recv = Some(part::<T>(recv, offset, count));
        call.send = send.filter(|_| root == site.comm.rank);
        call.send_in_recv = (send.is_none() && root == site.comm.rank).then_some(0);
        push(call);
    }
    Ok(())
}

pub(crate) fn reduce_scatter_v<'a, T: Reduce>(
    site: Site<'a>,
    io: SendRecv<'a, T>,
    layout: Layout<'_>,
    op: Reduction<'a>,
    push: &mut impl FnMut(Call<'a>),
) -> Result<()> {
    let raw = op.to_raw::<T>(&site)?;
    let rank = site.comm.rank;
    let (len, send, recv) = match io {
        SendRecv::OutOfPlace { send, recv } => (send.len(), Some(send), recv),
        SendRecv::InPlace(buffer) => (buffer.len(), None, buffer),
    };
    layout.check_disjoint(site.operation, "layout", site.comm.size, len)?;
    if send.is_some() {
        site.at_least("recv", layout.counts[rank], recv.len())?;
    }
    let send = send.map(|send| site.read(send)).transpose()?;
    let recv = site.write(recv)?;
    mixed::check(&site, send.as_ref(), Some(&recv))?;
    for (root, (offset, count)) in layout.parts().enumerate() {
        let mut call = site.call::<T>(Kind::Reduce { op: raw, root }, count);
        match send {
            Some(send) => {
                call.send = Some(part::<T>(send, offset, count));
                call.recv = (root == rank).then(|| part::<T>(recv, 0, count));
            }
            None if root == rank => {
                call.recv = Some(part::<T>(recv, offset, count));
                call.send_in_recv = Some(0);
            }
            None => call.send = Some(part::<T>(recv, offset, count)),
        }
        call.scalar = op.scalar();
        push(call);
    }
    Ok(())
}

pub(crate) fn gather_v<'a, T: Element>(
    site: Site<'a>,
    io: ToRoot<'a, T>,
    layout: Layout<'_>,
    root: usize,
    push: &mut impl FnMut(Call<'a>),
) -> Result<()> {
    site.comm.check_rank(site.operation, "root", root)?;
    let (size, rank) = (site.comm.size, site.comm.rank);
    let (send, recv) = match io {
        ToRoot::OutOfPlace { send, recv } => (Some(send), site.is_root(root).then_some(recv)),
        ToRoot::InPlace(buffer) if site.is_root(root) => (None, Some(buffer)),
        ToRoot::SendOnly(send) if !site.is_root(root) => (Some(send), None),
        ToRoot::SendOnly(_) => return Err(site.root_only("recv", "SendOnly")),
        ToRoot::InPlace(_) => {
            return Err(Error::argument(site.operation, "form", "SendOnly on a rank that is not the root", "InPlace"));
        }
    };
    // Only the root has the buffer that the layout divides; the others need their own count.
    let len = recv.as_ref().map_or(usize::MAX, SliceMut::len);
    layout.check_disjoint(site.operation, "layout", size, len)?;
    if let Some(send) = &send {
        equal_parts(&site, "send", layout.counts[rank], send.len())?;
    }
    let own = send.map(|send| site.read(send)).transpose()?;
    if let Some(recv) = recv {
        let recv = site.write(recv)?;
        for (peer, place) in layout.parts().enumerate().filter(|&(peer, _)| peer != root || own.is_some()) {
            push(recv_part::<T>(&site, recv, place, peer));
        }
    }
    if let Some(own) = own {
        push(send_part::<T>(&site, own, (0, layout.counts[rank]), root));
    }
    Ok(())
}

pub(crate) fn scatter_v<'a, T: Element>(
    site: Site<'a>,
    io: FromRoot<'a, T>,
    layout: Layout<'_>,
    root: usize,
    push: &mut impl FnMut(Call<'a>),
) -> Result<()> {
    site.comm.check_rank(site.operation, "root", root)?;
    let (size, rank) = (site.comm.size, site.comm.rank);
    let (len, from, to) = match io {
        FromRoot::OutOfPlace { send, recv } if site.is_root(root) => {
            (send.len(), Some(site.read(send)?), Some((recv.len(), site.write(recv)?)))
        }
        FromRoot::OutOfPlace { recv, .. } => (usize::MAX, None, Some((recv.len(), site.write(recv)?))),
        FromRoot::InPlace(buffer) if site.is_root(root) => (buffer.len(), Some(site.in_place(buffer)?), None),
        FromRoot::RecvOnly(recv) if !site.is_root(root) => (usize::MAX, None, Some((recv.len(), site.write(recv)?))),
        FromRoot::RecvOnly(_) => return Err(site.root_only("send", "RecvOnly")),
        FromRoot::InPlace(_) => {
            return Err(Error::argument(site.operation, "form", "RecvOnly on a rank that is not the root", "InPlace"));
        }
    };
    layout.check_disjoint(site.operation, "layout", size, len)?;
    if let Some(from) = from {
        for (peer, place) in layout.parts().enumerate().filter(|&(peer, _)| peer != root || to.is_some()) {
            push(send_part::<T>(&site, from, place, peer));
        }
    }
    if let Some((len, to)) = to {
        site.at_least("recv", layout.counts[rank], len)?;
        push(recv_part::<T>(&site, to, (0, layout.counts[rank]), root));
    }
    Ok(())
}

fn equal_parts(site: &Site<'_>, what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::argument(
        site.operation,
        what,
        format!("{expected} elements, as the layout says"),
        format!("{got} elements"),
    ))
}
