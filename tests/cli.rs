//! The program as a user runs it: tables, checks, JSON, several processes, and nonsense.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

const OPERATIONS: [&str; 10] = [
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "sendrecv",
    "all_to_all_v",
];

const TYPES: [&str; 10] =
    ["int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16"];

const REDOPS: [&str; 6] = ["sum", "prod", "max", "min", "avg", "mulsum"];

struct Output {
    code: Option<i32>,
    out: String,
    err: String,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpucomm"));
    // Standard error must hold what the program itself says, and no more.
    command.args(args).env("GPUCOMM_EMULATOR_QUIET", "1").stdin(Stdio::null());
    command
}

/// Runs it, and ends it should it hang.
fn run(args: &[&str]) -> Output {
    finish(command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn finish(mut child: Child) -> Output {
    let mut read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            pipe.map(|mut pipe| pipe.read_to_string(&mut text)).transpose().unwrap();
            text
        })
    };
    let out = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let err = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let start = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if start.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            panic!("hung; printed:\n{}\n{}", out.join().unwrap(), err.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Output { code, out: out.join().unwrap(), err: err.join().unwrap() }
}

/// How many ranks to use: as many as there are devices, four at most.
fn ranks() -> usize {
    static RANKS: OnceLock<usize> = OnceLock::new();
    *RANKS.get_or_init(|| {
        let output = run(&["info", "--json"]);
        let info: Value = serde_json::from_str(&output.out).unwrap();
        info["devices"].as_array().map_or(0, Vec::len).min(4)
    })
}

/// One row of the table.
#[derive(Debug)]
struct Row {
    size: usize,
    count: usize,
    kind: String,
    redop: String,
    root: i64,
    /// Time, algorithm bandwidth, bus bandwidth, wrong values; out of place and in place.
    places: [Option<[f64; 4]>; 2],
}

struct Table {
    header: Vec<String>,
    rows: Vec<Row>,
    out_of_bounds: String,
    busbw: f64,
}

fn parse(out: &str) -> Table {
    let mut table = Table { header: Vec::new(), rows: Vec::new(), out_of_bounds: String::new(), busbw: f64::NAN };
    for line in out.lines() {
        if let Some(comment) = line.strip_prefix('#') {
            match comment.split_once(" : ") {
                Some((" Out of bounds values", value)) => table.out_of_bounds = value.trim().to_owned(),
                Some((" Avg bus bandwidth   ", value)) => table.busbw = value.trim().parse().unwrap(),
                Some(other) => panic!("unknown footer {other:?}"),
                None => table.header.push(line.to_owned()),
            }
            continue;
        }
        let fields: Vec<_> = line.split_whitespace().collect();
        assert_eq!(fields.len(), 13, "{line}");
        let place = |fields: &[&str]| (fields[0] != "N/A").then(|| [0, 1, 2, 3].map(|i| fields[i].parse().unwrap()));
        table.rows.push(Row {
            size: fields[0].parse().unwrap(),
            count: fields[1].parse().unwrap(),
            kind: fields[2].to_owned(),
            redop: fields[3].to_owned(),
            root: fields[4].parse().unwrap(),
            places: [place(&fields[5..9]), place(&fields[9..13])],
        });
    }
    table
}

/// Runs `perf` on all ranks and expects it to find nothing wrong.
fn perf(args: &[&str]) -> Table {
    let ranks = ranks().to_string();
    let mut all = vec!["perf"];
    all.extend(args);
    if !args.iter().any(|arg| matches!(*arg, "-g" | "-t" | "--procs")) {
        all.extend(["-g", &ranks]);
    }
    let output = run(&all);
    assert_eq!(output.code, Some(0), "{all:?}\n{}\n{}", output.out, output.err);
    assert_eq!(output.err, "", "{all:?}");
    let table = parse(&output.out);
    assert_eq!(table.out_of_bounds, "0 OK");
    for row in &table.rows {
        for place in row.places.iter().flatten() {
            assert_eq!(place[3], 0.0, "{row:?}");
        }
    }
    table
}

