//! Streams that are being captured when memory is given back: in no order with what uses it.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED;
use gpucomm::{Error, Result};

use crate::order::gate;
use crate::{end_capture, never, two_streams};

const ROLE: &str = "GPUCOMM_TEST_CUDARC_ROLE";

/// Ends a capture after a while.
fn end_later(stream: &Arc<CudaStream>) {
    let stream = Arc::clone(stream);
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        end_capture(&stream);
    });
}

#[test]
fn what_is_given_back_meanwhile_is_used_no_more() {
    let (_context, theirs, shared) = two_streams();
    let mut x = theirs[1].alloc_zeros::<u16>(777).unwrap();
    let result: Result<()> = shared[0].lend(&mut x, |mut x| {
        let gate = gate(&shared[1])?;
        x.fill(&shared[1], 3)?;
        theirs[0].begin_capture(RELAXED).unwrap();
        end_later(&theirs[0]);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(400));
            drop(gate);
        });
        Ok(())
    });
    assert!(matches!(result, Err(Error::InvalidUsage { .. })), "{result:?}");
    assert!(shared[1].query().unwrap());
    assert_eq!(theirs[1].clone_dtoh(&x).unwrap(), [3; 777]);
}

#[test]
fn the_process_ends_where_nobody_knows_when_that_is() {
    const TEST: &str = "capture::the_process_ends_where_nobody_knows_when_that_is";
    if std::env::var_os(ROLE).is_some() {
        let (_context, theirs, shared) = two_streams();
        let mut x = theirs[1].alloc_zeros::<u16>(777).unwrap();
        let result: Result<()> = shared[0].lend(&mut x, |mut x| {
            x.fill(&shared[0], 3)?;
            theirs[0].begin_capture(RELAXED).unwrap();
            Ok(())
        });
        println!("given back: {result:?}");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture"]).env(ROLE, "").env("GPUCOMM_TIMEOUT", "1s");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    assert!(said.contains("SharedStream::lend") && said.contains("cannot be given back after 1s"), "{said}");
}

#[test]
fn the_home_of_memory_is_not_captured_either() {
    let (_context, theirs, shared) = two_streams();
    let x = theirs[1].alloc_zeros::<f32>(4).unwrap();
    theirs[1].synchronize().unwrap();
    theirs[1].begin_capture(RELAXED).unwrap();
    let error = shared[0].lend(&x, never).unwrap_err();
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error}");
    // No part of that capture.
    shared[0].synchronize().unwrap();
    end_capture(&theirs[1]);
    assert_eq!(shared[0].lend(&x, |x| x.to_vec(&shared[0])).unwrap(), [0.0; 4]);
}
