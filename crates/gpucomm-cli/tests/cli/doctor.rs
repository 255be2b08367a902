//! `gpucomm doctor`: text, JSON, exit codes, and ranks that try each other.

use std::net::TcpListener;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::harness::{Output, command, finish};

/// Starts it with these variables, and with nothing of a launcher or of NCCL that the test's own process has.
fn start(args: &[&str], variables: &[(&str, &str)]) -> Child {
    let mut command = command(&[&["doctor"], args].concat());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NCCL_") || name.starts_with("SLURM_")) {
        command.env_remove(name);
    }
    for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn run(args: &[&str], variables: &[(&str, &str)]) -> Output {
    finish(start(args, variables))
}

/// The findings of a check.
fn of_check<'a>(json: &'a Value, check: &str) -> Vec<&'a Value> {
    json["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check).collect()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.err, "");
    serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {}", output.out))
}

/// The exit code goes by problems, whatever this machine has.
fn assert_code(output: &Output, json: &Value) {
    assert_eq!(output.code, Some(i32::from(json["verdict"] == "problem")), "{json}");
}

#[test]
fn text_and_json_say_the_same() {
    let output = run(&["--json"], &[]);
    let json = json(&output);
    assert_code(&output, &json);
    assert!(json["reach"].is_null());
    let text = run(&[], &[]);
    assert_eq!((text.code, &*text.err), (output.code, ""), "{}", text.out);
    let mut checks = Vec::new();
    for finding in json["findings"].as_array().unwrap() {
        let check = finding["check"].as_str().unwrap();
        let line = text.out.lines().find(|line| line.split_whitespace().nth(1) == Some(check));
        assert!(line.is_some(), "{check} is not in\n{}", text.out);
        assert_eq!(finding["advice"].is_null(), finding["verdict"] == "ok", "{finding}");
        checks.push(check.to_owned());
    }
    for check in
        ["driver", "gpus", "nccl", "cuda-runtime", "rdma", "shared-memory", "open-files", "network", "launcher"]
    {
        assert!(checks.iter().any(|known| known == check), "{check}: {checks:?}");
    }
    let backend = if cfg!(gpucomm_emulator) { "emulator" } else { "nvidia" };
    assert_eq!(json["backend"], backend);
}

#[test]
fn what_variables_say_is_named() {
    let output =
        run(&["--json"], &[("NCCL_SOKET_IFNAME", "eth0"), ("NCCL_P2P_DISABLE", "yes"), ("NCCL_DEBUG", "WARN")]);
    let warned = json(&output);
    assert_code(&output, &warned);
    let found: Vec<_> = of_check(&warned, "variables").iter().map(|finding| finding.to_string()).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    for says in ["NCCL_SOKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME is the nearest", "NCCL_P2P_DISABLE=yes is read as 0"] {
        assert!(found.iter().any(|text| text.contains(says)), "{says}: {found:?}");
    }
    let output = run(&[], &[("NCCL_ALGO", "rings")]);
    assert_eq!(output.code, Some(1), "{}", output.out);
    assert!(output.out.contains("NCCL_ALGO=rings names `rings`"), "{}", output.out);
    let output = run(&["--json"], &[("NCCL_SOCKET_IFNAME", "=nosuch0")]);
    let none = json(&output);
    assert_eq!((output.code, &none["verdict"]), (Some(1), &"problem".into()));
    assert!(of_check(&none, "network")[0]["found"].as_str().unwrap().contains("NCCL_SOCKET_IFNAME==nosuch0"), "{none}");
}

#[test]
fn a_launcher_by_half_is_a_problem() {
    let output = run(&[], &[("RANK", "1")]);
    assert_eq!(output.code, Some(1), "{}", output.out);
    assert!(output.out.contains("expected both RANK and WORLD_SIZE, got RANK=1"), "{}", output.out);
}

#[cfg(gpucomm_emulator)]
#[test]
fn without_a_gpu_there_is_a_problem() {
    for (variables, says) in [
        ([("GPUCOMM_EMULATOR_DEVICES", "0")], "no GPU can be used"),
        ([("CUDA_VISIBLE_DEVICES", "")], "CUDA_VISIBLE_DEVICES= hides all GPUs"),
    ] {
        let output = run(&[], &variables);
        assert_eq!((output.code, &*output.err), (Some(1), ""), "{}", output.out);
        assert!(output.out.contains(says), "{}", output.out);
    }
}

