//! Waiting for many connections, and what TCP is told of them.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::exchange::system::{checked, milliseconds};

/// What may happen to a connection: a set.
pub(in crate::exchange) type Flags = u32;

/// Something has come.
pub(in crate::exchange) const IN: Flags = libc::EPOLLIN.cast_unsigned();
/// There is room to send.
pub(in crate::exchange) const OUT: Flags = libc::EPOLLOUT.cast_unsigned();
/// It has ended, or failed.
pub(in crate::exchange) const OVER: Flags = (libc::EPOLLHUP | libc::EPOLLERR).cast_unsigned();

/// How many are told of at once.
const AT_ONCE: usize = 256;

/// Connections, each known by a number, of which it is told what happens to them.
#[derive(Debug)]
pub(in crate::exchange) struct Events(OwnedFd);

impl Events {
    pub(in crate::exchange) fn new() -> io::Result<Self> {
        // SAFETY: takes a number.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just given us this descriptor.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn control(&self, what: c_int, of: impl AsFd, token: u64, interest: Flags) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest, u64: token };
        // SAFETY: both descriptors are open, as they are borrowed; the event is read, or not looked at.
        let status = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, of.as_fd().as_raw_fd(), &raw mut event) };
        checked(status).map(drop)
    }

    pub(in crate::exchange) fn add(&self, of: impl AsFd, token: u64, interest: Flags) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, of, token, interest)
    }

    pub(in crate::exchange) fn change(&self, of: impl AsFd, token: u64, interest: Flags) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, of, token, interest)
    }

    pub(in crate::exchange) fn remove(&self, of: impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, of, 0, 0)
    }

    /// What has happened, by number, once something has or `within` is over. A signal may end it earlier.
    pub(in crate::exchange) fn wait(
        &self,
        happened: &mut Vec<(u64, Flags)>,
        within: Option<Duration>,
    ) -> io::Result<()> {
        happened.clear();
        let mut all = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE];
        // SAFETY: the descriptor is open; the kernel writes at most as many events as there is room for.
        let status =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), all.as_mut_ptr(), AT_ONCE as c_int, milliseconds(within)) };
        let count = checked(status)?;
        happened.extend(all.iter().take(usize::try_from(count).unwrap_or(0)).map(|event| (event.u64, event.events)));
        Ok(())
    }
}

/// Has TCP ask a host that says nothing whether it is still there: after ten seconds, and given up after another 15.
pub(in crate::exchange) fn keep_asking(stream: &TcpStream) {
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 10),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
    ];
    for (level, name, value) in options {
        let value: *const c_int = &raw const value;
        let size = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: the descriptor is open, and the option is an integer, of this size.
        let _ = unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, value.cast::<c_void>(), size) };
    }
}

/// What is there to be read, of which nothing is taken: how many bytes, one at most, 0 at the end. Does not wait.
pub(in crate::exchange) fn peek(stream: &TcpStream) -> io::Result<usize> {
    let mut byte = [0_u8];
    // SAFETY: the descriptor is open, and there is room for one byte.
    let count = unsafe {
        libc::recv(stream.as_raw_fd(), byte.as_mut_ptr().cast(), byte.len(), libc::MSG_PEEK | libc::MSG_DONTWAIT)
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
