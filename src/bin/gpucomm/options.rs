//! The command line. Nonsense is one line that says what is wrong, never a page of usage.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use gpucomm::ElementKind;

use crate::failure::{Failure, Result};
use crate::neutral::Neutral;
use crate::perf::operation::Operation;
use crate::size::{self, Step};

/// What the user wants.
#[derive(Debug)]
pub enum Command {
    Info(InfoArgs),
    Perf(Box<PerfOptions>),
    /// Help, or the version: to be printed.
    Text(String),
}

#[derive(Debug, Parser)]
#[command(name = "gpucomm", version, about = "Shows what NCCL can do on this machine, and how fast it is")]
struct Program {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show versions, devices, links between them, and what NCCL can do here
    ///
    /// Works without a GPU: it then shows the versions, says why no GPU can be used, and exits with 0.
    Info(InfoArgs),
    /// Time an operation, check every element, and print nccl-tests' table
    ///
    /// OP is one of all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather, scatter, sendrecv,
    /// all_to_all_v. Options are those of nccl-tests; those that are not listed are taken where they change nothing (-G 0).
    /// Exits with 1 if any value is wrong, and with 2 if the options make no sense.
    Perf(Box<PerfArgs>),
}

/// Options of `gpucomm info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// Start NCCL on all GPUs and try it
    #[arg(long)]
    pub probe: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(arg_required_else_help = false)]
struct PerfArgs {
    /// The operation
    #[arg(value_name = "OP", value_parser = Operation::parse)]
    operation: Operation,
    /// Smallest size in bytes; K, M and G are powers of 1024 [default: 32M]
    #[arg(short = 'b', long = "minbytes", value_name = "SIZE", value_parser = size::parse)]
    min: Option<usize>,
    /// Largest size in bytes [default: 32M]
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", value_parser = size::parse)]
    max: Option<usize>,
    /// From one size to the next: multiply by this
    #[arg(short = 'f', long = "stepfactor", value_name = "FACTOR", value_parser = factor)]
    factor: Option<usize>,
    /// From one size to the next: add this [default: 1M]
    #[arg(short = 'i', long = "stepbytes", value_name = "SIZE", value_parser = increment)]
    increment: Option<usize>,
    /// Timed iterations of each size
    #[arg(short = 'n', long = "iters", value_name = "N", default_value = "20", value_parser = positive)]
    iterations: usize,
    /// Warm-up iterations of each size
    #[arg(short = 'w', long = "warmup_iters", value_name = "N", default_value = "1", value_parser = natural)]
    warmup: usize,
    /// GPUs that each thread drives, all in one group
    #[arg(short = 'g', long = "ngpus", value_name = "N", default_value = "1", value_parser = positive)]
    gpus: usize,
    /// Threads; ranks are threads times GPUs per thread
    #[arg(short = 't', long = "nthreads", value_name = "N", default_value = "1", value_parser = positive)]
    threads: usize,
    /// Run N processes, one rank each, instead of threads
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with_all = ["gpus", "threads"])]
    procs: Option<usize>,
    /// Element type: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, all
    #[arg(short = 'd', long = "datatype", value_name = "TYPE", default_value = "float", value_parser = kinds)]
    kinds: List<ElementKind>,
    /// Reduction: sum, prod, min, max, avg, mulsum, all
    #[arg(short = 'o', long = "op", value_name = "REDOP", default_value = "sum", value_parser = redops)]
    redops: List<RedOp>,
    /// Root rank, or all
    #[arg(short = 'r', long = "root", value_name = "RANK", default_value = "0", value_parser = root)]
    #[arg(allow_negative_numbers = true)]
    root: Root,
    /// Check iterations of each size; 0 checks nothing
    #[arg(short = 'c', long = "check", value_name = "N", default_value = "1", value_parser = natural)]
    checks: usize,
    /// Buffers: 0 plain, 2 symmetric windows
    #[arg(short = 'R', long = "local_register", value_name = "0|2", default_value = "0", value_parser = windows)]
    windows: Registration,
    /// Time over ranks: 0 rank 0, 1 average, 2 minimum, 3 maximum
    #[arg(short = 'a', long = "average", value_name = "0..3", default_value = "1", value_parser = average)]
    average: Average,
    /// Give up when something takes longer than this many seconds
    #[arg(short = 'T', long = "timeout", value_name = "SECONDS", value_parser = positive)]
    timeout: Option<usize>,
    /// Write the set-up and all rows to FILE
    #[arg(short = 'J', long, alias = "output_file", value_name = "FILE")]
    json: Option<PathBuf>,
    /// Which rank of a `--procs` run this process is
    #[arg(long, hide = true, value_parser = natural, requires = "procs")]
    child: Option<usize>,
    #[command(flatten)]
    _neutral: Neutral,
}

