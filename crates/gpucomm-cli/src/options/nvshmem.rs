//! The command line of `gpucomm perf OP --nvshmem`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gpucomm::{ElementKind, Launch, ReduceOp};

use super::values::{self, List, factor, natural, positive};
use crate::failure::{Failure, Result};
use crate::launch;
use crate::perf::nvshmem::kind::Operation;
use crate::size;

/// By whom transfers are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Issue {
    /// By the host, which waits.
    #[value(name = "host")]
    Host,
    /// By a stream.
    #[value(name = "on_stream", alias = "on-stream")]
    OnStream,
}

impl Issue {
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::OnStream => "on_stream",
        }
    }
}

/// Options of `gpucomm perf OP --nvshmem`, which are those of perftest.
#[derive(Debug, Args)]
pub struct NvshmemArgs {
    /// The operation
    #[arg(value_name = "OP", value_parser = Operation::parse)]
    operation: Operation,
    /// Operations of NVSHMEM, between PEs that are processes
    #[arg(long, required = true)]
    nvshmem: bool,
    /// Who makes the calls: the host, which waits, or a stream
    #[arg(long, value_name = "WHO", default_value = "on_stream")]
    issue: Issue,
    /// Smallest size in bytes; K, M and G are powers of 1024
    #[arg(short = 'b', long = "min_size", value_name = "SIZE", default_value = "4", value_parser = size::parse)]
    min: usize,
    /// Largest size in bytes
    #[arg(short = 'e', long = "max_size", value_name = "SIZE", default_value = "4M", value_parser = size::parse)]
    max: usize,
    /// From one size to the next: multiply by this
    #[arg(short = 'f', long = "step", value_name = "FACTOR", default_value = "2", value_parser = factor)]
    factor: usize,
    /// Timed iterations of each size
    #[arg(short = 'n', long = "iters", value_name = "N", default_value = "10", value_parser = positive)]
    iterations: usize,
    /// Warm-up iterations of each size
    #[arg(short = 'w', long = "warmup_iters", value_name = "N", default_value = "5", value_parser = natural)]
    warmup: usize,
    /// PEs, a process each [default: 2 for put, get and put_signal, else one for each GPU]
    #[arg(long, value_name = "N", value_parser = positive)]
    procs: Option<usize>,
    /// Element type of collectives: int8, uint8, int32 or int, uint32, int64, uint64, half, float, double, bfloat16
    #[arg(short = 'd', long = "datatype", value_name = "TYPE", default_value = "int", value_parser = kind)]
    kind: ElementKind,
    /// Reduction: sum, prod, min, max
    #[arg(short = 'o', long = "reduce_op", value_name = "REDOP", default_value = "sum", value_parser = redop)]
    redop: ReduceOp,
    /// Check iterations of each size; 0 checks nothing
    #[arg(short = 'c', long = "check", value_name = "N", default_value = "1", value_parser = natural)]
    checks: usize,
    /// Give up when something takes longer than this many seconds
    #[arg(short = 'T', long = "timeout", value_name = "SECONDS", value_parser = positive)]
    timeout: Option<usize>,
    /// Write the set-up and all rows to FILE
    #[arg(short = 'J', long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Which PE this process is
    #[arg(long, hide = true, value_parser = natural)]
    child: Option<usize>,
    /// How many PEs there are
    #[arg(long, hide = true, value_parser = positive, requires = "child")]
    of: Option<usize>,
}

/// Options of `gpucomm perf OP --nvshmem`, checked.
#[derive(Debug)]
pub struct NvshmemOptions {
    pub operation: Operation,
    pub issue: Issue,
    pub min: usize,
    pub max: usize,
    pub factor: usize,
    pub iterations: usize,
    pub warmup: usize,
    pub procs: Option<usize>,
    pub kind: ElementKind,
    pub redop: ReduceOp,
    pub checks: usize,
    pub timeout: Option<Duration>,
    pub json: Option<PathBuf>,
    /// This process, and how many there are.
    pub child: Option<(usize, usize)>,
    /// What a launcher has started, if this is one of several PEs.
    pub launch: Option<Launch>,
}

fn kind(text: &str) -> std::result::Result<ElementKind, String> {
    let text = match text {
        "int" => "int32",
        "long" | "longlong" => "int64",
        other => other,
    };
    match values::kinds(text).map(|List(kinds)| kinds) {
        Ok(kinds) => match kinds[..] {
            [kind] if !matches!(kind, ElementKind::F8E4M3 | ElementKind::F8E5M2) => Ok(kind),
            _ => Err("expected one type that NVSHMEM has".to_owned()),
        },
        Err(text) => Err(text),
    }
}

fn redop(text: &str) -> std::result::Result<ReduceOp, String> {
    match text.parse() {
        Ok(op @ (ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max)) => Ok(op),
        _ => Err("expected one of sum, prod, min, max".to_owned()),
    }
}

impl NvshmemArgs {
    pub fn is_child(&self) -> bool {
        self.child.is_some()
    }

    pub fn checked(self, launch: Option<Launch>) -> Result<NvshmemOptions> {
        let name = self.operation.name();
        if let Some(launch) = &launch {
            launch::one_rank_each(launch, self.procs.is_none())?;
        }
        let procs = self.procs.or(launch.as_ref().map(Launch::size));
        if self.min > self.max {
            let (min, max) = (self.min, self.max);
            return Err(Failure::usage(format!("the smallest size (-b {min}) is above the largest (-e {max})")));
        }
        if self.min == 0 && self.max > 0 {
            return Err(Failure::usage("-b 0 never grows by a factor (-f): start above 0"));
        }
        if self.operation.is_of_two() && procs.is_some_and(|procs| procs != 2) {
            return Err(Failure::usage(format!("{name} is between two PEs: --procs 2, or none")));
        }
        let child = match (self.child, self.of) {
            (None, None) => None,
            (Some(pe), Some(of)) if pe < of => Some((pe, of)),
            _ => return Err(Failure::usage("--child is for gpucomm itself")),
        };
        Ok(NvshmemOptions {
            operation: self.operation,
            issue: self.issue,
            min: self.min,
            max: self.max,
            factor: self.factor,
            iterations: self.iterations,
            warmup: self.warmup,
            procs,
            kind: self.kind,
            redop: self.redop,
            checks: self.checks,
            timeout: self.timeout.map(|seconds| Duration::from_secs(seconds as u64)),
            json: self.json,
            child,
            launch,
        })
    }
}

impl NvshmemOptions {
    /// How many PEs there are, where the machine has so many devices.
    pub fn pes(&self, devices: usize) -> usize {
        self.procs.unwrap_or(if self.operation.is_of_two() { 2 } else { devices.max(1) })
    }
}
