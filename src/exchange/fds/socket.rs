//! Unix sockets whose messages carry file descriptors whole, or do not come.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with,
};

/// The most file descriptors of one message.
pub const MAX_FDS: usize = 64;

/// How many may have connected that have not been looked at.
const BACKLOG: i32 = 256;

/// One that does not block, and is not there in programs that this one starts.
fn socket() -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// A socket at `path` that only our user can connect to.
pub(super) fn listener(path: &Path) -> Result<OwnedFd> {
    let socket = socket()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let ours = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
    ours.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

pub(super) fn connected(path: &Path) -> Result<OwnedFd> {
    let socket = socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

pub(super) fn accepted(listener: &OwnedFd) -> Result<OwnedFd> {
    accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

pub(super) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::NOBUFS);
    }
    // Messages of such a socket go whole.
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// What has come: how much of the buffer is the message, its descriptors, and whether all of it fitted.
pub(super) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>, bool)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    Ok((message.bytes, fds, !message.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC)))
}