#[test]
fn nonsense_is_refused() {
    let place = "tcp://127.0.0.1:1";
    for (args, says) in [
        (&["--serve", "1"] as &[&str], "--serve"),
        (&["--exchange", place], "no launcher says which rank"),
        (&["--exchange", place, "--rank", "0"], "--size"),
        (&["--rank", "0", "--size", "2"], "--exchange"),
        (&["--exchange", "127.0.0.1:1", "--rank", "0", "--size", "2"], "tcp://HOST:PORT"),
        (&["--exchange", "tcp://127.0.0.1", "--rank", "0", "--size", "2"], "tcp://HOST:PORT"),
        (&["--exchange", place, "--rank", "2", "--size", "2"], "not below"),
        (&["--exchange", place, "--rank", "0", "--size", "0"], "from 1"),
        (&["--exchange", place, "--rank", "0", "--size", "2", "--timeout", "0"], "from 1"),
    ] {
        let output = run(args, &[]);
        assert_eq!((output.code, &*output.out), (Some(2), ""), "{args:?} {}", output.err);
        assert!(output.err.contains(says) && output.err.lines().count() == 1, "{args:?} {}", output.err);
    }
}

/// A place to meet at that was free just now.
fn place() -> String {
    format!("tcp://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

/// Ranks of `size`, of which some are started.
fn meet(size: &str, ranks: &[&str], timeout: &str, args: &[&str]) -> Vec<Output> {
    let place = place();
    let start = |rank: &&str| {
        let meet = ["--exchange", &place, "--rank", rank, "--size", size, "--timeout", timeout];
        start(&[&meet, args].concat(), &[("NCCL_DEBUG", "WARN")])
    };
    let children: Vec<_> = ranks.iter().map(start).collect();
    children.into_iter().map(finish).collect()
}

#[test]
fn ranks_reach_each_other() {
    let outputs = meet("3", &["0", "1", "2"], "60", &["--json"]);
    let json = json(&outputs[0]);
    assert_code(&outputs[0], &json);
    let [reach] = of_check(&json, "reach")[..] else { panic!("{json}") };
    assert_eq!(reach["verdict"], "ok", "{json}");
    assert!(reach["found"].as_str().unwrap().starts_with("all 3 ranks reach each other"), "{reach}");
    assert_eq!((&json["reach"]["size"], &json["reach"]["missing"]), (&3.into(), &Value::Array(Vec::new())));
    assert_eq!(json["reach"]["hosts"].as_object().unwrap().len(), 3);
    // All ranks find the same of the driver, which the emulator stands for.
    if cfg!(gpucomm_emulator) {
        assert_eq!(of_check(&json, "driver")[0]["ranks"], serde_json::json!([0, 1, 2]), "{json}");
    }
    for output in &outputs[1..] {
        assert_eq!((output.code, &*output.out, &*output.err), (outputs[0].code, "", ""));
    }
}

/// As under torchrun: who starts the program says nothing of ranks.
#[test]
fn the_launcher_says_which_rank_it_is() {
    let place = place();
    let start = |rank: &str| {
        let variables = [
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", "1"),
            ("NCCL_DEBUG", "WARN"),
        ];
        start(&["--exchange", &place, "--timeout", "60", "--json"], &variables)
    };
    let children = ["0", "1"].map(start);
    let [first, second] = children.map(finish);
    let json = json(&first);
    assert_eq!(of_check(&json, "reach")[0]["verdict"], "ok", "{json}");
    assert!(of_check(&json, "launcher")[0]["found"] == "torchrun says rank 0 of 2", "{json}");
    assert_eq!((second.code, &*second.out, &*second.err), (first.code, "", ""));
}

#[test]
fn who_never_comes_is_named_at_the_deadline() {
    let outputs = meet("3", &["0", "2"], "4", &[]);
    assert_eq!((outputs[0].code, &*outputs[0].err), (Some(1), ""), "{}", outputs[0].out);
    // Where this machine was slow, the other has come too late, and says so.
    let is_late = !outputs[1].out.is_empty();
    let says = if is_late { "ranks 1 and 2 of 3 did not come in 4 s" } else { "rank 1 of 3 did not come in 4 s" };
    assert!(outputs[0].out.contains(says), "{}", outputs[0].out);
    assert_eq!(outputs[1].code, Some(1), "{}", outputs[1].out);
}

#[test]
fn where_rank_0_never_comes_the_others_say_so() {
    let outputs = meet("2", &["1"], "1", &["--json"]);
    let json = json(&outputs[0]);
    assert_eq!(outputs[0].code, Some(1));
    let text = of_check(&json, "reach")[0].to_string();
    assert!(text.contains("rank 1 of 2 does not meet the others at tcp://127.0.0.1:"), "{text}");
}
