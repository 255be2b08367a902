//! Tests of the whole half, through the C functions: ranks as threads, each with a device of its own.

mod abort;
mod alone;
mod beside;
mod captures;
mod collectives;
mod connect;
mod graph_cache;
mod graph_signals;
mod graphs;
mod groups;
mod grow;
mod inside;
mod lifecycle;
mod mapped;
mod messages;
mod one_sided;
mod orders;
mod parameters;
mod processes;
mod races;
mod registrations;
mod replays;
mod shrink;
mod simulate;
mod suspend;
mod usage;
mod windows;

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::isolated::alone;
use crate::nccl::state::registry;
use crate::sys::*;

/// What an aborted operation leaves in the first half of its result.
pub(super) const GARBAGE: f32 = f32::from_bits(u32::from_ne_bytes([super::requests::operation::SPOILT; 4]));

pub(super) const OK: ncclResult_t = ncclResult_t::ncclSuccess;

/// Longer than any of these tests takes, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs `test` on a thread of its own and fails if it does not end.
pub(super) fn within_limit<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = sender.send(test());
    });
    match receiver.recv_timeout(LIMIT) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test took longer than {LIMIT:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("a thread that ends well has sent its result"),
        },
    }
}

pub(super) fn unique_id() -> ncclUniqueId {
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: the pointer is valid for a write.
    assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, OK);
    id
}

pub(super) fn last_error() -> String {
    // SAFETY: the pointer is a C string that stays valid until the thread asks again.
    unsafe { CStr::from_ptr(ncclGetLastError(std::ptr::null_mut())) }.to_string_lossy().into_owned()
}

/// One rank with its stream.
pub(super) struct Rank {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) comm: ncclComm_t,
    pub(super) stream: cudaStream_t,
    /// The communicator is gone.
    aborted: Cell<bool>,
}

pub(super) fn config(blocking: bool) -> ncclConfig_t {
    let mut config = super::basics::config::initial();
    config.blocking = i32::from(blocking);
    config
}

pub(super) fn set_device(device: usize) {
    // SAFETY: takes no pointers.
    assert_eq!(unsafe { cudaSetDevice(device as i32) }, cudaError::cudaSuccess);
}

pub(super) fn stream() -> cudaStream_t {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write.
    let made = unsafe { cudaStreamCreateWithPriority(&mut stream, cudaStreamNonBlocking, 0) };
    assert_eq!(made, cudaError::cudaSuccess);
    stream
}

/// Holds a stream up until what it gives back is dropped.
pub(super) fn hold_up(stream: cudaStream_t) -> mpsc::Sender<()> {
    unsafe extern "C" fn wait_for_end(held: *mut c_void) {
        // SAFETY: made by `Box::into_raw` of such a receiver, for this one call.
        let held = unsafe { Box::from_raw(held.cast::<mpsc::Receiver<()>>()) };
        let _ = held.recv();
    }
    let (hold, held) = mpsc::channel::<()>();
    let held = Box::into_raw(Box::new(held)).cast();
    // SAFETY: a live stream; the function takes what it is given here.
    assert_eq!(unsafe { cudaLaunchHostFunc(stream, Some(wait_for_end), held) }, cudaError::cudaSuccess);
    hold
}

pub(super) fn init(size: usize, id: ncclUniqueId, rank: usize, mut config: ncclConfig_t) -> (ncclResult_t, ncclComm_t) {
    let mut comm = std::ptr::null_mut();
    // SAFETY: the pointers are valid.
    let result = unsafe { ncclCommInitRankConfig(&mut comm, size as i32, id, rank as i32, &mut config) };
    (result, comm)
}

