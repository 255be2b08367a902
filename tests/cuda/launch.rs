//! What others enqueue within a bracket is ordered, bounded and remembered like anything of this crate.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::mpsc::channel;

use gpucomm::cuda::{Lent, LentMut, LentStream};
use gpucomm::{Backend, CudaCode, Device, DeviceBuffer, Error, PinnedBuffer, Stream, sys};

use crate::kernel::Kernel;
use crate::{Gate, LONG, device, random, samples, stream, two_devices};

/// What a user has: a call of another library.
pub fn raw_copy(stream: LentStream<'_>, from: &Lent<'_, u32>, to: &mut LentMut<'_, u32>) {
    let bytes = from.len().min(to.len()) * size_of::<u32>();
    let kind = sys::cudaMemcpyKind::cudaMemcpyDefault;
    // SAFETY: both have that many bytes, and this is the one launch of the bracket.
    let code =
        unsafe { sys::cudaMemcpyAsync(to.as_mut_ptr().cast(), from.as_ptr().cast(), bytes, kind, stream.as_raw()) };
    assert_eq!(code, sys::cudaError::cudaSuccess);
}

pub fn raw_fill(stream: LentStream<'_>, memory: &mut LentMut<'_, u32>, byte: u8) {
    let bytes = memory.len() * size_of::<u32>();
    // SAFETY: as above.
    let code = unsafe { sys::cudaMemsetAsync(memory.as_mut_ptr().cast(), i32::from(byte), bytes, stream.as_raw()) };
    assert_eq!(code, sys::cudaError::cudaSuccess);
}

#[test]
fn what_is_lent_is_ordered_as_in_a_copy() {
    let (a, b, c) = (stream(), stream(), stream());
    let mut x = DeviceBuffer::<u32>::zeroed(&a, 1000).unwrap();
    let mut y = DeviceBuffer::<u32>::zeroed(&b, 1000).unwrap();
    a.synchronize().unwrap();
    b.synchronize().unwrap();
    let gate = Gate::close(&a);
    x.fill(&a, 7).unwrap();
    // After the write on `a`,
    b.launch((&x, &mut y), |stream, (x, mut y)| raw_copy(stream, &x, &mut y)).unwrap();
    assert!(!b.query().unwrap());
    // before the next one, on a third stream,
    x.fill(&c, 9).unwrap();
    assert!(!c.query().unwrap());
    // and the memory stays until then.
    drop(x);
    gate.open();
    assert_eq!(y.to_vec(&c).unwrap(), [7; 1000]);
    // A write waits for what reads.
    let gate = Gate::close(&a);
    let mut z = DeviceBuffer::<u32>::zeroed(&a, 1000).unwrap();
    z.copy_from(&a, &y).unwrap();
    b.launch(&mut y, |stream, mut y| raw_fill(stream, &mut y, 1)).unwrap();
    assert!(!b.query().unwrap());
    gate.open();
    assert_eq!(z.to_vec(&c).unwrap(), [7; 1000]);
    assert_eq!(y.to_vec(&c).unwrap(), [0x0101_0101; 1000]);
}

#[test]
fn random_brackets_are_in_order() {
    let mut random = random("random_brackets_are_in_order");
    let streams: Vec<Stream> = (0..4).map(|_| stream()).collect();
    let len = 3000;
    let mut model: Vec<Vec<u32>> = (0..4).map(|_| samples(&mut random, len)).collect();
    let mut buffers: Vec<_> =
        model.iter().map(|values| DeviceBuffer::from_slice(&streams[0], values).unwrap()).collect();
    for _ in 0..300 {
        let stream = random.choice(&streams).unwrap();
        let (from, to) = (random.usize(..4), random.usize(..4));
        let at = random.usize(..len);
        match random.u32(..4) {
            0 if from != to => {
                let [x, y] = buffers.get_disjoint_mut([from, to]).unwrap();
                stream.launch((&*x, y), |stream, (x, mut y)| raw_copy(stream, &x, &mut y)).unwrap();
                model[to] = model[from].clone();
            }
            1 => {
                let byte = random.u8(..);
                stream.launch(buffers[to].slice_mut(at..), |stream, mut y| raw_fill(stream, &mut y, byte)).unwrap();
                model[to][at..].fill(u32::from_ne_bytes([byte; 4]));
            }
            2 => {
                let (front, back) = buffers[to].split_at_mut(at);
                let launched = stream.launch_many(2, [front, back], |stream, halves| {
                    for (mut half, byte) in halves.into_iter().zip([1, 2]) {
                        if !half.is_empty() {
                            raw_fill(stream, &mut half, byte);
                        }
                    }
                });
                launched.unwrap();
                model[to][..at].fill(0x0101_0101);
                model[to][at..].fill(0x0202_0202);
            }
            _ => {
                let value = random.u32(..);
                buffers[to].fill(stream, value).unwrap();
                model[to].fill(value);
            }
        }
    }
    for (buffer, values) in buffers.iter().zip(&model) {
        assert!(buffer.to_vec(random.choice(&streams).unwrap()).unwrap() == *values);
    }
}

