//! Memory and streams of cudarc in operations, on the emulator, which looks whether all work that conflicts is in some order.

mod capture;
#[allow(dead_code)]
#[path = "../cuda/child.rs"]
mod child;
mod driver;
#[allow(dead_code)]
#[path = "../../examples/cudarc.rs"]
mod example;
mod order;

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use gpucomm::cuda::Slice;
use gpucomm::cuda::cudarc::SharedStream;
use gpucomm::{Clique, CudaCode, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

/// A context, two streams of it, and these as this crate has them.
fn two_streams() -> (Arc<CudaContext>, [Arc<CudaStream>; 2], [SharedStream; 2]) {
    driver::install();
    let context = CudaContext::new(0).unwrap();
    let theirs = [context.new_stream().unwrap(), context.new_stream().unwrap()];
    let shared = [SharedStream::new(&theirs[0]).unwrap(), SharedStream::new(&theirs[1]).unwrap()];
    (context, theirs, shared)
}

/// Copies of this keep a stream busy for a while.
fn late(stream: &Arc<CudaStream>, slow: &mut (CudaSlice<u8>, CudaSlice<u8>)) {
    for _ in 0..4 {
        stream.memcpy_dtod(&slow.0, &mut slow.1).unwrap();
    }
}

fn slow(stream: &Arc<CudaStream>) -> (CudaSlice<u8>, CudaSlice<u8>) {
    (stream.alloc_zeros(1 << 22).unwrap(), stream.alloc_zeros(1 << 22).unwrap())
}

#[test]
fn a_thousand_rounds_are_right() {
    // NCCL waits for the device where it ends, behind what other tests hold up, and they for NCCL.
    child::alone("a_thousand_rounds_are_right", || {
        driver::install();
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        example::run(1000, 501, seed).unwrap();
    });
}

#[test]
fn what_one_library_enqueues_the_other_comes_after() {
    let (_context, theirs, shared) = two_streams();
    let mut slow = slow(&theirs[0]);
    let values: Vec<i32> = (0..1001).collect();
    let mut x = theirs[0].alloc_zeros::<i32>(values.len()).unwrap();
    let mut own = DeviceBuffer::<i32>::from_slice(&shared[1], &values).unwrap();
    for _ in 0..10 {
        // Ours behind theirs.
        late(&theirs[0], &mut slow);
        theirs[0].memcpy_htod(&values, &mut x).unwrap();
        shared[1].lend(&x, |x| own.copy_from(&shared[1], x)).unwrap();
        assert_eq!(own.to_vec(&shared[1]).unwrap(), values);
        // Theirs behind ours, on either stream.
        late(&theirs[0], &mut slow);
        shared[0].lend(&mut x, |mut x| x.fill(&shared[0], -5)).unwrap();
        assert_eq!(theirs[1].clone_dtoh(&x).unwrap(), [-5; 1001]);
    }
}

#[test]
fn what_is_lent_may_be_used_on_any_stream() {
    let (_context, theirs, shared) = two_streams();
    let own = Stream::new(Device::new(0).unwrap()).unwrap();
    let mut slow = slow(&theirs[0]);
    let mut x = theirs[0].alloc_zeros::<u8>(999).unwrap();
    for round in 1..20 {
        late(&theirs[0], &mut slow);
        theirs[0].memset_zeros(&mut x).unwrap();
        shared[0]
            .lend(&mut x, |mut x| {
                x.fill(&own, 2 * round)?;
                x.slice_mut(500..).fill(&shared[1], 2 * round + 1)
            })
            .unwrap();
        let got = theirs[0].clone_dtoh(&x).unwrap();
        assert_eq!((&got[..500], &got[500..]), (&[2 * round; 500][..], &[2 * round + 1; 499][..]));
    }
}

#[test]
fn parts_of_one_slice_are_lent_on_two_streams_at_a_time() {
    let (_context, theirs, shared) = two_streams();
    let mut slow = [slow(&theirs[0]), slow(&theirs[1])];
    let mut x = theirs[0].alloc_zeros::<u32>(1000).unwrap();
    for round in 0..10 {
        let (mut front, mut back) = x.split_at_mut(333);
        shared[0]
            .lend(front.slice_mut(..), |mut front| {
                shared[1].lend(back.slice_mut(..), |mut back| {
                    late(&theirs[1], &mut slow[1]);
                    back.fill(&shared[1], round)
                })?;
                late(&theirs[0], &mut slow[0]);
                front.fill(&shared[0], round + 1)
            })
            .unwrap();
        // One event for both parts.
        let got = theirs[round as usize % 2].clone_dtoh(&x).unwrap();
        assert!(got[..333].iter().all(|value| *value == round + 1) && got[333..].iter().all(|value| *value == round));
    }
}

#[test]
fn where_cudarc_has_one_stream_and_no_events_that_stream_is_waited_for() {
    driver::install();
    let context = CudaContext::new(1).unwrap();
    let theirs = context.default_stream();
    // Another object for the same context, which has streams.
    let other = CudaContext::new(1).unwrap().new_stream().unwrap();
    let shared = SharedStream::new(&other).unwrap();
    assert!(!context.is_managing_stream_synchronization());
    let mut slow = slow(&theirs);
    let mut x = theirs.alloc_zeros::<i64>(77).unwrap();
    for round in 0..10 {
        late(&theirs, &mut slow);
        theirs.memcpy_htod(&[round; 77], &mut x).unwrap();
        let got = shared.lend(&mut x, |mut x| {
            let got = x.as_slice().to_vec(&shared)?;
            x.fill(&shared, -1)?;
            Ok::<_, Error>(got)
        });
        assert_eq!(got.unwrap(), [round; 77]);
        assert_eq!(theirs.clone_dtoh(&x).unwrap(), [-1; 77]);
    }
    // And the default stream as a shared one.
    let shared = SharedStream::new(&theirs).unwrap();
    assert_eq!(*shared, Stream::null(Device::new(1).unwrap()));
    shared.lend(&mut x, |mut x| x.fill(&shared, 8)).unwrap();
    assert_eq!(theirs.clone_dtoh(&x).unwrap(), [8; 77]);
}

#[test]
fn what_is_dropped_is_freed_behind_its_uses() {
    let (_context, theirs, shared) = two_streams();
    let mut slow = slow(&theirs[1]);
    for len in [1usize, 1000, 100_001] {
        let mut x = theirs[0].alloc_zeros::<u64>(len).unwrap();
        late(&theirs[1], &mut slow);
        shared[1].lend(&mut x, |mut x| x.fill(&shared[1], 3)).unwrap();
        drop(x);
        let y = theirs[0].alloc_zeros::<u64>(len).unwrap();
        assert_eq!(theirs[0].clone_dtoh(&y).unwrap(), vec![0; len]);
    }
}

#[test]
fn uses_count_where_the_closure_fails_or_panics() {
    let (_context, theirs, shared) = two_streams();
    let mut slow = slow(&theirs[0]);
    let mut x = theirs[0].alloc_zeros::<u8>(50).unwrap();
    let refused = || Error::InvalidUsage { operation: "a test", reason: "so it is".to_owned() };
    late(&theirs[0], &mut slow);
    let result: Result<()> = shared[0].lend(&mut x, |mut x| {
        x.fill(&shared[0], 1)?;
        Err(refused())
    });
    assert!(matches!(result, Err(Error::InvalidUsage { operation: "a test", .. })));
    assert_eq!(theirs[1].clone_dtoh(&x).unwrap(), [1; 50]);
    late(&theirs[0], &mut slow);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shared[0].lend(&mut x, |mut x| {
            x.fill(&shared[0], 2).unwrap();
            if true { panic!("on purpose") } else { Ok::<_, Error>(()) }
        })
    }));
    assert!(panic.is_err());
    assert_eq!(theirs[1].clone_dtoh(&x).unwrap(), [2; 50]);
}

