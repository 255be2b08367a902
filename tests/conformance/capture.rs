//! Stream captures of other libraries, which our own threads must not spoil.

use std::sync::Barrier;
use std::time::Duration;

use gpucomm::nccl::AbortOutcome;
use gpucomm::{InPlace, ReduceOp, Result, Stream, UniqueId, sys};

use crate::support::process::{Role, spawn};
use crate::support::{Rig, rank_counts, slower, still_works, watched};

const CHILD: &str = "capture::child";
const ROLE: &str = "captures";

/// What the child process does: the threads of other tests would spoil its capture.
#[test]
#[ignore = "the body of a child process"]
fn child() {
    if Role::of_this_process(ROLE).is_some() {
        captures().unwrap();
        println!("finished");
    }
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
        let others = Stream::new(comm.device())?;
        x.fill(stream, 1)?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        drop(x);
        ready.wait();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is alive, nothing else uses it, and the graph is destroyed once.
        let ended = unsafe {
            let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
            assert_eq!(sys::cudaStreamBeginCapture(others.as_raw(), mode), sys::cudaError::cudaSuccess);
            std::thread::sleep(Duration::from_millis(300));
            let ended = sys::cudaStreamEndCapture(others.as_raw(), &raw mut graph);
            if !graph.is_null() {
                sys::cudaGraphDestroy(graph);
            }
            ended
        };
        assert_eq!(ended, sys::cudaError::cudaSuccess, "one of our threads has spoilt the capture");
        assert_ne!(comm.aborter().abort("rank 1 does not come"), AbortOutcome::StillRunning);
        stream.wait(slower(10.0)).expect_err("an operation that was aborted");
        Ok(())
    })?;
    drop(rig);
    still_works(2);
    Ok(())
}

#[test]
fn our_threads_leave_captures_of_others_alone() {
    watched(60.0, || {
        if !rank_counts(&[2]).is_empty() {
            let end = spawn(CHILD, ROLE, (0, 1), &UniqueId::new().unwrap(), &[]).finish(slower(50.0));
            end.assert_success();
            assert!(end.text.contains("finished"), "{}", end.text);
        }
    });
}