#[test]
fn all_that_holds_memory_can_be_lent() {
    let stream = stream();
    let mut x = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3, 4]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeroed(&stream, 4).unwrap();
    let (mut pinned, empty) = (PinnedBuffer::from_slice(&[5u32, 6]).unwrap(), PinnedBuffer::<f64>::zeroed(0).unwrap());
    let (px, py, pp) = (x.as_raw(), y.as_raw(), pinned.as_raw());
    let at = |ptr: *mut c_void, elements: usize| ptr.wrapping_byte_add(4 * elements).cast::<u32>();
    let seen = stream.launch((&x, &mut y, x.slice(1..), &pinned, &empty), |_, (x, mut y, part, pinned, empty)| {
        assert!(empty.is_empty() && empty.as_ptr().is_null() && !x.is_empty() && !y.is_empty());
        assert_eq!([x.len(), y.len(), part.len(), pinned.len(), empty.len()], [4, 4, 3, 2, 0]);
        (x.as_ptr().addr(), y.as_mut_ptr().addr(), part.as_ptr().addr(), pinned.as_ptr().addr())
    });
    assert_eq!(seen.unwrap(), (px.addr(), py.addr(), at(px, 1).addr(), pp.addr()));
    let mut part = x.slice_mut(2..);
    stream.launch(&part, |_, part| assert_eq!((part.len(), part.as_ptr().cast_mut()), (2, at(px, 2)))).unwrap();
    stream.launch(&mut part, |_, mut part| assert_eq!((part.len(), part.as_mut_ptr()), (2, at(px, 2)))).unwrap();
    let all = vec![&x, &y];
    stream
        .launch(all, |_, all| {
            assert_eq!((all[0].as_ptr(), all[1].as_ptr()), (px.cast_const().cast(), py.cast_const().cast()))
        })
        .unwrap();
    assert_eq!(
        stream.launch((), |stream, ()| (stream.as_raw(), stream.device())).unwrap(),
        (stream.as_raw(), device())
    );
    // Pinned memory is read by a stream, and then by the host.
    let gate = Gate::close(&stream);
    stream.launch((&x, &mut pinned), |stream, (x, mut pinned)| raw_copy(stream, &x, &mut pinned)).unwrap();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| pinned.as_slice().unwrap().to_vec());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!host.is_finished());
        gate.open();
        assert_eq!(host.join().unwrap(), [1, 2]);
    });
}

/// A launch without a code of its own leaves it with the thread, where the next call of this crate may forget it.
#[test]
fn an_error_that_is_left_behind_is_told() {
    let stream = stream();
    // SAFETY: there is no such device.
    let fail = || unsafe { sys::cudaSetDevice(9999) };
    // That of an earlier call is nobody's.
    assert_ne!(fail(), sys::cudaError::cudaSuccess);
    assert_eq!(stream.launch((), |_, ()| 7).unwrap(), 7);
    let mut x = DeviceBuffer::<u32>::zeroed(&stream, 100).unwrap();
    let error = stream
        .launch_many(2, &mut x, |stream, mut x| {
            raw_fill(stream, &mut x, 1);
            assert_ne!(fail(), sys::cudaError::cudaSuccess);
        })
        .unwrap_err();
    assert!(
        matches!(&error, Error::Cuda { operation: "Stream::launch_many", code: CudaCode(101), name, .. } if name == "cudaErrorInvalidDevice"),
        "{error:?}"
    );
    // What was enqueued counts all the same, and the error was told once.
    assert_eq!(x.to_vec(&stream).unwrap(), [0x0101_0101; 100]);
    // That something is not done is no error.
    let gate = Gate::close(&stream);
    // SAFETY: asks how far the stream is.
    let code = stream.launch(&x, |stream, _| unsafe { sys::cudaStreamQuery(stream.as_raw()) }).unwrap();
    assert_eq!(code, sys::cudaError::cudaErrorNotReady);
    gate.open();
}

#[test]
fn uses_count_also_where_the_closure_panics() {
    let (a, b) = (stream(), stream());
    let x = DeviceBuffer::from_slice(&a, &[3u32; 100]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeroed(&a, 100).unwrap();
    a.synchronize().unwrap();
    let gate = Gate::close(&a);
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        a.launch((&x, &mut y), |stream, (x, mut y)| -> () {
            raw_copy(stream, &x, &mut y);
            panic!("after the launch");
        })
    }));
    assert!(thrown.is_err());
    drop(x);
    let mut z = DeviceBuffer::<u32>::zeroed(&b, 100).unwrap();
    z.copy_from(&b, &y).unwrap();
    assert!(!b.query().unwrap());
    gate.open();
    assert_eq!(z.to_vec(&b).unwrap(), [3; 100]);
}

