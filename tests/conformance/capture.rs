//! Stream captures of other libraries, which nothing of ours may spoil.

use std::sync::Barrier;
use std::time::Duration;

use gpucomm::nccl::AbortOutcome;
use gpucomm::{
    Clique, Device, DeviceBuffer, Event, InPlace, PinnedBuffer, ReduceOp, Result, Stream, UniqueId, group, sys,
};

use crate::split::sum;
use crate::support::process::{Role, spawn};
use crate::support::{Rig, assert_names, rank_counts, slower, still_works, watched};

const CHILD: &str = "capture::child";
const ROLE: &str = "captures";
const WAITS: &str = "waits";

/// What the child process does: the threads of other tests would spoil its capture.
#[test]
#[ignore = "the body of a child process"]
fn child() {
    if Role::of_this_process(ROLE).is_some() {
        captures().unwrap();
        println!("finished");
    }
    if Role::of_this_process(WAITS).is_some() {
        waits_beside_a_capture().unwrap();
        println!("finished");
    }
}

/// Runs `body` while a stream of `device` is being captured, in the mode in which calls of any thread spoil that.
fn beside_a_capture(device: Device, body: impl FnOnce()) -> Result<()> {
    let others = Stream::new(device)?;
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, nothing else uses it, and the graph is destroyed once.
    let ended = unsafe {
        let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
        assert_eq!(sys::cudaStreamBeginCapture(others.as_raw(), mode), sys::cudaError::cudaSuccess);
        body();
        let ended = sys::cudaStreamEndCapture(others.as_raw(), &raw mut graph);
        if !graph.is_null() {
            sys::cudaGraphDestroy(graph);
        }
        ended
    };
    assert_eq!(ended, sys::cudaError::cudaSuccess, "the capture was spoilt");
    Ok(())
}

/// Threads of a user that have nothing to do with a capture wait, allocate and give memory back.
fn waits_beside_a_capture() -> Result<()> {
    let device = Device::new(0)?;
    let stream = Stream::new(device)?;
    let mut x = DeviceBuffer::from_slice(&stream, &[1u32; 100])?;
    drop(PinnedBuffer::<u8>::zeroed(100)?);
    let clique = Clique::init_all(&[device])?;
    let comm = &clique.ranks()[0];
    drop(comm.alloc::<u32>(&stream, 100)?);
    stream.synchronize()?;
    type Work<'a> = (&'static str, Box<dyn FnMut() -> Result<()> + Send + 'a>);
    let works: [Work<'_>; 7] = [
        ("PinnedBuffer::zeroed", Box::new(|| PinnedBuffer::<u8>::zeroed(3 << 20).map(drop))),
        (
            "Communicator::alloc",
            Box::new(|| {
                let mut x = comm.alloc::<u32>(&stream, 100)?;
                x.fill(&stream, 5)?;
                assert_eq!(x.to_vec(&stream)?, [5; 100]);
                Ok(())
            }),
        ),
        ("trim_pinned", Box::new(|| gpucomm::cuda::trim_pinned().map(drop))),
        (
            "to_vec",
            Box::new(|| {
                x.fill(&stream, 7)?;
                assert_eq!(x.to_vec(&stream)?, [7; 100]);
                Ok(())
            }),
        ),
        ("synchronize", Box::new(|| stream.synchronize())),
        ("query", Box::new(|| stream.query().map(drop))),
        (
            "Event",
            Box::new(|| {
                let event = Event::new(device)?;
                event.record(&stream)?;
                event.synchronize()
            }),
        ),
    ];
    for (what, mut work) in works {
        beside_a_capture(device, || {
            let done = std::thread::scope(|scope| scope.spawn(&mut work).join().expect(what));
            done.unwrap_or_else(|error| panic!("{what}: {error}"));
        })?;
    }
    Ok(())
}

/// Another library captures on a stream of its own, in the mode in which calls of any thread spoil it, while our threads look
/// after memory that is still in use and a communicator that hangs.
fn captures() -> Result<()> {
    let rig = Rig::new(2);
    // While a capture goes on, rank 1 has nothing to do with CUDA.
    let ready = Barrier::new(2);
    rig.try_run(|comm, stream| {
        let mut x = comm.alloc_local::<i32>(stream, 100)?;
        if comm.rank() != 0 {
            drop(x);
            ready.wait();
            return Ok(());
        }
        x.fill(stream, 1)?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        drop(x);
        ready.wait();
        beside_a_capture(comm.device(), || std::thread::sleep(Duration::from_millis(300)))?;
        assert_ne!(comm.aborter().abort("rank 1 does not come"), AbortOutcome::StillRunning);
        stream.synchronize_timeout(slower(10.0)).expect_err("an operation that was aborted");
        Ok(())
    })?;
    drop(rig);
    still_works(2);
    Ok(())
}

