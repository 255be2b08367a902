//! `gpucomm perf OP --nvshmem`: tables of perftest's shape, whose values are right.

use std::process::Stdio;

use serde_json::Value;

use crate::harness::{command, finish, ranks, run};

const PAIRS: [&str; 3] = ["put", "get", "put_signal"];
const COLLECTIVES: [&str; 5] = ["reduce", "broadcast", "fcollect", "alltoall", "reducescatter"];

/// The rows of a run that must go well.
fn rows(args: &[&str]) -> Vec<Vec<String>> {
    let args = [&["perf", "--nvshmem", "-n", "3", "-w", "1"], args].concat();
    let output = run(&args);
    assert_eq!((output.code, &*output.err), (Some(0), ""), "{args:?}");
    assert!(output.out.contains("# Out of bounds values : 0 OK"), "{args:?}: {}", output.out);
    let lines = output.out.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Where there are too few devices, nothing but transfers between PEs that share one can be measured.
fn pes() -> usize {
    ranks().min(3)
}

#[test]
fn transfers_between_two() {
    for operation in PAIRS {
        for issue in ["host", "on_stream"] {
            let rows = rows(&[operation, "--issue", issue, "-b", "1", "-e", "10001", "-f", "100"]);
            let sizes: Vec<_> = rows.iter().map(|row| &*row[0]).collect();
            assert_eq!(sizes, ["1", "100", "10000"], "{operation} {issue}");
            for row in &rows {
                let number = |at: usize| row[at].parse::<f64>().unwrap();
                assert!(row.len() == 5 && number(2) > 0.0 && number(3) >= 0.0 && row[4] == "0", "{row:?}");
            }
        }
    }
}

#[test]
fn collectives_of_all() {
    if pes() < 2 {
        return;
    }
    let count = pes().to_string();
    for operation in COLLECTIVES {
        for (issue, kind) in [("host", "int"), ("on_stream", "half")] {
            let rows = rows(&[
                operation, "--issue", issue, "--procs", &count, "-b", "600", "-e", "6000", "-f", "10", "-d", kind,
            ]);
            assert_eq!(rows.len(), 2, "{operation} {issue}");
            for row in &rows {
                let number = |at: usize| row[at].parse::<f64>().unwrap();
                assert!(
                    row.len() == 10 && row[9] == "0" && number(5) <= number(4) && number(4) <= number(6),
                    "{row:?}"
                );
                assert_eq!(number(0), number(1) * if kind == "int" { 4.0 } else { 2.0 }, "{row:?}");
            }
        }
    }
}

#[test]
fn all_reductions_of_all_types() {
    if pes() < 2 {
        return;
    }
    let count = pes().to_string();
    for (at, kind) in ["int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16"]
        .iter()
        .enumerate()
    {
        let redop = ["sum", "prod", "min", "max"][at % 4];
        let operation = ["reduce", "reducescatter"][at / 4 % 2];
        let rows = rows(&[operation, "--procs", &count, "-b", "999", "-e", "999", "-d", kind, "-o", redop]);
        assert_eq!((&*rows[0][2], &*rows[0][3]), (*kind, redop));
    }
}

#[test]
fn a_barrier_has_one_row() {
    if pes() < 2 {
        return;
    }
    for issue in ["host", "on_stream"] {
        let rows = rows(&["barrier", "--issue", issue, "--procs", "2"]);
        assert!(rows.len() == 1 && rows[0][0] == "0" && rows[0][4].parse::<f64>().unwrap() > 0.0, "{rows:?}");
    }
}

#[test]
fn json_holds_what_was_printed() {
    let path = std::env::temp_dir().join(format!("gpucomm-nvshmem-{}.json", std::process::id()));
    let printed = rows(&["put", "-b", "8", "-e", "512", "-f", "8", "-J", path.to_str().unwrap()]);
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(
        (&json["operation"], &json["setup"]["library"], &json["setup"]["issue"]),
        (&"put".into(), &"nvshmem".into(), &"on_stream".into())
    );
    assert_eq!((json["setup"]["pes"].as_array().unwrap().len(), &json["summary"]["wrong"]), (2, &0.into()));
    let found = json["rows"].as_array().unwrap();
    assert_eq!((found.len(), printed.len()), (3, 3));
    for (row, line) in found.iter().zip(&printed) {
        assert_eq!(row["size"].to_string(), line[0]);
        assert!((row["time_us"].as_f64().unwrap() - line[2].parse::<f64>().unwrap()).abs() < 1e-3, "{row} {line:?}");
    }
}

/// Of a collective there is more: its type and operation, and the least and the most.
#[test]
fn json_of_a_collective() {
    if pes() < 2 {
        return;
    }
    let path = std::env::temp_dir().join(format!("gpucomm-nvshmem-collective-{}.json", std::process::id()));
    let run = ["reducescatter", "--issue", "host", "--procs", "2", "-b", "64", "-e", "512", "-f", "8", "-d", "half"];
    let printed = rows(&[&run[..], &["-o", "max", "-J", path.to_str().unwrap()]].concat());
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    let setup = &json["setup"];
    assert_eq!((&json["operation"], &setup["issue"]), (&"reducescatter".into(), &"host".into()));
    assert_eq!((&setup["type"], &setup["redop"]), (&"half".into(), &"max".into()));
    assert_eq!((setup["pes"].as_array().unwrap().len(), &json["summary"]["out_of_bounds"]), (2, &0.into()));
    let found = json["rows"].as_array().unwrap();
    assert_eq!((found.len(), printed.len()), (2, 2));
    for (row, line) in found.iter().zip(&printed) {
        assert_eq!((row["size"].to_string(), row["count"].to_string()), (line[0].clone(), line[1].clone()));
        for (name, at) in [("time_us", 4), ("min_us", 5), ("max_us", 6), ("algbw", 7), ("busbw", 8)] {
            let difference = row[name].as_f64().unwrap() - line[at].parse::<f64>().unwrap();
            assert!(difference.abs() < 1e-2, "{name}: {row} {line:?}");
        }
        assert_eq!(row["wrong"].to_string(), line[9]);
    }
}

#[test]
fn nonsense_is_one_line() {
    for (args, says) in [
        (&["put", "--procs", "3"] as &[&str], "between two"),
        (&["put", "-b", "8", "-e", "4"], "above"),
        (&["put", "-b", "0"], "-b 0"),
        (&["put", "-f", "1"], "at least 2"),
        (&["put", "-n", "0"], "from 1"),
        (&["put", "--issue", "gpu"], "on_stream"),
        (&["all_reduce"], "fcollect"),
        (&["reduce", "-o", "avg"], "sum, prod"),
        (&["reduce", "-d", "all"], "one type"),
        (&["reduce", "-R", "1"], "-R"),
        (&["reduce", "-g", "4"], "--procs N"),
        (&["reduce", "--child", "1"], "gpucomm itself"),
        (&[], "<OP>"),
    ] {
        let args = [&["perf", "--nvshmem"], args].concat();
        let output = run(&args);
        assert_eq!((output.code, output.out.as_str()), (Some(2), ""), "{args:?} {}", output.err);
        assert!(output.err.lines().count() == 1 && output.err.contains(says), "{args:?}: {}", output.err);
    }
    let output = run(&["perf", "put"]);
    assert!(output.code == Some(2) && output.err.contains("with --nvshmem"), "{}", output.err);
    for (rank, says) in
        [("0", "Open MPI has started 2 processes"), ("", "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE")]
    {
        let mut launched = command(&["perf", "put", "--nvshmem", "--procs", "2"]);
        launched.env("OMPI_COMM_WORLD_SIZE", "2").env("OMPI_COMM_WORLD_RANK", rank);
        let output = finish(launched.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        assert!(output.code == Some(2) && output.err.contains(says), "{}", output.err);
    }
    assert!(run(&["perf", "--nvshmem", "--help"]).out.contains("gpucomm perf <OP> --nvshmem"));
}

#[cfg(gpucomm_emulator)]
#[test]
fn pes_that_share_a_device_have_transfers_only() {
    use std::process::Stdio;

    use crate::harness::{command, finish};

    let run = |operation: &str| {
        let args = ["perf", operation, "--nvshmem", "--procs", "2", "-b", "8", "-e", "8"];
        let mut command = command(&args);
        command.env("GPUCOMM_EMULATOR_DEVICES", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().unwrap())
    };
    let put = run("put");
    assert!(put.code == Some(0) && put.out.contains("PEs 2 (LimitedMpg)"), "{}{}", put.out, put.err);
    let reduce = run("reduce");
    assert!(reduce.code == Some(1) && reduce.err.lines().count() == 1, "{}", reduce.err);
    assert!(reduce.err.contains("a device of its own for each PE"), "{}", reduce.err);
}