#[test]
fn what_cudarc_could_tell_nobody_is_told() {
    let (context, theirs, shared) = two_streams();
    let x = theirs[0].alloc_zeros::<f32>(4).unwrap();
    let missed = cudarc::driver::sys::CUresult::CUDA_ERROR_NOT_PERMITTED;
    context.record_err::<()>(Err(cudarc::driver::DriverError(missed)));
    let error = shared[0].lend(&x, never).unwrap_err();
    assert!(matches!(error, Error::Cuda { operation: "cudarc", code: CudaCode(800), .. }), "{error}");
    assert_eq!(shared[0].lend(&x, |x| x.to_vec(&shared[0])).unwrap(), [0.0; 4]);
}

/// Ends a capture that cudarc has begun.
fn end_capture(stream: &CudaStream) {
    let mut graph = std::ptr::null_mut();
    // SAFETY: ends the capture that was begun.
    let code = unsafe { gpucomm::sys::cudaStreamEndCapture(stream.cu_stream().cast(), &raw mut graph) };
    assert_eq!(code, gpucomm::sys::cudaError::cudaSuccess);
    // SAFETY: the graph that has come of it.
    assert_eq!(unsafe { gpucomm::sys::cudaGraphDestroy(graph) }, gpucomm::sys::cudaError::cudaSuccess);
}

