//! The command line. Nonsense is one line that says what is wrong, never a page of usage.

pub mod doctor;
#[cfg(feature = "nvshmem")]
pub mod nvshmem;
mod run;
mod store;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};
use gpucomm::{ElementKind, Launch};

pub use self::run::{Engine, Place, RunArgs, RunOptions};
pub use self::store::StoreArgs;
pub use self::values::{Average, Buffers, RedOp, Root, Way, kind_name};
use self::values::{List, average, buffers, factor, increment, kinds, launches, natural, positive, redops, root};
use crate::failure::{Failure, Result};
use crate::launch;
use crate::neutral::Neutral;
use crate::perf::operation::Operation;
use crate::perf::plot;
use crate::size::{self, Step, sweep};

/// What the user wants.
#[derive(Debug)]
pub enum Command {
    Info(InfoArgs),
    Perf(Box<PerfOptions>),
    #[cfg(feature = "nvshmem")]
    PerfNvshmem(nvshmem::NvshmemOptions),
    Diagnose(DiagnoseArgs),
    Doctor(doctor::DoctorOptions),
    Run(Box<RunOptions>),
    Store(StoreArgs),
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
    /// all_to_all_v. Options are those of nccl-tests; those that are not listed are taken where they change nothing (-p 0).
    /// Exits with 1 if any value is wrong, and with 2 if the options make no sense. With --nvshmem, OP is one of NVSHMEM's: put, get,
    /// put_signal, barrier, reduce, broadcast, fcollect, alltoall, reducescatter; `gpucomm perf --nvshmem --help` has its options.
    Perf(Box<PerfArgs>),
    /// Time an operation of NVSHMEM, check every element, and print perftest's table
    ///
    /// OP is one of put, get, put_signal, barrier, reduce, broadcast, fcollect, alltoall, reducescatter. Each PE is a process; where there are
    /// fewer GPUs than PEs, they share them, as far as NVSHMEM does. Options are those of perftest.
    /// Exits with 1 if any value is wrong, and with 2 if the options make no sense.
    #[cfg(feature = "nvshmem")]
    #[command(name = PERF_NVSHMEM, hide = true, override_usage = "gpucomm perf <OP> --nvshmem [OPTIONS]")]
    PerfNvshmem(Box<nvshmem::NvshmemArgs>),
    /// Say which rank did not come, or did something else, from the dumps of all ranks
    ///
    /// Dumps are what GPUCOMM_DUMP=DIRECTORY leaves in that directory when something fails, and what nccl::dump_all writes. While the
    /// program hangs, NCCL's RAS service can be asked, with --ras. The first line names the culprit; indented lines say more.
    ///
    /// Exits with 0 if a culprit was found, with 3 if none was, with 1 if a dump or the service cannot be read, and with 2 if the
    /// options make no sense.
    Diagnose(DiagnoseArgs),
    /// Say what will go wrong, before NCCL starts
    ///
    /// Looks at driver, GPUs, libraries and their known bugs, links, RDMA, shared memory, limits, interfaces, NCCL's variables and files, and
    /// what a launcher has set. Each check is ok, a note, a warning (slow, or well by luck) or a problem, with one line of what was found
    /// and one of what to do. With --exchange, started once a rank, whether all ranks reach each other as well.
    /// Exits with 1 if there is a problem, and with 2 if the options make no sense.
    ///
    /// JSON is an object of `program`, `backend` (nvidia or emulator), `verdict` (the worst), `findings` (a list of `check`, `verdict`,
    /// `found`, `advice` or null, and with --exchange the `ranks` that have found it) and `reach` (null, or `size`, `missing` ranks, `hosts`
    /// by rank, interfaces that are `open` between all, and `closed` ways: `from`, `to`, `interface`, `address`, `used` by NCCL, `why`).
    Doctor(doctor::DoctorArgs),
    /// Start ranks of a program on this machine, and end all when one fails
    ///
    /// Each is a process, with torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...), and leads a process group. Signals are passed
    /// on to all; a second SIGINT kills them. Exits with the code of the rank that failed first; 128 + N where signal N has killed it; 127 where
    /// there is no such program.
    /// Rank 0 reads what comes here on standard input, unless that is a terminal. What ranks have started, and is left at the end, is ended too, be it in a
    /// session of its own. On several machines, other engines start ranks: --print has the line for them.
    ///
    /// Ranks of gpucomm meet at a store that this program hosts (GPUCOMM_STORE, unless you set it).
    /// It outlives every rank, rank 0 as well, and the others learn at once which one has died. On
    /// one machine it listens at 127.0.0.1 and, if this program is built with the feature `secret`,
    /// admits only those who know a random GPUCOMM_STORE_SECRET; set that to nothing for ranks that
    /// are built without it.
    Run(Box<RunArgs>),
    /// Host a store at which ranks meet, and which outlives all of them
    ///
    /// For ranks that other launchers start, with GPUCOMM_STORE=server://HOST:PORT: the death of
    /// rank 0 does not end the store then. It serves any number of jobs; GPUCOMM_JOB tells them
    /// apart where launchers have no name for a job. With GPUCOMM_STORE_SECRET set, here and for
    /// the ranks, nobody else is admitted (feature `secret`). Prints the address at which it
    /// listens, and runs until SIGTERM or SIGINT.
    Store(StoreArgs),
}

