//! Who is at the other end of a Unix socket, as the kernel says.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The user of the process that has connected, or that listens.
pub(super) fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the descriptor is open, as it is borrowed; the kernel writes at most `len` bytes to `credentials`, which has as many and for
    // which every value of its three integers is valid, and the length to `len`. Nothing is kept.
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

/// Why the process at the other end is not let in; nothing if it is of our user.
pub(super) fn stranger(socket: impl AsFd) -> io::Result<Option<String>> {
    // SAFETY: it takes nothing, and cannot fail.
    let (theirs, ours) = (peer_user(socket)?, unsafe { libc::geteuid() });
    Ok((theirs != ours).then(|| format!("expected a process of user {ours}, got one of user {theirs}")))
}