/// Options of `gpucomm perf`, checked as far as that can be done without looking at the machine.
#[derive(Debug)]
pub struct PerfOptions {
    pub operation: Operation,
    pub min: usize,
    pub max: usize,
    pub step: Step,
    pub iterations: usize,
    pub warmup: usize,
    pub gpus: usize,
    pub threads: usize,
    pub procs: Option<usize>,
    pub kinds: Vec<ElementKind>,
    pub redops: Vec<RedOp>,
    pub root: Root,
    pub checks: usize,
    pub windows: bool,
    pub average: Average,
    pub timeout: Option<Duration>,
    pub json: Option<PathBuf>,
    pub child: Option<usize>,
}

/// Several values of one option. (Clap would take a `Vec` for an option given several times.)
#[derive(Debug, Clone)]
struct List<T>(Vec<T>);

/// What `-R` chooses.
#[derive(Debug, Clone, Copy)]
struct Registration(bool);

/// A reduction, by nccl-tests' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedOp {
    Sum,
    Prod,
    Max,
    Min,
    Avg,
    /// Each rank's values times a factor of that rank, summed.
    MulSum,
}

impl RedOp {
    pub const ALL: [Self; 6] = [Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg, Self::MulSum];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
            Self::MulSum => "mulsum",
        }
    }
}

/// Which ranks are root, in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    Rank(usize),
    All,
}

/// How the times of the ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Average {
    First,
    Mean,
    Min,
    Max,
}

impl Average {
    pub fn of(self, times: &[f64]) -> f64 {
        match self {
            Self::First => times[0],
            Self::Mean => times.iter().sum::<f64>() / times.len() as f64,
            Self::Min => times.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => times.iter().copied().fold(0.0, f64::max),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::First => "rank 0",
            Self::Mean => "average",
            Self::Min => "minimum",
            Self::Max => "maximum",
        }
    }
}

/// The name that nccl-tests uses for a type.
pub fn kind_name(kind: ElementKind) -> &'static str {
    KINDS.iter().find(|(_, k)| *k == kind).map_or(kind.name(), |(name, _)| name)
}

const KINDS: [(&str, ElementKind); 10] = [
    ("int8", ElementKind::I8),
    ("uint8", ElementKind::U8),
    ("int32", ElementKind::I32),
    ("uint32", ElementKind::U32),
    ("int64", ElementKind::I64),
    ("uint64", ElementKind::U64),
    ("half", ElementKind::F16),
    ("float", ElementKind::F32),
    ("double", ElementKind::F64),
    ("bfloat16", ElementKind::Bf16),
];

fn kinds(text: &str) -> Result<List<ElementKind>, String> {
    if text == "all" {
        return Ok(List(KINDS.map(|(_, kind)| kind).to_vec()));
    }
    match KINDS.iter().find(|(name, kind)| *name == text || kind.name() == text) {
        Some((_, kind)) => Ok(List(vec![*kind])),
        None => Err(format!("expected one of {}, all", KINDS.map(|(name, _)| name).join(", "))),
    }
}

fn redops(text: &str) -> Result<List<RedOp>, String> {
    if text == "all" {
        return Ok(List(RedOp::ALL.to_vec()));
    }
    match RedOp::ALL.into_iter().find(|op| op.name() == text) {
        Some(op) => Ok(List(vec![op])),
        None => Err(format!("expected one of {}, all", RedOp::ALL.map(RedOp::name).join(", "))),
    }
}

fn root(text: &str) -> Result<Root, String> {
    if text == "all" || text == "-1" {
        return Ok(Root::All);
    }
    natural(text).map(Root::Rank).map_err(|_| "expected a rank, or all".to_owned())
}

fn natural(text: &str) -> Result<usize, String> {
    text.parse::<u32>().map(|n| n as usize).map_err(|_| format!("expected a number from 0 to {}", u32::MAX))
}

fn positive(text: &str) -> Result<usize, String> {
    natural(text).ok().filter(|&n| n > 0).ok_or_else(|| format!("expected a number from 1 to {}", u32::MAX))
}

fn factor(text: &str) -> Result<usize, String> {
    match natural(text) {
        Ok(n) if n >= 2 => Ok(n),
        _ => Err("expected a whole factor of at least 2; for equal steps use -i".to_owned()),
    }
}