/// Options of `gpucomm diagnose`.
#[derive(Debug, Args)]
pub struct DiagnoseArgs {
    /// Dumps, or directories of dumps
    #[arg(required_unless_present = "ras", value_name = "DUMP")]
    pub dumps: Vec<PathBuf>,
    /// Ask NCCL's RAS service, of 2.28.7 or newer, as well [default: NCCL_RAS_ADDR, or localhost:28028]
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub ras: Option<String>,
}

/// Options of `gpucomm info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// Start NCCL on all GPUs and try it
    #[arg(long)]
    pub probe: bool,
    /// List all known bugs of the running versions, with what is done about each
    #[arg(short, long)]
    pub verbose: bool,
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
    /// Element type: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2, all
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
    /// Buffers: 0 plain, 1 registered, 2 symmetric windows; several, such as 0,1,2, have a table each
    #[arg(short = 'R', long = "local_register", value_name = "LIST", default_value = "0", value_parser = buffers)]
    buffers: List<Buffers>,
    /// Capture the iterations of each size as a CUDA graph, and launch that N times; 0 launches them one by one. Several, such
    /// as 0,20, have a table each
    #[arg(short = 'G', long = "cudagraph", value_name = "LIST", default_value = "0", value_parser = launches)]
    launches: List<usize>,
    /// Time over ranks: 0 rank 0, 1 average, 2 minimum, 3 maximum
    #[arg(short = 'a', long = "average", value_name = "0..3", default_value = "1", value_parser = average)]
    average: Average,
    /// Give up when something takes longer than this many seconds
    #[arg(short = 'T', long = "timeout", value_name = "SECONDS", value_parser = positive)]
    timeout: Option<usize>,
    /// Write the set-up and all rows to FILE
    #[arg(short = 'J', long, alias = "output_file", value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw time and bus bandwidth over size, out of place, into the SVG file FILE: a line for each table
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
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
    pub buffers: Vec<Buffers>,
    pub launches: Vec<usize>,
    pub average: Average,
    pub timeout: Option<Duration>,
    pub json: Option<PathBuf>,
    pub plot: Option<PathBuf>,
    pub child: Option<usize>,
    /// What a launcher has started, if this is one of several ranks.
    pub launch: Option<Launch>,
}

/// What clap calls `perf` with `--nvshmem`.
const PERF_NVSHMEM: &str = "perf-nvshmem";