#[test]
fn the_device_of_the_stream_is_current_within() {
    let Some((a, b)) = two_devices() else { return };
    let _current = a.set_current().unwrap();
    let current = || {
        let mut ordinal = -1;
        // SAFETY: writes an integer to the place given.
        assert_eq!(unsafe { sys::cudaGetDevice(&raw mut ordinal) }, sys::cudaError::cudaSuccess);
        ordinal
    };
    let stream = Stream::new(b).unwrap();
    assert_eq!(stream.launch((), |stream, ()| (current(), stream.device())).unwrap(), (b.ordinal(), b));
    assert_eq!(current(), a.ordinal());
}

#[test]
fn what_cannot_be_launched_is_refused() {
    let stream = stream();
    let mut x = DeviceBuffer::<u32>::zeroed(&stream, 10).unwrap();
    for launches in [0, 97, usize::MAX] {
        let error = stream.launch_many(launches, &mut x, |_, _| panic!("ran")).map(drop).expect_err("taken");
        let text = error.to_string();
        assert!(
            text.contains("Stream::launch_many: launches: expected 1 to 96, got ")
                && text.ends_with(&launches.to_string()),
            "{text}"
        );
    }
    stream.launch_many(96, &mut x, |stream, mut x| (0..96).for_each(|at| raw_fill(stream, &mut x, at))).unwrap();
    assert_eq!(x.to_vec(&stream).unwrap(), [0x5f5f_5f5f; 10]);
    // CUDA must not be called within a host function.
    let (say, said) = channel();
    let other = crate::stream();
    stream.launch_host(move || drop(say.send(other.launch((), |_, ()| ()).map(drop)))).unwrap();
    assert!(matches!(said.recv_timeout(LONG).unwrap(), Err(Error::InvalidUsage { .. })));
    // Nobody knows when what is captured is done.
    let captured = crate::stream();
    let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
    let mut graph = ptr::null_mut();
    // SAFETY: the stream is alive, and the graph is destroyed once.
    unsafe {
        assert_eq!(sys::cudaStreamBeginCapture(captured.as_raw(), mode), sys::cudaError::cudaSuccess);
        let refused = captured.launch(&mut x, |_, _| panic!("ran"));
        assert!(matches!(refused, Err(Error::InvalidUsage { .. })), "{refused:?}");
        assert_eq!(sys::cudaStreamEndCapture(captured.as_raw(), &raw mut graph), sys::cudaError::cudaSuccess);
        assert_eq!(sys::cudaGraphDestroy(graph), sys::cudaError::cudaSuccess);
    }
}

/// A kernel of the tests' own, from PTX.
#[test]
fn a_kernel_is_launched_between_copies() {
    if gpucomm::backend() == Backend::Emulator {
        println!("skipped: the emulator runs no kernels");
        return;
    }
    let (a, b) = (stream(), stream());
    let axpy = Kernel::load(device(), concat!(include_str!("../../examples/axpy.ptx"), "\0"), c"axpy");
    let len = 100_000;
    let x = DeviceBuffer::from_slice(&a, &vec![2f32; len]).unwrap();
    let mut y = DeviceBuffer::<f32>::zeroed(&b, len).unwrap();
    for round in 0..10 {
        let stream = if round % 2 == 0 { &a } else { &b };
        let launched = stream.launch((&x, &mut y), |stream, (x, mut y)| {
            let (mut n, mut factor, mut x, mut y) = (x.len() as u64, 0.5f32, x.as_ptr(), y.as_mut_ptr());
            let mut arguments =
                [(&raw mut n).cast(), (&raw mut factor).cast(), (&raw mut x).cast(), (&raw mut y).cast::<c_void>()];
            // SAFETY: these are its arguments, and it uses `n` elements of both.
            unsafe { axpy.launch(len.div_ceil(128), 128, stream.as_raw(), &mut arguments) };
        });
        launched.unwrap();
    }
    assert!(y.to_vec(&a).unwrap().iter().all(|value| *value == 10.0));
}

/// Memory that is on another device is ordered as well; whether a kernel reaches it is for the caller to know.
#[test]
fn memory_of_two_devices_is_lent() {
    let Some((a, b)) = two_devices() else { return };
    let (here, there) = (Stream::new(a).unwrap(), Stream::new(b).unwrap());
    let mut x = DeviceBuffer::<u32>::zeroed(&there, 50).unwrap();
    let mut y = DeviceBuffer::<u32>::zeroed(&here, 50).unwrap();
    there.synchronize().unwrap();
    let gate = Gate::close(&there);
    x.fill(&there, 5).unwrap();
    let copied = here.launch((&x, &mut y), |stream, (x, mut y)| {
        let (to, from): (Device, Device) = (a, b);
        // SAFETY: both have that many bytes.
        unsafe {
            let (to_ptr, from_ptr) = (y.as_mut_ptr().cast(), x.as_ptr().cast());
            sys::cudaMemcpyPeerAsync(to_ptr, to.ordinal(), from_ptr, from.ordinal(), 200, stream.as_raw())
        }
    });
    assert_eq!(copied.unwrap(), sys::cudaError::cudaSuccess);
    assert!(!here.query().unwrap());
    gate.open();
    assert_eq!(y.to_vec(&here).unwrap(), [5; 50]);
}