fn never(_: Slice<'_, f32>) -> Result<()> {
    panic!("this was lent");
}

#[test]
fn what_cannot_be_lent_is_refused() {
    let (context, theirs, shared) = two_streams();
    let elsewhere = CudaContext::new(1).unwrap().new_stream().unwrap();
    let far = elsewhere.alloc_zeros::<f32>(4).unwrap();
    let error = shared[0].lend(&far, never).unwrap_err().to_string();
    assert!(error.contains("memory of device 0") && error.contains("memory of device 1"), "{error}");
    let error = SharedStream::new(&context.per_thread_stream()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { what: "stream", .. }), "{error}");
    // Another one in each thread: who frees it may be one that waits for nothing.
    // SAFETY: nobody reads it.
    if let Ok(of_thread) = unsafe { context.per_thread_stream().alloc::<f32>(4) } {
        let error = shared[0].lend(&of_thread, never).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { what: "memory", .. }), "{error}");
        std::mem::forget(of_thread);
    }
    // While cudarc captures it.
    let near = theirs[0].alloc_zeros::<f32>(4).unwrap();
    theirs[0].synchronize().unwrap();
    theirs[0].begin_capture(cudarc::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    let error = shared[0].lend(&near, never).unwrap_err();
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error}");
    end_capture(&theirs[0]);
    assert_eq!(shared[0].lend(&near, |x| x.to_vec(&shared[0])).unwrap(), [0.0; 4]);
}

#[test]
fn what_is_lent_is_kept_by_nothing() {
    // NCCL waits for the device where it ends, behind what other tests hold up, and they for NCCL.
    child::alone("what_is_lent_is_kept_by_nothing", || {
        let (_context, theirs, shared) = two_streams();
        let clique = Clique::init_all(&[Device::new(0).unwrap()]).unwrap();
        let comm = &clique.ranks()[0];
        let own = Stream::new(Device::new(0).unwrap()).unwrap();
        let mut x = theirs[0].alloc_zeros::<f32>(64).unwrap();
        let captured = shared[0]
            .lend(&mut x, |mut x| own.capture(|lane| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, lane)).map(drop));
        assert!(matches!(captured, Err(Error::InvalidUsage { .. })), "{captured:?}");
        shared[0].lend(&mut x, |mut x| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &shared[0])).unwrap();
        shared[0].synchronize().unwrap();
    });
}

#[test]
fn tuples_arrays_vectors_and_views_of_no_elements_are_lent() {
    let (_context, theirs, shared) = two_streams();
    let mut x = theirs[0].clone_htod(&[1u16, 2, 3, 4, 5]).unwrap();
    let mut y = theirs[1].alloc_zeros::<u16>(5).unwrap();
    shared[0].lend((x.slice(1..4), vec![y.slice_mut(2..)]), |(x, mut y)| y[0].copy_from(&shared[0], x)).unwrap();
    assert_eq!(theirs[1].clone_dtoh(&y).unwrap(), [0, 0, 2, 3, 4]);
    let lens = shared[1].lend([&x, &y], |both| Ok::<_, Error>(both.map(|one| one.len()))).unwrap();
    assert_eq!(lens, [5, 5]);
    let empty = shared[1].lend(x.slice_mut(2..2), |mut x| x.fill(&shared[1], 1).map(|()| x.is_empty()));
    assert!(empty.unwrap());
    // As often as one likes, it is the same stream.
    for _ in 0..1000 {
        assert_eq!(*SharedStream::new(&theirs[0]).unwrap(), *shared[0]);
    }
}

