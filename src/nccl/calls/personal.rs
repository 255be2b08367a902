//! All-to-all, gather and scatter: calls of their own since NCCL 2.28, messages in one group before.

use super::buffers::{Buffer, Rooted};
use super::call::Calls;
#[cfg(nccl_ge_2_28)]
use super::kind::Kind;
#[cfg(nccl_ge_2_28)]
use super::mixed;
#[cfg(not(nccl_ge_2_28))]
use super::pieces::{recv_part, send_part};
use super::site::Site;
use crate::error::{Error, Result};

/// Every rank sends part `r` of `send` to rank `r`, and receives into part `r` of `recv` what rank `r` sent it.
pub(crate) fn all_to_all<'a>(
    site: Site<'a>,
    (send, recv): (Buffer<'a>, Buffer<'a>),
    calls: &mut Calls<'a>,
) -> Result<()> {
    let part = site.part("send", send.len)?;
    site.at_least("recv", send.len, recv.len)?;
    let of = send.elements;
    let (send, recv) = (site.read(send)?, site.write(recv)?);
    #[cfg(nccl_ge_2_28)]
    {
        let mut call = site.call(Kind::AllToAll, of, part);
        call.send = Some(send);
        call.recv = Some(recv);
        mixed::check(&site, call.send.as_ref(), call.recv.as_ref())?;
        calls.push(call);
    }
    #[cfg(not(nccl_ge_2_28))]
    for peer in 0..site.comm.size {
        calls.push(send_part(&site, (send, of), (peer * part, part), peer));
        calls.push(recv_part(&site, (recv, of), (peer * part, part), peer));
    }
    Ok(())
}

/// Every rank sends `send` to the root, which receives it into the part of that rank.
pub(crate) fn gather<'a>(site: Site<'a>, io: Rooted<'a>, root: usize, calls: &mut Calls<'a>) -> Result<()> {
    site.comm.check_rank(site.operation, "root", root)?;
    let of = io.elements();
    let (part, send, recv) = match io {
        Rooted::OutOfPlace { send, recv } if site.is_root(root) => {
            site.at_least("recv", site.all("send", send.len)?, recv.len)?;
            (send.len, Some(site.read(send)?), Some(site.write(recv)?))
        }
        Rooted::OutOfPlace { send, .. } => (send.len, Some(site.read(send)?), None),
        Rooted::InPlace(buffer) if site.is_root(root) => {
            (site.part("buffer", buffer.len)?, None, Some(site.in_place(buffer)?))
        }
        Rooted::InPlace(_) => return Err(only_at_the_root(&site, "SendOnly")),
        Rooted::Other(_) if site.is_root(root) => return Err(site.root_only("recv", "SendOnly")),
        Rooted::Other(send) => (send.len, Some(site.read(send)?), None),
    };
    #[cfg(nccl_ge_2_28)]
    {
        let mut call = site.call(Kind::Gather { root }, of, part);
        call.send = send;
        call.recv = recv;
        call.send_in_recv = send.is_none().then_some(root * part * of.size);
        mixed::check(&site, call.send.as_ref(), call.recv.as_ref())?;
        calls.push(call);
    }
    #[cfg(not(nccl_ge_2_28))]
    {
        if let Some(recv) = recv {
            for peer in (0..site.comm.size).filter(|&peer| peer != root || send.is_some()) {
                calls.push(recv_part(&site, (recv, of), (peer * part, part), peer));
            }
        }
        if let Some(send) = send {
            calls.push(send_part(&site, (send, of), (0, part), root));
        }
    }
    Ok(())
}

/// The root sends part `r` of `send` to rank `r`.
pub(crate) fn scatter<'a>(site: Site<'a>, io: Rooted<'a>, root: usize, calls: &mut Calls<'a>) -> Result<()> {
    site.comm.check_rank(site.operation, "root", root)?;
    let of = io.elements();
    // In place, the root sends the parts of the others and keeps its own where it is.
    let (part, send, recv, in_place) = match io {
        Rooted::OutOfPlace { send, recv } => {
            let send = if site.is_root(root) {
                site.exactly("send", site.all("recv", recv.len)?, send.len)?;
                Some(site.read(send)?)
            } else {
                None
            };
            (recv.len, send, site.write(recv)?, false)
        }
        Rooted::InPlace(buffer) if site.is_root(root) => {
            (site.part("buffer", buffer.len)?, None, site.in_place(buffer)?, true)
        }
        Rooted::InPlace(_) => return Err(only_at_the_root(&site, "RecvOnly")),
        Rooted::Other(_) if site.is_root(root) => return Err(site.root_only("send", "RecvOnly")),
        Rooted::Other(recv) => (recv.len, None, site.write(recv)?, false),
    };
    #[cfg(nccl_ge_2_28)]
    {
        let mut call = site.call(Kind::Scatter { root }, of, part);
        call.send = send;
        call.recv = Some(recv);
        if in_place {
            call.send_in_recv = Some(0);
            call.recv_offset = root * part * of.size;
        }
        mixed::check(&site, call.send.as_ref(), call.recv.as_ref())?;
        calls.push(call);
    }
    #[cfg(not(nccl_ge_2_28))]
    {
        let from = if in_place { Some(recv) } else { send };
        if let Some(from) = from {
            for peer in (0..site.comm.size).filter(|&peer| peer != root || !in_place) {
                calls.push(send_part(&site, (from, of), (peer * part, part), peer));
            }
        }
        if !in_place {
            calls.push(recv_part(&site, (recv, of), (0, part), root));
        }
    }
    Ok(())
}

fn only_at_the_root(site: &Site<'_>, form: &str) -> Error {
    Error::argument(site.operation, "form", format!("{form} on a rank that is not the root"), "InPlace")
}