/// One of the streams of a group is captured, not the first: nothing is asked of NCCL.
#[test]
fn a_group_on_a_stream_that_is_captured() {
    watched(60.0, || {
        for ranks in rank_counts(&[1]) {
            let rig = Rig::new(ranks);
            let comm = rig.clique.rank(0);
            let [first, captured] = [(); 2].map(|()| Stream::new(comm.device()).unwrap());
            let mut x = DeviceBuffer::from_slice(&first, &[3u32; 9]).unwrap();
            let mut y = DeviceBuffer::from_slice(&captured, &[4u32; 9]).unwrap();
            captured.synchronize().unwrap();
            let mut graph = std::ptr::null_mut();
            // SAFETY: the stream is alive, and the graph is destroyed once.
            let ended = unsafe {
                let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
                assert_eq!(sys::cudaStreamBeginCapture(captured.as_raw(), mode), sys::cudaError::cudaSuccess);
                // Of nothing, too: what is enqueued there would be that memory is ordered.
                for len in [9, 0] {
                    let error = group(|group| {
                        group.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, &first)?;
                        group.all_reduce(comm, InPlace(y.slice_mut(..len)), ReduceOp::Sum, &captured)
                    });
                    assert_names(&error.expect_err("a stream that is captured"), &["captured"]);
                }
                let ended = sys::cudaStreamEndCapture(captured.as_raw(), &raw mut graph);
                if !graph.is_null() {
                    sys::cudaGraphDestroy(graph);
                }
                ended
            };
            assert_eq!(ended, sys::cudaError::cudaSuccess, "the capture was spoilt");
            assert!(comm.is_active());
            assert_eq!((x.to_vec(&first).unwrap(), y.to_vec(&captured).unwrap()), (vec![3; 9], vec![4; 9]));
            sum(comm, &captured).unwrap();
            rig.close();
        }
    });
}

fn in_a_child(role: &str) {
    let end = spawn(CHILD, role, (0, 1), &UniqueId::new().unwrap(), &[]).finish(slower(50.0));
    end.assert_success();
    assert!(end.text.contains("finished"), "{}", end.text);
}

#[test]
fn our_threads_leave_captures_of_others_alone() {
    watched(60.0, || {
        if !rank_counts(&[2]).is_empty() {
            in_a_child(ROLE);
        }
    });
}

#[test]
fn waits_leave_captures_of_others_alone() {
    watched(60.0, || in_a_child(WAITS));
}

/// What a stream has done that others capture, nobody can ask: that is what a split says which waits for it.
#[test]
fn a_split_behind_a_capture() {
    watched(30.0, || {
        let clique = Clique::init_all(&[Device::new(0).unwrap()]).unwrap();
        let comm = clique.rank(0);
        let stream = Stream::new(comm.device()).unwrap();
        comm.set_timeout(slower(0.5));
        sum(comm, &stream).unwrap();
        let (raw, mut graph) = (stream.as_raw(), std::ptr::null_mut());
        // SAFETY: the stream is alive, and nothing is enqueued there meanwhile.
        let begun =
            unsafe { sys::cudaStreamBeginCapture(raw, sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed) };
        assert_eq!(begun, sys::cudaError::cudaSuccess);
        let error = comm.split(Some(0), 0).expect_err("nobody knows whether the stream is done");
        assert_names(&error, &["split", "rank 0 has used a stream that is being captured"]);
        // SAFETY: ends what was begun above; the graph is destroyed once.
        unsafe {
            assert_eq!(sys::cudaStreamEndCapture(raw, &raw mut graph), sys::cudaError::cudaSuccess);
            assert_eq!(sys::cudaGraphDestroy(graph), sys::cudaError::cudaSuccess);
        }
        sum(&comm.split(Some(0), 0).unwrap().expect("a part"), &stream).unwrap();
    });
}
