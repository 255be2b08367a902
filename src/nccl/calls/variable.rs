//! Operations with a count for each rank. NCCL has none of them; each is a group of calls that it has.
//!
//! Parts without elements are compared among the ranks of a clique like all others, and then not sent.

use super::buffers::{Buffer, Everywhere, Rooted};
use super::call::Calls;
use super::kind::Kind;
use super::layout::Layout;
use super::mixed;
use super::operator::Operator;
use super::pieces::{part, recv_part, send_part};
use super::site::Site;
use crate::error::{Error, Result};

pub(crate) fn all_to_all_v<'a>(
    site: Site<'a>,
    (send, recv): (Buffer<'a>, Buffer<'a>),
    (send_layout, recv_layout): (Layout<'_>, Layout<'_>),
    calls: &mut Calls<'a>,
) -> Result<()> {
    let size = site.comm.size;
    send_layout.check(site.operation, "send layout", size, send.len)?;
    recv_layout.check_disjoint(site.operation, "recv layout", size, recv.len)?;
    let own = site.comm.rank;
    equal_parts(&site, "own part", send_layout.counts[own], recv_layout.counts[own])?;
    let of = send.elements;
    let (send, recv) = (site.read(send)?, site.write(recv)?);
    for (peer, (sent, received)) in send_layout.parts().zip(recv_layout.parts()).enumerate() {
        calls.push(send_part(&site, (send, of), sent, peer));
        calls.push(recv_part(&site, (recv, of), received, peer));
    }
    Ok(())
}

pub(crate) fn all_gather_v<'a>(
    site: Site<'a>,
    io: Everywhere<'a>,
    layout: Layout<'_>,
    calls: &mut Calls<'a>,
) -> Result<()> {
    let of = io.elements();
    let (send, recv) = match io {
        Everywhere::OutOfPlace { send, recv } => (Some(send), recv),
        Everywhere::InPlace(buffer) => (None, buffer),
    };
    layout.check_disjoint(site.operation, "layout", site.comm.size, recv.len)?;
    if let Some(send) = send {
        equal_parts(&site, "send", layout.counts[site.comm.rank], send.len)?;
    }
    let send = send.map(|send| site.read(send)).transpose()?;
    let recv = site.write(recv)?;
    mixed::check(&site, send.as_ref(), Some(&recv))?;
    for (root, (offset, count)) in layout.parts().enumerate() {
        let mut call = site.call(Kind::Broadcast { root }, of, count);
        call.recv = Some(part(recv, of, (offset, count)));
        call.send = send.filter(|_| root == site.comm.rank);
        call.send_in_recv = (send.is_none() && root == site.comm.rank).then_some(0);
        calls.push(call);
    }
    Ok(())
}

pub(crate) fn reduce_scatter_v<'a>(
    site: Site<'a>,
    io: Everywhere<'a>,
    layout: Layout<'_>,
    op: Operator<'a>,
    calls: &mut Calls<'a>,
) -> Result<()> {
    let of = io.elements();
    let raw = op.to_raw(&site, of)?;
    let rank = site.comm.rank;
    let (len, send, recv) = match io {
        Everywhere::OutOfPlace { send, recv } => (send.len, Some(send), recv),
        Everywhere::InPlace(buffer) => (buffer.len, None, buffer),
    };
    layout.check_disjoint(site.operation, "layout", site.comm.size, len)?;
    if send.is_some() {
        site.at_least("recv", layout.counts[rank], recv.len)?;
    }
    let send = send.map(|send| site.read(send)).transpose()?;
    let recv = site.write(recv)?;
    mixed::check(&site, send.as_ref(), Some(&recv))?;
    for (root, (offset, count)) in layout.parts().enumerate() {
        let mut call = site.call(Kind::Reduce { op: raw, root }, of, count);
        match send {
            Some(send) => {
                call.send = Some(part(send, of, (offset, count)));
                call.recv = (root == rank).then(|| part(recv, of, (0, count)));
            }
            None if root == rank => {
                call.recv = Some(part(recv, of, (offset, count)));
                call.send_in_recv = Some(0);
            }
            None => call.send = Some(part(recv, of, (offset, count))),
        }
        call.scalar = op.scalar();
        calls.push(call);
    }
    Ok(())
}

