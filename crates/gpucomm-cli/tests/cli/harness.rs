//! Runs the program and reads its table.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

pub const OPERATIONS: [&str; 10] = [
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

pub const TYPES: &[&str] = &[
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "half",
    "float",
    "double",
    "bfloat16",
    #[cfg(nccl_ge_2_24)]
    "f8e4m3",
    #[cfg(nccl_ge_2_24)]
    "f8e5m2",
];

pub const REDOPS: [&str; 6] = ["sum", "prod", "max", "min", "avg", "mulsum"];

pub struct Output {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn command(args: &[&str]) -> Command {
    // The variable at run time is for bundles of tests that run elsewhere (scripts/gpu-bundle).
    let program = std::env::var_os("CARGO_BIN_EXE_gpucomm").unwrap_or(env!("CARGO_BIN_EXE_gpucomm").into());
    let mut command = Command::new(program);
    // Standard error must hold what the program itself says, and no more.
    command.args(args).env("GPUCOMM_EMULATOR_QUIET", "1").stdin(Stdio::null());
    command
}

/// Runs it, and ends it should it hang.
pub fn run(args: &[&str]) -> Output {
    finish(command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

pub fn finish(mut child: Child) -> Output {
    let read = |pipe: Option<Box<dyn Read + Send>>| {
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
pub fn ranks() -> usize {
    static RANKS: OnceLock<usize> = OnceLock::new();
    *RANKS.get_or_init(|| {
        let output = run(&["info", "--json"]);
        let info: Value = serde_json::from_str(&output.out).unwrap();
        info["devices"].as_array().map_or(0, Vec::len).min(4)
    })
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    pub size: usize,
    pub count: usize,
    pub kind: String,
    pub redop: String,
    pub root: i64,
    /// Time, algorithm bandwidth, bus bandwidth, wrong values; out of place and in place.
    pub places: [Option<[f64; 4]>; 2],
}

pub struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Row>,
    pub out_of_bounds: String,
    pub busbw: f64,
}

pub fn parse(out: &str) -> Table {
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
pub fn perf(args: &[&str]) -> Table {
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
pub fn bus_factor(operation: &str, ranks: usize) -> f64 {
    let n = ranks as f64;
    match operation {
        "all_reduce" => 2.0 * (n - 1.0) / n,
        "reduce" | "broadcast" | "sendrecv" => 1.0,
        _ => (n - 1.0) / n,
    }
}
