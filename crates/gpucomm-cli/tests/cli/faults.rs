//! Ranks that die, hang or fail: the run ends, in time, and says why. The emulator injects them.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{Output, command, finish};

const WAYS: [&[&str]; 3] = [&["-t", "2"], &["-g", "2"], &["--procs", "2"]];

/// Runs with a fault; what the program itself says, without the emulator's note about the injection.
fn run(fault: &str, way: &[&str]) -> Output {
    let mut args = vec!["perf", "all_reduce", "-b", "64K", "-e", "64K", "-n", "50", "-T", "2"];
    args.extend(way);
    let mut command = command(&args);
    let start = Instant::now();
    // As over a network: on one machine nobody would be told of a dead rank.
    command.env("GPUCOMM_EMULATOR_DEAD_PEER", "told");
    let mut output = finish(
        command.env("GPUCOMM_EMULATOR_FAULTS", fault).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
    );
    assert!(start.elapsed() < Duration::from_secs(15), "{fault} {way:?}: {:?}", start.elapsed());
    output.err = output.err.lines().filter(|line| line.starts_with("gpucomm: ")).collect::<Vec<_>>().join("\n");
    output
}

#[test]
fn a_rank_that_hangs_is_a_timeout() {
    for way in WAYS {
        let output = run("hang=rank1@op5", way);
        assert_eq!(output.code, Some(1), "{way:?} {}", output.err);
        assert!(output.err.contains("not done within 2s") && output.err.lines().count() == 1, "{way:?} {}", output.err);
    }
}

#[test]
fn a_rank_that_dies_is_named() {
    for way in WAYS {
        let output = run("die=rank1@op5", way);
        assert_eq!(output.code, Some(1), "{way:?} {}", output.err);
        assert!(output.err.contains("rank 1") && output.err.lines().count() == 1, "{way:?} {}", output.err);
    }
}

#[test]
fn an_asynchronous_error_ends_the_run() {
    for way in WAYS {
        let output = run("async_error=rank1@op4", way);
        assert_eq!(output.code, Some(1), "{way:?} {}", output.err);
        assert!(output.err.contains("rank 1") && output.err.lines().count() == 1, "{way:?} {}", output.err);
    }
}

#[test]
fn memory_that_runs_out_is_said() {
    for way in WAYS {
        let output = run("oom=1.0", way);
        assert_eq!(output.code, Some(1), "{way:?} {}", output.err);
        assert!(output.err.contains("out of memory") && output.err.lines().count() == 1, "{way:?} {}", output.err);
    }
}

#[test]
fn a_rank_that_is_late_is_waited_for() {
    for way in WAYS {
        let output = run("late=rank0@op3:200ms", way);
        assert_eq!((output.code, &*output.err), (Some(0), ""), "{way:?}");
        assert!(output.out.contains("# Out of bounds values : 0 OK"));
    }
}