pub(crate) fn gather_v<'a>(
    site: Site<'a>,
    io: Rooted<'a>,
    layout: Layout<'_>,
    root: usize,
    calls: &mut Calls<'a>,
) -> Result<()> {
    site.comm.check_rank(site.operation, "root", root)?;
    let (of, size, rank) = (io.elements(), site.comm.size, site.comm.rank);
    let (send, recv) = match io {
        Rooted::OutOfPlace { send, recv } => (Some(send), site.is_root(root).then_some(recv)),
        Rooted::InPlace(buffer) if site.is_root(root) => (None, Some(buffer)),
        Rooted::Other(send) if !site.is_root(root) => (Some(send), None),
        Rooted::Other(_) => return Err(site.root_only("recv", "SendOnly")),
        Rooted::InPlace(_) => {
            return Err(Error::argument(site.operation, "form", "SendOnly on a rank that is not the root", "InPlace"));
        }
    };
    // Only the root has the buffer that the layout divides; the others need their own count.
    let len = recv.map_or(usize::MAX, |recv| recv.len);
    layout.check_disjoint(site.operation, "layout", size, len)?;
    if let Some(send) = send {
        equal_parts(&site, "send", layout.counts[rank], send.len)?;
    }
    let own = send.map(|send| site.read(send)).transpose()?;
    if let Some(recv) = recv {
        let recv = site.write(recv)?;
        for (peer, place) in layout.parts().enumerate().filter(|&(peer, _)| peer != root || own.is_some()) {
            calls.push(recv_part(&site, (recv, of), place, peer));
        }
    }
    if let Some(own) = own {
        calls.push(send_part(&site, (own, of), (0, layout.counts[rank]), root));
    }
    Ok(())
}

pub(crate) fn scatter_v<'a>(
    site: Site<'a>,
    io: Rooted<'a>,
    layout: Layout<'_>,
    root: usize,
    calls: &mut Calls<'a>,
) -> Result<()> {
    site.comm.check_rank(site.operation, "root", root)?;
    let (of, size, rank) = (io.elements(), site.comm.size, site.comm.rank);
    let (len, from, to) = match io {
        Rooted::OutOfPlace { send, recv } if site.is_root(root) => {
            (send.len, Some(site.read(send)?), Some((recv.len, site.write(recv)?)))
        }
        Rooted::OutOfPlace { recv, .. } => (usize::MAX, None, Some((recv.len, site.write(recv)?))),
        Rooted::InPlace(buffer) if site.is_root(root) => (buffer.len, Some(site.in_place(buffer)?), None),
        Rooted::Other(recv) if !site.is_root(root) => (usize::MAX, None, Some((recv.len, site.write(recv)?))),
        Rooted::Other(_) => return Err(site.root_only("send", "RecvOnly")),
        Rooted::InPlace(_) => {
            return Err(Error::argument(site.operation, "form", "RecvOnly on a rank that is not the root", "InPlace"));
        }
    };
    layout.check_disjoint(site.operation, "layout", size, len)?;
    // Before the first call: of one that is refused nothing stays in a group.
    if let Some((len, _)) = to {
        site.at_least("recv", layout.counts[rank], len)?;
    }
    if let Some(from) = from {
        for (peer, place) in layout.parts().enumerate().filter(|&(peer, _)| peer != root || to.is_some()) {
            calls.push(send_part(&site, (from, of), place, peer));
        }
    }
    if let Some((_, to)) = to {
        calls.push(recv_part(&site, (to, of), (0, layout.counts[rank]), root));
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