/// Bus bandwidth over algorithm bandwidth, as nccl-tests' documentation has it.
fn bus_factor(operation: &str, ranks: usize) -> f64 {
    let n = ranks as f64;
    match operation {
        "all_reduce" => 2.0 * (n - 1.0) / n,
        "reduce" | "broadcast" | "sendrecv" => 1.0,
        _ => (n - 1.0) / n,
    }
}

#[test]
fn every_operation_prints_a_table_whose_numbers_belong_together() {
    let n = ranks();
    for operation in OPERATIONS {
        let table = perf(&[operation, "-b", "8", "-e", "64K", "-f", "8", "-n", "3"]);
        assert_eq!(table.rows.len(), 5, "{operation}");
        let (mut sum, mut number) = (0.0, 0);
        for (row, asked) in table.rows.iter().zip([8, 64, 512, 4096, 32768]) {
            assert!(row.size <= asked, "{operation} {row:?}");
            let parts = match operation {
                "all_reduce" | "reduce" | "broadcast" | "sendrecv" => 1,
                _ => n,
            };
            // Parts are whole multiples of 16 bytes.
            let count = if parts == 1 { asked / 4 } else { asked / 4 / parts / 4 * 4 };
            assert_eq!(row.count, count, "{operation} {row:?}");
            if operation != "all_to_all_v" {
                assert_eq!(row.size, count * parts * 4, "{operation} {row:?}");
            }
            assert_eq!(row.kind, "float");
            assert_eq!(row.redop, if operation.contains("reduce") { "sum" } else { "none" });
            let rooted = ["reduce", "broadcast", "gather", "scatter"].contains(&operation);
            assert_eq!(row.root, if rooted { 0 } else { -1 });
            let exchange = ["all_to_all", "all_to_all_v", "sendrecv"].contains(&operation);
            assert_eq!(row.places[1].is_none(), exchange, "{operation} {row:?}");
            for [time, algbw, busbw, _] in row.places.iter().flatten() {
                assert!(*time > 0.0);
                let expected = row.size as f64 / time / 1e3;
                assert!((algbw - expected).abs() <= 0.006 + expected * 0.01, "{operation} {row:?}");
                let expected = algbw * bus_factor(operation, n);
                assert!((busbw - expected).abs() <= 0.016, "{operation} {row:?}");
                (sum, number) = (sum + busbw, number + 1);
            }
        }
        let mean = sum / f64::from(number);
        assert!((table.busbw - mean).abs() <= 0.006, "{operation}: {} instead of {mean}", table.busbw);
        let devices: Vec<_> = table.header.iter().filter(|line| line.starts_with("#  Rank ")).collect();
        assert_eq!(devices.len(), n);
        for (rank, line) in devices.iter().enumerate() {
            let fields: Vec<_> = line.split_whitespace().collect();
            assert_eq!((fields[2], fields[5]), (&*rank.to_string(), "Pid"), "{line}");
        }
    }
}

#[test]
fn every_type_and_reduction_is_right() {
    for operation in ["all_reduce", "reduce_scatter", "reduce"] {
        let table = perf(&[operation, "-d", "all", "-o", "all", "-b", "4000", "-e", "4000", "-n", "1", "-w", "0"]);
        let got: Vec<_> = table.rows.iter().map(|row| (&*row.kind, &*row.redop)).collect();
        let want: Vec<_> = TYPES.iter().flat_map(|kind| REDOPS.map(|redop| (*kind, redop))).collect();
        assert_eq!(got, want, "{operation}");
    }
    for operation in ["broadcast", "all_gather", "all_to_all", "gather", "scatter", "sendrecv", "all_to_all_v"] {
        let table = perf(&[operation, "-d", "all", "-b", "4000", "-e", "4000", "-n", "1"]);
        assert_eq!(table.rows.iter().map(|row| &*row.kind).collect::<Vec<_>>(), TYPES, "{operation}");
    }
}

