//! Unix sockets whose messages carry file descriptors, and come whole or not at all.

use std::io::{self, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// The most file descriptors of one message.
pub const MAX_FDS: usize = 64;

/// The most connections that have not been accepted.
const BACKLOG: i32 = 256;

/// Room for the descriptors of one message.
type Room = [MaybeUninit<u8>; ROOM];
const ROOM: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// Sockets do not block, and are closed in programs that this process starts.
fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}

fn socket_and_address(path: &Path) -> Result<(OwnedFd, SocketAddrUnix)> {
    if path.as_os_str().is_empty() {
        return Err(Errno::INVAL.into());
    }
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)?;
    Ok((socket, SocketAddrUnix::new(path)?))
}

/// A socket at `path` to which only processes of our user can connect.
pub(super) fn listener(path: &Path) -> Result<OwnedFd> {
    let (socket, address) = socket_and_address(path)?;
    net::bind(&socket, &address)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

pub(super) fn connect(path: &Path) -> Result<OwnedFd> {
    let (socket, address) = socket_and_address(path)?;
    net::connect(&socket, &address)?;
    Ok(socket)
}

pub(super) fn accept(listener: &OwnedFd) -> Result<OwnedFd> {
    Ok(net::accept_with(listener, flags())?)
}

/// Waits until something has come, at most for `within`. A signal may end the wait earlier.
pub(super) fn wait(socket: &OwnedFd, within: Duration) {
    let within = Timespec::try_from(within).ok();
    let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], within.as_ref());
}

/// Sends a message with 1 to [`MAX_FDS`] descriptors.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut room: Room = [MaybeUninit::uninit(); ROOM];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    if fds.is_empty() || !beside.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL.into());
    }
    net::sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message: how much of the buffer it takes, its descriptors, and whether all of it
/// fitted.
pub(super) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>, bool)> {
    let mut room: Room = [MaybeUninit::uninit(); ROOM];
    let mut beside = RecvAncillaryBuffer::new(&mut room);
    let message = net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for part in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    Ok((message.bytes, fds, !message.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC)))
}

/// The user of the process at the other end, as the kernel says.
///
/// Not by rustix, whose process ids are never 0: the kernel reports 0 for a process of another pid
/// namespace.
fn peer_user(socket: impl AsFd) -> Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the descriptor is open, as it is borrowed; the kernel writes at most `len` bytes to
    // `credentials`, which has as many and for which every value of its three integers is valid,
    // and the length to `len`. Nothing is kept.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len,
        )
    };
    if status == 0 { Ok(credentials.uid) } else { Err(io::Error::last_os_error()) }
}

/// Why the process at the other end is refused. `None` if it is of our user.
pub(super) fn stranger(socket: impl AsFd) -> Result<Option<String>> {
    let (theirs, ours) = (peer_user(socket)?, rustix::process::geteuid().as_raw());
    Ok((theirs != ours).then(|| format!("expected a process of user {ours}, got one of user {theirs}")))
}