fn increment(text: &str) -> Result<usize, String> {
    match size::parse(text)? {
        0 => Err("an increment of 0 never gets anywhere".to_owned()),
        bytes => Ok(bytes),
    }
}

fn windows(text: &str) -> Result<Registration, String> {
    match text {
        "0" => Ok(Registration(false)),
        "2" => Ok(Registration(true)),
        "1" => Err("local registration is not offered: expected 0 (plain buffers) or 2 (symmetric windows)".to_owned()),
        _ => Err("expected 0 (plain buffers) or 2 (symmetric windows)".to_owned()),
    }
}

fn average(text: &str) -> Result<Average, String> {
    match text {
        "0" => Ok(Average::First),
        "1" => Ok(Average::Mean),
        "2" => Ok(Average::Min),
        "3" => Ok(Average::Max),
        _ => Err("expected 0 (rank 0), 1 (average), 2 (minimum) or 3 (maximum)".to_owned()),
    }
}

/// Reads the arguments, the program's own name first.
pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Command> {
    match Program::try_parse_from(args) {
        Ok(Program { command: Verb::Info(args) }) => Ok(Command::Info(args)),
        Ok(Program { command: Verb::Perf(args) }) => args.checked().map(|options| Command::Perf(Box::new(options))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Command::Text(error.render().to_string())),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
                Err(Failure::usage("no command: expected `gpucomm info` or `gpucomm perf OP` (--help tells more)"))
            }
            _ => {
                // Clap's first paragraph says what is wrong; tips and usage follow it.
                let text = error.render().to_string();
                let first = text.split("\n\n").next().unwrap_or(&text);
                let words: Vec<_> = first.lines().map(str::trim).collect();
                Err(Failure::usage(words.join(" ").trim_start_matches("error: ")))
            }
        },
    }
}

impl PerfArgs {
    fn checked(self) -> Result<PerfOptions> {
        const DEFAULT: usize = 32 << 20;
        // A bound that is not given makes room for the one that is.
        let min = self.min.unwrap_or(self.max.map_or(DEFAULT, |max| max.min(DEFAULT)));
        let max = self.max.unwrap_or(min.max(DEFAULT));
        if min > max {
            return Err(Failure::usage(format!("the smallest size (-b {min}) is above the largest (-e {max})")));
        }
        let step = match (self.factor, self.increment) {
            (Some(_), Some(_)) => return Err(Failure::usage("-f and -i exclude each other: multiply, or add?")),
            (Some(factor), None) => Step::Factor(factor),
            (None, increment) => Step::Bytes(increment.unwrap_or(1 << 20)),
        };
        if min == 0 && max > 0 && matches!(step, Step::Factor(_)) {
            return Err(Failure::usage("-b 0 never grows by a factor (-f): start above 0, or use -i"));
        }
        let ranks = match self.procs {
            Some(procs) => procs,
            None => self.gpus.checked_mul(self.threads).ok_or_else(|| Failure::usage("-g times -t is too large"))?,
        };
        if let Root::Rank(root) = self.root
            && root >= ranks
        {
            return Err(Failure::usage(format!("there is no root rank {root} (-r): ranks are 0 to {}", ranks - 1)));
        }
        if self.child.is_some_and(|child| child >= ranks) {
            return Err(Failure::usage("--child is for gpucomm itself"));
        }
        Ok(PerfOptions {
            operation: self.operation,
            min,
            max,
            step,
            iterations: self.iterations,
            warmup: self.warmup,
            gpus: self.gpus,
            threads: self.threads,
            procs: self.procs,
            kinds: self.kinds.0,
            redops: self.redops.0,
            root: self.root,
            checks: self.checks,
            windows: self.windows.0,
            average: self.average,
            timeout: self.timeout.map(|seconds| Duration::from_secs(seconds as u64)),
            json: self.json,
            child: self.child,
        })
    }
}

impl PerfOptions {
    pub fn ranks(&self) -> usize {
        self.procs.unwrap_or(self.gpus * self.threads)
    }

    /// What is root in turn; -1, as nccl-tests prints it, where the operation has none.
    pub fn roots(&self) -> Vec<i64> {
        match self.root {
            _ if !self.operation.has_root() => vec![-1],
            Root::Rank(rank) => vec![rank as i64],
            Root::All => (0..self.ranks() as i64).collect(),
        }
    }

    /// The reductions in turn; none where the operation does not reduce.
    pub fn reductions(&self) -> Vec<Option<RedOp>> {
        if self.operation.reduces() { self.redops.iter().copied().map(Some).collect() } else { vec![None] }
    }
}