#[test]
fn every_root_takes_its_turn() {
    for operation in ["reduce", "broadcast", "gather", "scatter"] {
        for all in ["all", "-1"] {
            let table = perf(&[operation, "-r", all, "-b", "1000", "-e", "1000", "-n", "1"]);
            let roots: Vec<_> = table.rows.iter().map(|row| row.root).collect();
            assert_eq!(roots, (0..ranks() as i64).collect::<Vec<_>>(), "{operation}");
        }
    }
    let last = ranks() - 1;
    assert_eq!(perf(&["broadcast", "-r", &last.to_string(), "-b", "64", "-e", "64"]).rows[0].root, last as i64);
}

#[test]
fn threads_windows_and_other_ways_to_run() {
    let n = ranks().to_string();
    for operation in OPERATIONS {
        perf(&[operation, "-t", &n, "-b", "1K", "-e", "256K", "-f", "16", "-n", "2"]);
        perf(&[operation, "-t", &n, "-R", "2", "-b", "1K", "-e", "16K", "-f", "4", "-n", "2"]);
        perf(&[operation, "-R", "2", "-b", "1K", "-e", "1K", "-n", "2"]);
        perf(&[operation, "-g", "1", "-b", "1K", "-e", "1K", "-n", "2"]);
    }
    if ranks() == 4 {
        perf(&["all_reduce", "-t", "2", "-g", "2", "-b", "1K", "-e", "1K"]);
    }
    let sizes = |args: &[&str]| perf(args).rows.iter().map(|row| row.size).collect::<Vec<_>>();
    assert_eq!(sizes(&["all_reduce", "-b", "0", "-e", "2K", "-i", "1K", "-n", "1"]), [0, 1024, 2048]);
    assert_eq!(sizes(&["allreduce_perf", "-b", "1.5K", "-e", "1.5K", "-c", "3", "-a", "3"]), [1536]);
}

#[test]
fn nothing_is_claimed_where_nothing_was_checked() {
    let output = run(&["perf", "all_reduce", "-b", "64", "-e", "64", "-c", "0"]);
    assert_eq!(output.code, Some(0), "{}", output.err);
    let row = output.out.lines().find(|line| !line.starts_with('#')).unwrap();
    let fields: Vec<_> = row.split_whitespace().collect();
    assert_eq!((fields[8], fields[12]), ("N/A", "N/A"));
    assert!(output.out.contains("# Out of bounds values : not checked"), "{}", output.out);
}