/// Both calls of a nest read, and the inner one ends first.
#[test]
fn one_slice_is_lent_twice_to_be_read() {
    let (_context, theirs, shared) = two_streams();
    let mut slow = slow(&theirs[0]);
    let mut x = theirs[0].alloc_zeros::<u32>(1000).unwrap();
    for round in 0..10u32 {
        late(&theirs[0], &mut slow);
        theirs[0].memcpy_htod(&[round; 1000], &mut x).unwrap();
        let copies = shared[0].lend(&x, |first| {
            let inner = shared[1].lend(&x, |second| {
                let mut copy = DeviceBuffer::<u32>::zeroed(&shared[1], 1000)?;
                copy.copy_from(&shared[1], second)?;
                Ok::<_, Error>(copy)
            })?;
            let mut copy = DeviceBuffer::<u32>::zeroed(&shared[0], 1000)?;
            copy.copy_from(&shared[0], first)?;
            Ok::<_, Error>([copy, inner])
        });
        let copies = copies.unwrap();
        // Written again behind both.
        theirs[1].memset_zeros(&mut x).unwrap();
        for copy in copies {
            assert_eq!(copy.to_vec(&shared[0]).unwrap(), [round; 1000]);
        }
        assert_eq!(theirs[0].clone_dtoh(&x).unwrap(), [0; 1000]);
        let pair =
            shared[1].lend((&x, &x), |(first, second)| Ok::<_, Error>((first.to_vec(&shared[1])?, second.len())));
        assert_eq!(pair.unwrap(), (vec![0; 1000], 1000));
    }
}

/// Memory, its stream, and what this crate has of the stream are dropped in each order, by other threads as well.
#[test]
fn drops_in_each_order_on_other_threads() {
    let (context, _, shared) = two_streams();
    for round in 0..24u8 {
        let theirs = context.new_stream().unwrap();
        let own = SharedStream::new(&theirs).unwrap();
        let mut x = theirs.alloc_zeros::<u8>(1 << 16).unwrap();
        own.lend(&mut x, |mut x| x.fill(&shared[1], round)).unwrap();
        if round % 2 == 0 {
            assert_eq!(theirs.clone_dtoh(&x).unwrap(), vec![round; 1 << 16]);
        }
        let mut things: Vec<Box<dyn std::any::Any + Send>> = vec![Box::new(theirs), Box::new(own), Box::new(x)];
        for left in [round / 8 % 3, round / 4 % 2, 0] {
            let thing = things.remove(usize::from(left));
            if round % 4 < 2 { drop(thing) } else { std::thread::spawn(move || drop(thing)).join().unwrap() }
        }
    }
    shared[1].synchronize().unwrap();
}

#[test]
fn bools_are_lent() {
    let (_context, theirs, shared) = two_streams();
    let mut x = theirs[0].alloc_zeros::<bool>(64).unwrap();
    shared[0].lend(x.slice_mut(8..), |mut x| x.fill(&shared[0], true)).unwrap();
    let got = theirs[1].clone_dtoh(&x).unwrap();
    assert!(got[..8].iter().all(|value| !value) && got[8..].iter().all(|value| *value));
}

/// The memory may go before the graph does.
#[test]
fn a_graph_of_what_was_lent_is_refused() {
    let (_context, theirs, shared) = two_streams();
    let mut x = theirs[0].alloc_zeros::<u32>(1000).unwrap();
    let graph = shared[0].lend(&mut x, |mut x| shared[1].capture(|stream| x.fill(stream, 11)));
    let error = graph.map(drop).unwrap_err();
    assert!(error.to_string().contains("memory that a graph uses lives as long as it does"), "{error}");
    assert_eq!(theirs[1].clone_dtoh(&x).unwrap(), [0; 1000]);
}
