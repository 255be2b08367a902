//! Memory and streams of the crate `cudarc` in collectives, between copies of cudarc's own.
//!
//! Each GPU has two buffers, two streams of cudarc's, and work that keeps each stream behind the host for a while. A thousand times, one of the two does
//! something with the buffers, drawn anew: a copy by cudarc, or an operation of this crate. What should come of it is worked out on the
//! host, and compared now and then. Nothing is waited for in between, but what cudarc's events and this crate's order of streams see to.
//!
//! `cargo run --example cudarc --features cudarc [ROUNDS [ELEMENTS [SEED]]]`. It takes GPUs, one at least: cudarc knows of no emulator.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use gpucomm::cuda::cudarc::SharedStream;
use gpucomm::{Clique, Communicator, Device, InPlace, ReduceOp, group};

type Failure = Box<dyn Error + Send + Sync>;

/// Elements of the copies that keep a stream busy, for each element of a buffer.
const BUSY: usize = 64;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: u64| args.next().map_or(Ok(default), |arg| arg.parse());
    let (rounds, len, seed) = (next(1000)?, next(100_003)?, next(fastrand::u64(..))?);
    run(rounds, usize::try_from(len)?, seed)
}

pub(crate) fn run(rounds: u64, len: usize, seed: u64) -> Result<(), Failure> {
    let clique = Clique::init_all(&Device::all()?)?;
    println!("{} GPUs, {rounds} rounds, {len} elements, seed {seed}", clique.size());
    let compared = clique.try_spmd(|comm| rank(comm, rounds, len, seed))?;
    println!("{rounds} rounds right; each rank has compared {} buffers", compared[0]);
    Ok(())
}

/// What one rank does, and what all of them should have. All draw the same.
fn rank(comm: &Communicator, rounds: u64, len: usize, seed: u64) -> Result<usize, Failure> {
    let (me, size) = (comm.rank(), comm.size());
    let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
    let context = CudaContext::new(usize::try_from(comm.device().ordinal())?)?;
    let mut streams = [Lane::new(&context, len)?, Lane::new(&context, len)?];
    // cudarc keeps one event for all reads of a slice, and so loses sight of those on other streams than the last one's. So its own reads are on
    // one stream here, and what only reads is lent by `&mut` all the same, which counts as a write.
    let first = Arc::clone(&streams[0].theirs);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut compared = 0;

    let (mut x, mut y) = (streams[0].theirs.alloc_zeros::<u32>(len)?, streams[1].theirs.alloc_zeros::<u32>(len)?);
    // What each rank has in them.
    let (mut all_x, mut all_y) = (vec![vec![0u32; len]; size], vec![vec![0u32; len]; size]);

    for round in 0..rounds {
        let lane = &mut streams[random.usize(..2)];
        if random.u32(..4) == 0 {
            // What comes next on this stream is late, so that what does not wait for it comes too early.
            lane.theirs.memcpy_dtod(&lane.from, &mut lane.to)?;
        }
        let (shared, theirs) = (lane.shared.clone(), Arc::clone(&lane.theirs));
        match random.u32(..11) {
            0 => {
                for (rank, values) in all_x.iter_mut().enumerate() {
                    let (first, step) = (random.u32(..).wrapping_add(rank as u32), random.u32(..) | 1);
                    *values = (0..len as u32).map(|at| at.wrapping_mul(step).wrapping_add(first)).collect();
                }
                theirs.memcpy_htod(&all_x[me], &mut x)?;
            }
            1 => {
                shared.lend(&mut x, |mut x| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &shared))?;
                let sums = sum(&all_x);
                all_x.fill(sums);
            }
            2 => {
                shared.lend((&mut x, &mut y), |(x, mut y)| comm.all_reduce((&x, &mut y), ReduceOp::Sum, &shared))?;
                all_y.fill(sum(&all_x));
            }
            3 => {
                let root = random.usize(..size);
                shared.lend(&mut y, |mut y| comm.broadcast(InPlace(&mut y), root, &shared))?;
                let values = all_y[root].clone();
                all_y.fill(values);
            }
            4 => {
                // A part of each rank's, which does not begin at the front.
                let (part, at) = (len / size, random.usize(..=len - len / size));
                let (send, recv) = (x.slice_mut(at..at + part), y.slice_mut(..part * size));
                shared.lend((send, recv), |(x, mut y)| comm.all_gather((&x, &mut y), &shared))?;
                let gathered: Vec<u32> = all_x.iter().flat_map(|values| values[at..at + part].to_vec()).collect();
                all_y.iter_mut().for_each(|values| values[..part * size].copy_from_slice(&gathered));
            }
            5 => {
                shared.lend((&mut x, &mut y), |(x, mut y)| {
                    group(|g| {
                        g.send(comm, &x, next, &shared)?;
                        g.recv(comm, &mut y, previous, &shared)
                    })
                })?;
                all_y.clone_from(&all_x);
                all_y.rotate_right(1);
            }
            6 => {
                first.memcpy_dtod(&x, &mut y)?;
                all_y.clone_from(&all_x);
            }
            7 => {
                // On another stream than the one that it is lent on.
                let other = &streams[random.usize(..2)].shared;
                shared.lend((&mut x, &mut y), |(mut x, y)| x.copy_from(other, &y))?;
                all_x.clone_from(&all_y);
            }
            8 => {
                // What is dropped is freed behind what uses it, and what is new may be in the same place.
                y = theirs.alloc_zeros(len)?;
                all_y.fill(vec![0; len]);
            }
            9 => compared += compare("x", round, &x, &all_x[me], &first)?,
            _ => compared += compare("y", round, &y, &all_y[me], &first)?,
        }
    }
    compared += compare("x", rounds, &x, &all_x[me], &first)?;
    compared += compare("y", rounds, &y, &all_y[me], &first)?;
    // Of operations that have failed, these know.
    streams.iter().try_for_each(|lane| lane.shared.synchronize())?;
    Ok(compared)
}

/// A stream of cudarc, and what keeps it busy.
struct Lane {
    shared: SharedStream,
    theirs: Arc<CudaStream>,
    from: CudaSlice<u32>,
    to: CudaSlice<u32>,
}

impl Lane {
    fn new(context: &Arc<CudaContext>, len: usize) -> Result<Self, Failure> {
        let theirs = context.new_stream()?;
        let (from, to) = (theirs.alloc_zeros(BUSY * len)?, theirs.alloc_zeros(BUSY * len)?);
        Ok(Self { shared: SharedStream::new(&theirs)?, theirs, from, to })
    }
}

/// The sums over all ranks.
fn sum(all: &[Vec<u32>]) -> Vec<u32> {
    (0..all[0].len()).map(|at| all.iter().fold(0, |sum: u32, values| sum.wrapping_add(values[at]))).collect()
}

/// One buffer was compared, if it is right.
fn compare(
    name: &str,
    round: u64,
    buffer: &CudaSlice<u32>,
    expected: &[u32],
    on: &Arc<CudaStream>,
) -> Result<usize, Failure> {
    let got = on.clone_dtoh(buffer)?;
    match got.iter().zip(expected).position(|(got, expected)| got != expected) {
        None if got.len() == expected.len() => Ok(1),
        None => Err(format!("round {round}: {name} has {} elements, not {}", got.len(), expected.len()).into()),
        Some(at) => {
            let (got, expected) = (got[at], expected[at]);
            Err(format!("round {round}: element {at} of {name} is {got}, and should be {expected}").into())
        }
    }
}