#[test]
fn nonsense_is_one_line_and_exit_code_2() {
    let too_many = "100000";
    for (args, says) in [
        (&["perf"] as &[&str], "<OP>"),
        (&["perf", "all_reduces"], "all_to_all_v"),
        (&["perf", "all_reduce", "broadcast"], "broadcast"),
        (&["perf", "all_reduce", "--frobnicate"], "--frobnicate"),
        (&["perf", "all_reduce", "-q"], "-q"),
        (&["perf", "all_reduce", "-g", "0"], "from 1"),
        (&["perf", "all_reduce", "-g", "-1"], "-1"),
        (&["perf", "all_reduce", "-g", "many"], "many"),
        (&["perf", "all_reduce", "-g", too_many], "GPUs"),
        (&["perf", "all_reduce", "-g", "4294967295", "-t", "4294967295"], ""),
        (&["perf", "all_reduce", "-t", "0"], "from 1"),
        (&["perf", "all_reduce", "--procs", "0"], "from 1"),
        (&["perf", "all_reduce", "--procs", too_many], "GPUs"),
        (&["perf", "all_reduce", "--procs", "2", "-g", "2"], "--procs"),
        (&["perf", "all_reduce", "-b", "8Q"], "8Q"),
        (&["perf", "all_reduce", "-b", ""], "size"),
        (&["perf", "all_reduce", "-b"], "-b"),
        (&["perf", "all_reduce", "-b", "64", "-e", "8"], "above"),
        (&["perf", "all_reduce", "-b", "0", "-e", "8", "-f", "2"], "-b 0"),
        (&["perf", "all_reduce", "-e", "99999999999G"], "too large"),
        (&["perf", "all_reduce", "-b", "1.3"], "whole"),
        (&["perf", "all_reduce", "-f", "1"], "at least 2"),
        (&["perf", "all_reduce", "-f", "0"], "at least 2"),
        (&["perf", "all_reduce", "-f", "1.5"], "at least 2"),
        (&["perf", "all_reduce", "-i", "0"], "increment"),
        (&["perf", "all_reduce", "-f", "2", "-i", "8"], "exclude"),
        (&["perf", "all_reduce", "-n", "0"], "from 1"),
        (&["perf", "all_reduce", "-w", "-1"], "-1"),
        (&["perf", "all_reduce", "-d", "complex"], "bfloat16"),
        (&["perf", "all_reduce", "-o", "xor"], "mulsum"),
        (&["perf", "broadcast", "-r", "1"], "root"),
        (&["perf", "broadcast", "-r", "-2"], "rank"),
        (&["perf", "all_reduce", "-c", "x"], "number"),
        (&["perf", "all_reduce", "-R", "1"], "local registration"),
        (&["perf", "all_reduce", "-R", "3"], "symmetric"),
        (&["perf", "all_reduce", "-a", "4"], "maximum"),
        (&["perf", "all_reduce", "-T", "0"], "from 1"),
        (&["perf", "all_reduce", "--json"], "--json"),
        (&["perf", "all_reduce", "--child", "0"], "--procs"),
        (&["perf", "no\nsuch\u{1b}[2Jop"], "no such"),
        (&["perf", "x\n\ny"], "x"),
        (&["info", "everything"], "everything"),
        (&["dance"], "dance"),
        (&[], "no command"),
    ] {
        let output = run(args);
        assert_eq!(output.code, Some(2), "{args:?}\n{}\n{}", output.out, output.err);
        assert_eq!(output.out, "", "{args:?}");
        assert_eq!(output.err.lines().count(), 1, "{args:?}\n{}", output.err);
        assert!(output.err.starts_with("gpucomm: ") && output.err.ends_with('\n'), "{args:?}\n{}", output.err);
        assert!(output.err.contains(says), "{args:?} should say {says}: {}", output.err);
        assert!(!output.err.contains('\u{1b}'));
    }
}

#[test]
fn help_and_version() {
    for args in [&["--help"] as &[&str], &["perf", "--help"], &["info", "-h"], &["--version"]] {
        let output = run(args);
        assert_eq!((output.code, &*output.err), (Some(0), ""), "{args:?}");
        assert!(output.out.contains("gpucomm"), "{args:?}\n{}", output.out);
    }
    for operation in OPERATIONS {
        assert!(run(&["perf", "--help"]).out.contains(operation));
    }
}

