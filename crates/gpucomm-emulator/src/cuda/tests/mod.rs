//! Tests of the C functions together.

mod capture;
mod checks;
mod copies;
mod devices;
mod graph;
mod helping;
mod lost;
mod pools;
mod processes;
mod races;
mod replay;
mod streams;
mod update;
mod vmm;
mod waits;

use crate::isolated::{alone, elsewhere, isolated};
use crate::report::expected::expect;
use crate::sys::*;
use std::ffi::c_void;
use std::process::Output;
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const SUCCESS: cudaError = cudaError::cudaSuccess;
const NOT_READY: cudaError = cudaError::cudaErrorNotReady;
const INVALID: cudaError = cudaError::cudaErrorInvalidValue;
const BAD_HANDLE: cudaError = cudaError::cudaErrorInvalidResourceHandle;

/// Calls a C function: its arguments are valid wherever a test does not say otherwise.
macro_rules! c {
    ($call:expr) => {{
        // SAFETY: pointers that these tests pass are null, invented handles, or point to what the test owns.
        unsafe { $call }
    }};
}
use c;

macro_rules! ok {
    ($call:expr) => {
        assert_eq!(c!($call), SUCCESS)
    };
}
use ok;

/// A stream that is destroyed at the end.
struct TestStream(cudaStream_t);

impl TestStream {
    fn with_flags(device: i32, flags: u32) -> Self {
        ok!(cudaSetDevice(device));
        let mut stream = null_mut();
        ok!(cudaStreamCreateWithPriority(&mut stream, flags, 0));
        Self(stream)
    }

    fn new(device: i32) -> Self {
        Self::with_flags(device, cudaStreamNonBlocking)
    }

    fn wait(&self) {
        wait(self.0);
    }

    /// Blocks the stream until the returned gate is opened or dropped.
    fn close_gate(&self) -> Gate {
        gate(self.0)
    }
}

impl Drop for TestStream {
    fn drop(&mut self) {
        c!(cudaStreamDestroy(self.0));
    }
}

fn wait(stream: cudaStream_t) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match c!(cudaStreamQuery(stream)) {
            NOT_READY => assert!(Instant::now() < deadline, "the stream is stuck"),
            result => return assert_eq!(result, SUCCESS),
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Holds a stream back until it is dropped.
struct Gate {
    #[allow(dead_code, reason = "its drop opens the gate")]
    open: Sender<()>,
}

fn gate(stream: cudaStream_t) -> Gate {
    unsafe extern "C" fn pass(data: *mut c_void) {
        // SAFETY: `gate` made this box, and the function is called once.
        let opened = unsafe { Box::from_raw(data.cast::<Receiver<()>>()) };
        let _ = opened.recv();
    }
    let (open, opened) = channel();
    ok!(cudaLaunchHostFunc(stream, Some(pass), Box::into_raw(Box::new(opened)).cast()));
    Gate { open }
}

fn event(flags: u32) -> cudaEvent_t {
    let mut event = null_mut();
    ok!(cudaEventCreateWithFlags(&mut event, flags));
    event
}

fn malloc(bytes: usize) -> *mut c_void {
    let mut ptr = null_mut();
    ok!(cudaMalloc(&mut ptr, bytes));
    assert!(!ptr.is_null() && ptr.addr().is_multiple_of(512));
    ptr
}

fn upload<T>(dst: *mut c_void, values: &[T], stream: cudaStream_t) {
    let kind = cudaMemcpyKind::cudaMemcpyHostToDevice;
    ok!(cudaMemcpyAsync(dst, values.as_ptr().cast(), size_of_val(values), kind, stream));
}

/// Reads after all work on `stream`, and waits for it.
fn download<T: Default + Clone>(src: *mut c_void, len: usize, stream: cudaStream_t) -> Vec<T> {
    let mut values = vec![T::default(); len];
    let kind = cudaMemcpyKind::cudaMemcpyDeviceToHost;
    ok!(cudaMemcpyAsync(values.as_mut_ptr().cast(), src, size_of_val(&values[..]), kind, stream));
    values
}

/// What an isolated process said on stderr.
fn said(output: &Output) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&output.stderr)
}
