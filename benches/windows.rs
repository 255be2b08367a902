//! What it costs to send from an address that is no multiple of four, between symmetric windows.
//!
//! `cargo bench --bench windows`, on GPUs; with `--features emulator` the numbers mean nothing. The NCCL that is running may give wrong
//! data there (docs/known-bugs.md), so such calls are made in another way. The columns are µs an operation: aligned, one element
//! further, and, to compare, memory of NCCL that is no window, aligned and one element further.

use std::time::Instant;

use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{Clique, CommBuffer, Communicator, Device, InPlace, Reduce, ReduceOp, Result, Stream, f16};

/// Calls in a loop that is timed; the last one is waited for.
const CALLS: usize = 100;
const LOOPS: usize = 15;

/// Bytes that each rank sends.
const SIZES: [usize; 5] = [64, 4 << 10, 64 << 10, 1 << 20, 16 << 20];

/// Two buffers of one rank.
struct Pair<'c, T: Reduce> {
    send: CommBuffer<'c, T>,
    recv: CommBuffer<'c, T>,
}

type Operation<T> = fn(&Communicator, &mut Pair<'_, T>, usize, usize, &Stream) -> Result<()>;

fn all_gather<T: Reduce>(comm: &Communicator, of: &mut Pair<'_, T>, at: usize, len: usize, on: &Stream) -> Result<()> {
    comm.all_gather((of.send.slice(at..at + len), of.recv.slice_mut(..len * comm.size())), on)
}

fn all_gather_in_place(comm: &Communicator, of: &mut Pair<'_, u8>, at: usize, len: usize, on: &Stream) -> Result<()> {
    comm.all_gather(InPlace(of.recv.slice_mut(at..at + len * comm.size())), on)
}

fn all_reduce(comm: &Communicator, of: &mut Pair<'_, f16>, at: usize, len: usize, on: &Stream) -> Result<()> {
    comm.all_reduce((of.send.slice(at..at + len), of.recv.slice_mut(..len)), ReduceOp::Sum, on)
}

fn reduce_scatter(comm: &Communicator, of: &mut Pair<'_, f16>, at: usize, len: usize, on: &Stream) -> Result<()> {
    let part = len / comm.size();
    let send = of.send.slice(at..at + part * comm.size());
    comm.reduce_scatter((send, of.recv.slice_mut(..part)), ReduceOp::Sum, on)
}

/// The median over the loops, in µs.
fn time<T: Reduce>(
    comm: &Communicator,
    stream: &Stream,
    operation: Operation<T>,
    pair: &mut Pair<'_, T>,
    at: usize,
    len: usize,
) -> Result<f64> {
    let mut times = Vec::with_capacity(LOOPS);
    for number in 0..=LOOPS {
        let start = Instant::now();
        for _ in 0..CALLS {
            operation(comm, pair, at, len, stream)?;
        }
        stream.synchronize()?;
        // The first one connects, and loads kernels.
        if number > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[LOOPS / 2])
}

fn table<T: Reduce>(clique: &Clique, name: &str, operation: Operation<T>) -> Result<()> {
    for bytes in SIZES {
        let len = bytes / size_of::<T>();
        let rows = clique.spmd(|comm| {
            let stream = Stream::new(comm.device())?;
            let whole = len * comm.size() + 1;
            let mut windows = Pair { send: comm.alloc(&stream, len + 1)?, recv: comm.alloc(&stream, whole)? };
            let mut plain = Pair {
                send: comm.alloc_local(&stream, len + 1)?.into_fitting(),
                recv: comm.alloc_local(&stream, whole)?.into_fitting(),
            };
            Ok([
                time(comm, &stream, operation, &mut windows, 0, len)?,
                time(comm, &stream, operation, &mut windows, 1, len)?,
                time(comm, &stream, operation, &mut plain, 0, len)?,
                time(comm, &stream, operation, &mut plain, 1, len)?,
            ])
        })?;
        let [aligned, further, plain, plain_further] = rows[0];
        println!("| {name} of {} | {bytes} | {aligned:.1} | {further:.1} | {plain:.1} | {plain_further:.1} |", T::KIND);
    }
    Ok(())
}

fn main() -> Result<()> {
    // SAFETY: only collectives run in these windows, and all ranks come to each.
    let config = unsafe { Config::new().with_force_windows() };
    let clique = Clique::init_all_with(&Device::all()?, &InitOptions::new().with_config(config))?;
    println!("{} ranks, NCCL {}, µs an operation", clique.size(), gpucomm::nccl::version()?);
    println!("| operation | bytes sent | window | + 1 element | no window | + 1 element |");
    println!("|---|---|---|---|---|---|");
    table::<u8>(&clique, "all_gather", all_gather)?;
    table::<f16>(&clique, "all_gather", all_gather)?;
    table::<u8>(&clique, "all_gather in place", all_gather_in_place)?;
    table::<f16>(&clique, "all_reduce", all_reduce)?;
    table::<f16>(&clique, "reduce_scatter", reduce_scatter)
}