#[test]
fn json_says_what_the_table_says_and_more() {
    let n = ranks();
    for (procs, operation) in [(false, "reduce_scatter"), (false, "all_to_all"), (true, "all_reduce")] {
        let path = std::env::temp_dir().join(format!("gpucomm-cli-{}-{operation}.json", std::process::id()));
        let file = path.to_str().unwrap();
        let count = n.to_string();
        let table = perf(&[
            operation,
            "-b",
            "1K",
            "-e",
            "16K",
            "-f",
            "4",
            "-n",
            "7",
            "-w",
            "2",
            "--json",
            file,
            if procs { "--procs" } else { "-t" },
            &count,
        ]);
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(json["operation"], operation);
        let setup = &json["setup"];
        assert_eq!(setup["iterations"], 7);
        assert_eq!(setup["warmup_iterations"], 2);
        assert_eq!(setup["step_factor"], 4);
        assert_eq!(setup["processes"], if procs { n } else { 1 });
        assert_eq!(setup["ranks"].as_array().unwrap().len(), n);
        for (rank, info) in setup["ranks"].as_array().unwrap().iter().enumerate() {
            assert_eq!((&info["rank"], &info["device"]), (&Value::from(rank), &Value::from(rank)));
        }
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), table.rows.len());
        let mut rates = Vec::new();
        for (json, row) in rows.iter().zip(&table.rows) {
            assert_eq!((&json["size"], &json["count"]), (&Value::from(row.size), &Value::from(row.count)));
            assert_eq!((&json["type"], &json["redop"]), (&Value::from(&*row.kind), &Value::from(&*row.redop)));
            for (place, printed) in [&json["out_of_place"], &json["in_place"]].into_iter().zip(&row.places) {
                assert_eq!(place.is_null(), printed.is_none());
                let Some([time, ..]) = printed else { continue };
                let number = |key: &str| place[key].as_f64().unwrap();
                assert!((number("time_us") - time).abs() <= 0.006 + time * 1e-4);
                let algbw = row.size as f64 / number("time_us") / 1e3;
                assert!((number("algbw") - algbw).abs() <= 1e-9 * algbw);
                let busbw = algbw * bus_factor(operation, n);
                assert!((number("busbw") - busbw).abs() <= 1e-9 * busbw);
                assert_eq!((&place["wrong"], &place["out_of_bounds"]), (&Value::from(0), &Value::from(0)));
                rates.push(busbw);
            }
        }
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        assert!((json["summary"]["average_bus_bandwidth"].as_f64().unwrap() - mean).abs() <= 1e-9 * mean);
        assert_eq!((&json["summary"]["checked"], &json["summary"]["wrong"]), (&Value::Bool(true), &Value::from(0)));
    }
}

#[test]
fn a_json_file_that_cannot_be_written_fails_before_the_run() {
    let output = run(&["perf", "all_reduce", "-b", "8", "-e", "8", "--json", "/no/such/directory/x.json"]);
    assert_eq!((output.code, &*output.out), (Some(1), ""));
    assert!(output.err.contains("/no/such/directory/x.json") && output.err.lines().count() == 1, "{}", output.err);
}

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

#[test]
fn info_tells_what_there_is() {
    let output = run(&["info"]);
    assert_eq!((output.code, &*output.err), (Some(0), ""));
    for text in ["NCCL", "CUDA runtime", "driver", "is running, built for", "symmetric windows"] {
        assert!(output.out.contains(text), "no {text} in\n{}", output.out);
    }
    let json: Value = serde_json::from_str(&run(&["info", "--json"]).out).unwrap();
    for library in ["nccl", "cuda_runtime"] {
        for version in ["built_for", "running"] {
            let text = json["libraries"][library][version].as_str().unwrap();
            assert!(text.starts_with(|c: char| c.is_ascii_digit()), "{library} {version}: {text}");
        }
    }
    for (ordinal, device) in json["devices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(device["ordinal"], ordinal);
        assert!(device["memory_bytes"].as_u64().unwrap() > 0);
        assert!(device["links"][ordinal].is_null());
    }
}

#[cfg(feature = "emulator")]
#[test]
fn without_a_gpu_info_says_so_and_perf_fails() {
    let none = |args: &[&str]| {
        let mut command = command(args);
        finish(
            command.env("GPUCOMM_EMULATOR_DEVICES", "0").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        )
    };
    let info = none(&["info"]);
    assert_eq!((info.code, &*info.err), (Some(0), ""));
    assert!(info.out.contains("no usable GPU: ") && info.out.contains("is running, built for"), "{}", info.out);
    for args in [&["perf", "all_reduce"] as &[&str], &["perf", "all_reduce", "--procs", "2"]] {
        let output = none(args);
        assert_eq!((output.code, &*output.out), (Some(1), ""));
        assert!(output.err.contains("no usable GPU") && output.err.lines().count() == 1, "{}", output.err);
    }
}
