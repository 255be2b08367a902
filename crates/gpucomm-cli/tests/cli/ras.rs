//! `gpucomm diagnose` puts into words what NCCL's RAS service says.

#[path = "../../../../tests/support/ras.rs"]
mod service;

use service::{Manner, Service, status};

use crate::harness::run;

/// Expects exit status 0 if a culprit `is_named`, else 3.
fn ask(status: &str, is_named: bool) -> String {
    let service = Service::new(Manner::Well, status);
    let output = run(&["diagnose", &format!("--ras={}", service.address)]);
    let code = if is_named { 0 } else { 3 };
    assert_eq!((output.code, output.err.as_str()), (Some(code), ""), "{}", output.out);
    // Each paragraph in one line.
    output.out.replace(";\n  ", "; ")
}

#[test]
fn who_is_behind_or_gone_is_named() {
    let told = ask(&status(&[(0, 5), (1, 4), (3, 5)], &[(2, true, false)], true), true);
    assert_eq!(
        told,
        "NCCL's RAS service, communicator 0xabc, 4 ranks: rank 2 (process 102 on 10.0.0.2) does not answer; \
         of AllReduce rank 1 has issued 4, ranks 0 and 3 have issued 5.\n"
    );
    let told = ask(&status(&[(5, 1), (6, 1)], &[(0, true, true), (1, false, false)], false), true);
    for part in [
        "rank 0 (process 100 on 10.0.0.0) counts as dead",
        "rank 1 (process 101 on 10.0.0.1) answers, and has no such communicator any more",
        "rank 5 (process 105 on 10.0.0.5) has the asynchronous error 6",
        "rank 6 (process 106 on 10.0.0.6) is being aborted",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("issued"), "{told}");
    let told = ask(&status(&[(0, 1), (1, 1)], &[], false), false);
    assert!(told.ends_with("2 ranks: all ranks answer, and have issued as many collectives of each kind.\n"), "{told}");
    let none = "{\n  \"communicators_count\": 0,\n  \"communicators\": [\n\n  ]\n}\n";
    assert_eq!(ask(none, false), "NCCL's RAS service knows of no communicator.\n");
}

#[test]
fn what_was_written_beside_dumps_is_read() {
    let directory = std::env::temp_dir().join(format!("gpucomm-cli-ras-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let write = |name: &str, time: u64, answer: Option<String>| {
        let text = serde_json::json!({"schema": "gpucomm-ras/1", "time_ns": time, "address": "a", "answer": answer});
        std::fs::write(directory.join(name), text.to_string()).unwrap();
    };
    // The one that was asked first knows most.
    write("ras-a-1.json", 7, Some(status(&[(0, 2), (1, 3)], &[], false)));
    write("ras-a-2.json", 8, Some(status(&[(0, 3), (1, 3)], &[], false)));
    write("ras-a-3.json", 1, None);
    let output = run(&["diagnose", directory.to_str().unwrap()]);
    assert_eq!(output.code, Some(0), "{}", output.err);
    assert!(output.out.contains("of AllReduce rank 0 has issued 2, rank 1 has issued 3."), "{}", output.out);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn nobody_to_ask_is_one_line() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let output = run(&["diagnose", &format!("--ras={free}")]);
    assert_eq!((output.code, output.out.as_str(), output.err.lines().count()), (Some(1), "", 1), "{}", output.err);
    assert!(output.err.contains(&free), "{}", output.err);
    let output = run(&["diagnose"]);
    assert_eq!(output.code, Some(2), "{}", output.err);
}
