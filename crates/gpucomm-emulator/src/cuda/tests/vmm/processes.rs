//! Memory that goes from process to process, as a descriptor over a Unix socket.

use super::*;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

const SOCKET: &str = "GPUCOMM_TEST_SOCKET";

/// Sends a descriptor with one byte, or receives what came so.
fn pass(socket: &UnixStream, fd: Option<c_int>) -> Option<OwnedFd> {
    let mut byte = [0u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: all zeros is a message header without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: computes a length.
    let room = unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) } as usize;
    message.msg_controllen = room as _;
    // SAFETY: the header names buffers that live across the calls, with room for one control message of one descriptor, and the
    // socket is open.
    unsafe {
        let Some(fd) = fd else {
            assert_eq!(libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC), 1);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            assert!(!header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS);
            return Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<c_int>().read_unaligned()));
        };
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(fd);
        assert_eq!(libc::sendmsg(socket.as_raw_fd(), &raw const message, 0), 1);
    }
    None
}

#[test]
fn another_process_maps_memory_that_was_sent() {
    let stream = TestStream::new(1);
    let (handle, at) = (memory(1, 2 * GRAIN), room(2 * GRAIN));
    assert_eq!((map(at, 2 * GRAIN, 0, handle, 0), allow(at, 2 * GRAIN, 1, BOTH)), (0, 0));
    upload(pointer(at), &[1u32, 2, 3], stream.0);
    stream.wait();
    let path = std::env::temp_dir().join(format!("gpucomm-vmm-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let (socket, outcome) = std::thread::scope(|scope| {
        let other = scope
            .spawn(|| elsewhere("cuda::tests::vmm::processes::the_other_side", &[(SOCKET, path.to_str().unwrap())]));
        let (socket, _) = listener.accept().unwrap();
        let fd = descriptor(handle);
        pass(&socket, Some(fd));
        close(fd);
        (socket, other.join())
    });
    std::fs::remove_file(&path).unwrap();
    assert!(outcome.is_ok());
    drop(socket);
    assert_eq!(download::<u32>(pointer(at), 3, stream.0), [1, 20, 3]);
    assert_eq!((release(handle), unmap(at, 2 * GRAIN), free(at, 2 * GRAIN)), (0, 0, 0));
}

#[test]
fn the_other_side() {
    let Ok(path) = std::env::var(SOCKET) else { return };
    let socket = UnixStream::connect(path).unwrap();
    let fd = pass(&socket, None).unwrap();
    let handle = imported(fd.as_raw_fd()).unwrap();
    drop(fd);
    let mut known = prop(0, FABRIC);
    assert_eq!(properties(&mut known, handle), 0);
    assert_eq!((known.location.id, known.requestedHandleTypes), (1, FD));
    let all = free_memory(1);
    let (stream, at) = (TestStream::new(1), room(2 * GRAIN));
    // Without a handle.
    assert_eq!((map(at, 2 * GRAIN, 0, handle, 0), allow(at, 2 * GRAIN, 1, BOTH), release(handle)), (0, 0, 0));
    assert_eq!(download::<u32>(pointer(at), 3, stream.0), [1, 2, 3]);
    upload(pointer(at + 4), &[20u32], stream.0);
    stream.wait();
    assert_eq!((unmap(at, 2 * GRAIN), free(at, 2 * GRAIN), free_memory(1)), (0, 0, all));
}