/// Reads the arguments, the program's own name first.
pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|verb| verb == "perf") && args.iter().any(|arg| arg == "--nvshmem") {
        if cfg!(not(feature = "nvshmem")) {
            return Err(Failure::usage("this gpucomm is built without NVSHMEM: `--features nvshmem` puts it in"));
        }
        args[1] = PERF_NVSHMEM.into();
    }
    let of_nvshmem = args.get(1).is_some_and(|verb| verb == PERF_NVSHMEM);
    match Program::try_parse_from(args) {
        Ok(Program { command: Verb::Info(args) }) => Ok(Command::Info(args)),
        Ok(Program { command: Verb::Diagnose(args) }) => Ok(Command::Diagnose(args)),
        Ok(Program { command: Verb::Doctor(args) }) => args.checked().map(Command::Doctor),
        Ok(Program { command: Verb::Run(args) }) => args.checked().map(|options| Command::Run(Box::new(options))),
        Ok(Program { command: Verb::Store(args) }) => Ok(Command::Store(args)),
        #[cfg(feature = "nvshmem")]
        Ok(Program { command: Verb::PerfNvshmem(args) }) => {
            let launch = if args.is_child() { None } else { launch::found()? };
            args.checked(launch).map(Command::PerfNvshmem)
        }
        Ok(Program { command: Verb::Perf(args) }) => {
            let launch = if args.child.is_some() { None } else { launch::found()? };
            args.checked(launch).map(|options| Command::Perf(Box::new(options)))
        }
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Command::Text(error.render().to_string())),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => Err(Failure::usage(
                "no command: expected `gpucomm info`, `gpucomm doctor`, `gpucomm perf OP`, `gpucomm diagnose DUMP` or `gpucomm run PROGRAM` (--help tells more)",
            )),
            _ => {
                // Clap's first paragraph says what is wrong; tips and usage follow it.
                let text = error.render().to_string();
                let first = text.split("\n\n").next().unwrap_or(&text);
                let words: Vec<_> = first.lines().map(str::trim).collect();
                let mut line = words.join(" ").trim_start_matches("error: ").to_owned();
                if let Some(word) = meant(&error) {
                    line.push_str(&format!(": did you mean '{word}'?"));
                }
                if of_nvshmem && error.kind() == ErrorKind::UnknownArgument {
                    line.push_str(" (`gpucomm perf --nvshmem --help` lists the options: --procs N for so many PEs)");
                }
                Err(Failure::usage(line))
            }
        },
    }
}

/// What looks like what was written, and is known.
fn meant(error: &clap::Error) -> Option<&str> {
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.as_str()),
        // The likest comes last.
        ContextValue::Strings(words) => words.last().map(String::as_str),
        _ => None,
    })
}

impl PerfArgs {
    fn checked(self, launch: Option<Launch>) -> Result<PerfOptions> {
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
        if let Some(launch) = &launch {
            launch::one_rank_each(launch, self.procs.is_none() && self.gpus == 1 && self.threads == 1)?;
        }
        let procs = self.procs.or(launch.as_ref().map(Launch::size));
        let ranks = match procs {
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
        let options = PerfOptions {
            operation: self.operation,
            min,
            max,
            step,
            iterations: self.iterations,
            warmup: self.warmup,
            gpus: self.gpus,
            threads: self.threads,
            procs,
            kinds: self.kinds.0,
            redops: self.redops.0,
            root: self.root,
            checks: self.checks,
            buffers: self.buffers.0,
            launches: self.launches.0,
            average: self.average,
            timeout: self.timeout.map(|seconds| Duration::from_secs(seconds as u64)),
            json: self.json,
            plot: self.plot,
            child: self.child,
            launch,
        };
        options.drawable()?;
        Ok(options)
    }
}

impl PerfOptions {
    pub fn ranks(&self) -> usize {
        self.procs.unwrap_or(self.gpus * self.threads)
    }

    /// What each table is of, in turn.
    pub fn ways(&self) -> impl Iterator<Item = Way> {
        self.launches.iter().flat_map(|&launches| self.buffers.iter().map(move |&buffers| Way { buffers, launches }))
    }

    /// Whether a plot can show what will be measured, if one is asked for.
    fn drawable(&self) -> Result<()> {
        if self.plot.is_none() {
            return Ok(());
        }
        if self.plot == self.json {
            return Err(Failure::usage("--json and --plot name the same file"));
        }
        if let [first, second, ..] = *self.launches.iter().filter(|&&launches| launches > 0).collect::<Vec<_>>() {
            return Err(Failure::usage(format!(
                "--plot shows one kind of graphs, and -G has {first} and {second} launches"
            )));
        }
        let lines = self.ways().count() * self.kinds.len() * self.reductions().len() * self.roots().len();
        if lines > plot::LINES {
            let room = plot::LINES;
            return Err(Failure::usage(format!("--plot has room for {room} lines, and this run has {lines}")));
        }
        let bytes = |kind: &ElementKind, size| self.operation.shape(size, kind.size(), self.ranks()).bytes();
        let mut sizes = sweep(self.min, self.max, self.step);
        if !sizes.any(|size| self.kinds.iter().any(|kind| bytes(kind, size) > 0)) {
            return Err(Failure::usage("--plot has nothing to show: all sizes come to 0 bytes"));
        }
        Ok(())
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
