//! One process a rank.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{OPERATIONS, command, finish, perf, ranks};

#[test]
fn processes_give_the_same_table() {
    for procs in [1, 2, 4] {
        if procs > ranks() {
            continue;
        }
        let count = procs.to_string();
        for operation in OPERATIONS {
            let table = perf(&[operation, "--procs", &count, "-b", "4K", "-e", "64K", "-f", "16", "-n", "2"]);
            assert_eq!(table.rows.len(), 2, "{operation}");
            let pids: Vec<_> = table
                .header
                .iter()
                .filter(|line| line.starts_with("#  Rank "))
                .map(|line| line.split_whitespace().nth(6).unwrap().to_owned())
                .collect();
            let mut distinct = pids.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!((pids.len(), distinct.len()), (procs, procs), "{operation} {pids:?}");
        }
    }
}

#[test]
fn a_child_that_is_killed_ends_the_run_with_its_name() {
    if ranks() < 2 {
        return;
    }
    let mut child = command(&["perf", "all_reduce", "--procs", "2", "-b", "64K", "-e", "64K", "-n", "100000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut pids = Vec::new();
    let mut line = String::new();
    // The header names the children; what comes after it comes from the run.
    while !line.contains("(elements)") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "the header ended early");
        let fields: Vec<_> = line.split_whitespace().collect();
        if let ["#", "Rank", _, "Group", _, "Pid", pid, ..] = fields.as_slice() {
            pids.push((*pid).to_owned());
        }
    }
    assert_eq!(pids.len(), 2);
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    assert!(Command::new("kill").args(["-9", &pids[1]]).status().unwrap().success());
    let output = finish(child);
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(output.code, Some(1), "{}", output.err);
    let expected = format!("gpucomm: rank 1 (process {}) was killed by signal 9 before it was done\n", pids[1]);
    assert_eq!(output.err, expected);
    // Nothing of the run is left.
    let alive = std::path::Path::new("/proc").join(&pids[0]).exists();
    assert!(!alive, "rank 0 is still running");
}
