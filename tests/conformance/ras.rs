//! What NCCL's RAS service says, asked of one that speaks as NCCL's does; that of NCCL itself is on GPUs only.

use std::time::{Duration, Instant};

use gpucomm::{Error, nccl};

#[path = "../support/ras.rs"]
mod service;

use service::{Manner, Service, status};

use crate::support::process::{Role, spawn};
use crate::support::{Rig, assert_names, slower, watched};

fn ask(service: &Service, timeout: Duration) -> gpucomm::Result<String> {
    nccl::ras_status_timeout(Some(&service.address), timeout)
}

#[test]
fn it_is_asked_as_its_own_client_asks() {
    let right = status(&[(0, 3), (1, 3)], &[(2, true, false)], false);
    for (manner, forgets) in [(Manner::Well, false), (Manner::Well, true), (Manner::Slow, true)] {
        let service = Service::new(manner, &status(&[(0, 3), (1, 3)], &[(2, true, false)], forgets));
        let answer = ask(&service, slower(10.0)).expect("an answer");
        assert_eq!(answer, right, "{manner:?}, {forgets}");
        let heard = service.heard.lock().unwrap().clone();
        let patience = format!("TIMEOUT {}", (slower(10.0) / 2).as_secs());
        assert_eq!(heard, ["CLIENT PROTOCOL 2", &patience, "SET FORMAT json", "STATUS"]);
    }
}

#[test]
fn who_does_not_answer_as_it_does_is_told() {
    let all = status(&[(0, 3)], &[], false);
    let start = Instant::now();
    let error = ask(&Service::new(Manner::Silent, &all), Duration::from_millis(300)).expect_err("silence");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_millis(300) + slower(5.0), "{:?}", start.elapsed());
    let service = Service::new(Manner::Old, &all);
    let error = ask(&service, slower(10.0)).expect_err("an old one");
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert_names(&error, &["ras_status", "NCCL 2.28.7 or newer", &service.address]);
    let error = ask(&Service::new(Manner::Leaves, &all), slower(10.0)).expect_err("nothing");
    assert_names(&error, &["expected JSON", "got \"\""]);
    let error = ask(&Service::new(Manner::Other, &all), slower(10.0)).expect_err("another program");
    assert_names(&error, &["expected SERVER PROTOCOL", "HTTP/1.1 400"]);
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = nccl::ras_status_timeout(Some(&free), slower(10.0)).expect_err("nobody");
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
    assert_names(&error, &["ras_status", &free]);
}

#[test]
#[ignore = "the body of child processes"]
fn child() {
    let Some(role) = Role::of_this_process("dumps") else { return };
    let place = std::env::temp_dir().join(format!("gpucomm-ras-{}", std::process::id()));
    let rig = Rig::new(role.size);
    let start = Instant::now();
    nccl::dump_all(&place).expect("dumps");
    let took = start.elapsed();
    let of_ras =
        |path: &std::path::Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ras-"));
    let files = || std::fs::read_dir(&place).expect("a directory").map(|file| file.expect("a file").path());
    assert_eq!(files().filter(|path| !of_ras(path)).count(), role.size);
    let text = std::fs::read_to_string(files().find(|path| of_ras(path)).expect("what RAS said")).expect("a text");
    println!("took {} ms: {text}", took.as_millis());
    std::fs::remove_dir_all(&place).expect("a directory");
    rig.close();
    println!("finished");
}

/// Beside the dumps lies what it says, and a service that hangs holds nobody up for long.
#[test]
fn dumps_have_its_answer() {
    watched(60.0, || {
        let all = status(&[(0, 3), (1, 4)], &[], false);
        for (manner, said) in
            [(Manner::Well, "\\\"AllReduce\\\": 4"), (Manner::Silent, "\"answer\": null, \"error\": ")]
        {
            let service = Service::new(manner, &all);
            let id = gpucomm::UniqueId::from_bytes([0; gpucomm::UniqueId::BYTES]);
            let env = [("NCCL_RAS_ADDR", service.address.as_str())];
            let end = spawn("ras::child", "dumps", (0, 1), &id, &env).finish(slower(40.0));
            end.assert_success();
            for word in ["finished", "\"schema\": \"gpucomm-ras/1\"", &service.address, said] {
                assert!(end.text.contains(word), "{word}: {}", end.text);
            }
            let took = end.text.lines().find_map(|line| line.split_once("took ")?.1.split_once(" ms")?.0.parse().ok());
            assert!(Duration::from_millis(took.expect("a time")) < slower(4.0), "{}", end.text);
        }
    });
}