/// Until another thread is inside a call on the communicator of that handle, and has had time to begin to wait there.
pub(super) fn until_inside(comm: usize) {
    let known = registry::find(std::ptr::without_provenance_mut(comm)).expect("the handle of a communicator");
    let begin = Instant::now();
    while !known.resources.visits.are_closed() {
        assert!(begin.elapsed() < LIMIT, "nobody comes inside");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
}

/// A communicator of two ranks, and one of both that was split off from it and shares its resources.
pub(super) fn sharing(id: ncclUniqueId, rank: usize) -> (ncclComm_t, ncclComm_t) {
    let mut shared = config(true);
    shared.splitShare = 1;
    let (result, parent) = init(2, id, rank, shared);
    assert_eq!(result, OK);
    let mut child = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write.
    assert_eq!(unsafe { ncclCommSplit(parent, 0, 0, &mut child, std::ptr::null_mut()) }, OK);
    (parent, child)
}

/// A thread for each of `size` ranks, each with a blocking communicator that is destroyed at the end.
pub(super) fn spmd<R: Send + 'static>(size: usize, body: impl Fn(&Rank) -> R + Send + Sync + 'static) -> Vec<R> {
    within_limit(move || {
        let id = unique_id();
        let body = &body;
        std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..size)
                .map(|rank| {
                    scope.spawn(move || {
                        set_device(rank);
                        let (result, comm) = init(size, id, rank, config(true));
                        assert_eq!(result, OK, "{}", last_error());
                        let rank = Rank::new(rank, size, comm);
                        let result = body(&rank);
                        rank.end();
                        result
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    })
}

impl Rank {
    pub(super) fn new(rank: usize, size: usize, comm: ncclComm_t) -> Self {
        Self { rank, size, comm, stream: stream(), aborted: Cell::new(false) }
    }

    pub(super) fn abort(&self) {
        self.aborted.set(true);
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { ncclCommAbort(self.comm) }, OK, "{}", last_error());
    }

    /// Destroys the communicator, or aborts it if it has failed; unless it is gone.
    fn end(&self) {
        if !self.aborted.get() {
            if self.state() == OK {
                // SAFETY: takes no pointers.
                assert_eq!(unsafe { ncclCommDestroy(self.comm) }, OK, "{}", last_error());
            } else {
                self.abort();
            }
        }
        // Some tests lose a device.
        // SAFETY: takes no pointers.
        let destroyed = unsafe { cudaStreamDestroy(self.stream) };
        assert!([cudaError::cudaSuccess, cudaError::cudaErrorLaunchFailure].contains(&destroyed), "{destroyed:?}");
    }

    pub(super) fn state(&self) -> ncclResult_t {
        let mut state = OK;
        // SAFETY: the pointer is valid for a write.
        assert_eq!(unsafe { ncclCommGetAsyncError(self.comm, &mut state) }, OK);
        state
    }

    /// Waits until a communicator that does not block is at rest, and well.
    pub(super) fn settle(&self) {
        let begin = Instant::now();
        while self.state() == ncclResult_t::ncclInProgress {
            assert!(begin.elapsed() < LIMIT, "it is still in progress");
            std::thread::yield_now();
        }
        assert_eq!(self.state(), OK);
    }

    /// The communicator's own last error.
    pub(super) fn error(&self) -> String {
        // SAFETY: as in `last_error`.
        unsafe { CStr::from_ptr(ncclGetLastError(self.comm)) }.to_string_lossy().into_owned()
    }

    /// Waits for the stream.
    pub(super) fn wait(&self) {
        wait(self.stream);
    }

    pub(super) fn idle(&self) -> bool {
        // SAFETY: takes no pointers.
        unsafe { cudaStreamQuery(self.stream) == cudaError::cudaSuccess }
    }

    /// Meets all ranks in a small all-reduce and in messages both ways, as first calls do by themselves.
    pub(super) fn connect(&self) {
        let (one, all) = (Buffer::zeros(1), Buffer::zeros(self.size));
        let float = ncclDataType_t::ncclFloat32;
        // SAFETY: the buffers stay until the stream is idle.
        unsafe {
            assert_eq!(ncclGroupStart(), OK);
            for peer in 0..self.size {
                assert_eq!(ncclSend(one.0, 1, float, peer as i32, self.comm, self.stream), OK);
                assert_eq!(ncclRecv(all.at(peer), 1, float, peer as i32, self.comm, self.stream), OK);
            }
            assert_eq!(ncclGroupEnd(), OK, "{}", last_error());
        }
        assert_eq!(self.all_reduce(&one), OK, "{}", last_error());
        self.wait();
    }

    /// A message to itself, of a communicator of one rank, from the first half of a buffer to the second: what one rank has that waits for
    /// the end of a group, and comes in turn.
    pub(super) fn to_itself(&self, buffer: &Buffer) -> ncclResult_t {
        let (half, float) = (buffer.1 / 2, ncclDataType_t::ncclFloat32);
        // SAFETY: the buffer is checked by the functions.
        unsafe {
            assert_eq!(ncclGroupStart(), OK);
            assert_eq!(ncclSend(buffer.0, half, float, 0, self.comm, self.stream), OK);
            assert_eq!(ncclRecv(buffer.at(half), half, float, 0, self.comm, self.stream), OK);
            ncclGroupEnd()
        }
    }

    pub(super) fn all_reduce(&self, buffer: &Buffer) -> ncclResult_t {
        let (at, stream) = (buffer.0, self.stream);
        let (datatype, op) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
        // SAFETY: the buffer is checked by the function.
        unsafe { ncclAllReduce(at, at, buffer.1, datatype, op, self.comm, stream) }
    }

    /// The second one comes when the first is done here: an abort of the second must not find the first under way.
    pub(super) fn all_reduce_twice(&self, buffer: &Buffer) {
        assert_eq!(self.all_reduce(buffer), OK);
        self.wait();
        assert_eq!(self.all_reduce(buffer), OK);
    }
}

pub(super) fn wait(stream: cudaStream_t) {
    loop {
        // SAFETY: takes no pointers.
        match unsafe { cudaStreamQuery(stream) } {
            cudaError::cudaSuccess => return,
            cudaError::cudaErrorNotReady => std::thread::sleep(Duration::from_micros(50)),
            error => panic!("the stream failed: {error:?}"),
        }
    }
}

/// Device memory of some f32.
pub(super) struct Buffer(pub(super) *mut c_void, pub(super) usize);

impl Buffer {
    pub(super) fn new(values: &[f32]) -> Self {
        let mut at = std::ptr::null_mut();
        if values.is_empty() {
            return Self(at, 0);
        }
        // SAFETY: the pointer is valid for a write.
        assert_eq!(unsafe { cudaMalloc(&mut at, 4 * values.len()) }, cudaError::cudaSuccess);
        // SAFETY: device memory of the emulator is memory of this process, just allocated for this many elements.
        unsafe { at.cast::<f32>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Self(at, values.len())
    }

    pub(super) fn zeros(count: usize) -> Self {
        Self::new(&vec![0.0; count])
    }

    pub(super) fn at(&self, index: usize) -> *mut c_void {
        self.0.wrapping_byte_add(4 * index)
    }

    /// The values, once the stream is idle.
    pub(super) fn values(&self) -> Vec<f32> {
        if self.1 == 0 {
            return Vec::new();
        }
        // SAFETY: as in `new`; nothing runs on the buffer any more.
        unsafe { std::slice::from_raw_parts(self.0.cast::<f32>(), self.1) }.to_vec()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: frees what `new` allocated. An error has no consequence here.
        let _ = unsafe { cudaFree(self.0) };
    }
}
