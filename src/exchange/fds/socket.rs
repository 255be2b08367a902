//! Unix sockets whose messages carry file descriptors whole, or do not come.

use std::ffi::c_int;
use std::io::{self, Result};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use crate::exchange::system::{checked, milliseconds};

/// The most file descriptors of one message.
pub const MAX_FDS: usize = 64;

/// How many may have connected that have not been looked at.
const BACKLOG: c_int = 256;

/// Bytes of so many descriptors.
const fn bytes_of(fds: usize) -> u32 {
    (fds * size_of::<c_int>()) as u32
}

/// Bytes that [`MAX_FDS`] descriptors take beside a message.
// SAFETY: computes with its argument.
const SPACE: usize = unsafe { libc::CMSG_SPACE(bytes_of(MAX_FDS)) } as usize;

/// Room for the descriptors of a message, aligned as the kernel has them.
#[repr(C)]
union Room {
    bytes: [u8; SPACE],
    _head: libc::cmsghdr,
}

/// One that does not block, and is not there in programs that this one starts.
fn socket() -> Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers.
    let fd = checked(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A path as the kernel has it, and how many bytes of that count.
fn address(path: &Path) -> Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: integers, of which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays zero.
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from.cast_signed() as _;
    }
    let len = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    Ok((address, len as libc::socklen_t))
}

/// A socket at `path` that only our user can connect to.
pub(super) fn listener(path: &Path) -> Result<OwnedFd> {
    let (socket, (address, len)) = (socket()?, address(path)?);
    // SAFETY: the descriptor is open, and the address has so many bytes.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    // SAFETY: the descriptor is open.
    checked(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(socket)
}

pub(super) fn connected(path: &Path) -> Result<OwnedFd> {
    let (socket, (address, len)) = (socket()?, address(path)?);
    // SAFETY: the descriptor is open, and the address has so many bytes.
    checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(socket)
}

pub(super) fn accepted(listener: &OwnedFd) -> Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the descriptor is open; nobody asks for the address.
    let fd = checked(unsafe { libc::accept4(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until something has come, or a signal, or `within` is over.
pub(super) fn wait(socket: &OwnedFd, within: Duration) {
    let mut one = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one struct, whose descriptor is open.
    let _ = unsafe { libc::poll(&raw mut one, 1, milliseconds(Some(within))) };
}

/// A message of `part`, with `control` bytes of `room` beside it. It points into both.
fn message(part: &mut libc::iovec, room: &mut Room, control: usize) -> libc::msghdr {
    // SAFETY: integers and pointers, of which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (ptr::from_mut(part), 1);
    (message.msg_control, message.msg_controllen) = (ptr::from_mut(room).cast(), control as _);
    message
}

pub(super) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    if fds.is_empty() || fds.len() > MAX_FDS {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let (mut room, len) = (Room { bytes: [0; SPACE] }, bytes_of(fds.len()));
    // SAFETY: computes with its argument.
    let message = message(&mut part, &mut room, unsafe { libc::CMSG_SPACE(len) } as usize);
    // SAFETY: the room beside the message has a head, and behind it bytes for as many descriptors as there are: at most `MAX_FDS`.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        ((*head).cmsg_level, (*head).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        (*head).cmsg_len = libc::CMSG_LEN(len) as _;
        let data = libc::CMSG_DATA(head).cast::<c_int>();
        fds.iter().enumerate().for_each(|(at, fd)| data.add(at).write_unaligned(fd.as_raw_fd()));
    }
    // Messages of such a socket go whole.
    // SAFETY: the descriptors are open, as they are borrowed; the kernel reads what the message points to, all of which is there.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if sent == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What has come: how much of the buffer is the message, its descriptors, and whether all of it fitted.
pub(super) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>, bool)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut room = Room { bytes: [0; SPACE] };
    let mut message = message(&mut part, &mut room, SPACE);
    // SAFETY: the descriptor is open; the kernel writes at most what there is room for.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let mut fds = Vec::new();
    // SAFETY: the kernel has written heads with their lengths, the last of which ends where it said. Each descriptor is ours from now on,
    // and taken once.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&raw const message);
        while !head.is_null() {
            if ((*head).cmsg_level, (*head).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let len = ((*head).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(head).cast::<c_int>();
                let all = (0..len / size_of::<c_int>()).map(|at| data.add(at).read_unaligned());
                fds.extend(all.map(|fd| OwnedFd::from_raw_fd(fd)));
            }
            head = libc::CMSG_NXTHDR(&raw const message, head);
        }
    }
    Ok((count, fds, message.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) == 0))
}
