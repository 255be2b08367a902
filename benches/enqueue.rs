//! What the safe layer adds to the C call: host time of an enqueue, and heap allocations.
//!
//! `cargo bench --bench enqueue`, on GPUs; with `--features emulator` the numbers mean nothing. `-- all_reduce` after that
//! measures one operation only. Blocks of raw calls and of safe calls take turns on the same communicator and buffers; the
//! table shows the median over the blocks.
//!
//! With one rank, an in-place all-reduce does nothing in NCCL but check its arguments, so the difference is seen most clearly
//! there. With several, their threads run at the same time. The ranks of a clique compare each operation before it is launched;
//! those that were made one by one, as across processes, do not, so the second half shows what that costs. An all_to_all_v is
//! no call of NCCL, but a group of two for each rank: the raw side makes those.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Instant;

use gpucomm::{Clique, CommBuffer, Communicator, Device, InPlace, ReduceOp, Result, Stream, UniqueId, sys};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is going away has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Calls in a block: fewer than may be in flight, so that none waits.
const CALLS: usize = 90;
const BLOCKS: usize = 300;
const WARM_UP: usize = 20;

struct Rank {
    raw_ns: f64,
    safe_ns: f64,
    difference_ns: f64,
    /// Of this crate, in a call.
    allocations: f64,
    /// Of the raw call: what was counted by mistake.
    raw_allocations: f64,
}

/// What is measured: the same work through the C interface and through the safe one.
trait Operation {
    fn raw(&mut self, rank: &Raw);
    fn safe(&mut self, comm: &Communicator, stream: &Stream) -> Result<()>;
}

/// What the C interface takes.
struct Raw {
    comm: sys::ncclComm_t,
    stream: sys::cudaStream_t,
    size: usize,
}

/// Two elements, in place.
struct AllReduce<'c>(CommBuffer<'c, f32>);

impl Operation for AllReduce<'_> {
    fn raw(&mut self, rank: &Raw) {
        let pointer = self.0.as_raw();
        // SAFETY: a live communicator that no other thread uses now, two elements that stay allocated, and a live stream;
        // every rank makes the same calls.
        let result = unsafe {
            sys::ncclAllReduce(
                pointer.cast_const(),
                pointer,
                2,
                sys::ncclDataType_t::ncclFloat32,
                sys::ncclRedOp_t::ncclSum,
                rank.comm,
                rank.stream,
            )
        };
        assert_eq!(result, sys::ncclResult_t::ncclSuccess);
    }

    fn safe(&mut self, comm: &Communicator, stream: &Stream) -> Result<()> {
        comm.all_reduce(InPlace(&mut self.0), ReduceOp::Sum, stream)
    }
}

/// Two elements from each rank to each.
struct AllToAllV<'c> {
    send: CommBuffer<'c, f32>,
    recv: CommBuffer<'c, f32>,
    counts: Vec<usize>,
}

impl Operation for AllToAllV<'_> {
    fn raw(&mut self, rank: &Raw) {
        let (send, recv) = (self.send.as_raw().cast_const().cast::<f32>(), self.recv.as_raw().cast::<f32>());
        let float = sys::ncclDataType_t::ncclFloat32;
        // SAFETY: as above; each message lies within the buffers, and every rank makes the calls that match.
        let result = unsafe {
            sys::ncclGroupStart();
            for peer in 0..rank.size {
                let number = i32::try_from(peer).expect("few ranks");
                sys::ncclSend(send.wrapping_add(2 * peer).cast(), 2, float, number, rank.comm, rank.stream);
                sys::ncclRecv(recv.wrapping_add(2 * peer).cast(), 2, float, number, rank.comm, rank.stream);
            }
            sys::ncclGroupEnd()
        };
        assert_eq!(result, sys::ncclResult_t::ncclSuccess);
    }

    fn safe(&mut self, comm: &Communicator, stream: &Stream) -> Result<()> {
        comm.all_to_all_v((&self.send, &mut self.recv), &self.counts, &self.counts, stream)
    }
}

fn all_reduce(comm: &Communicator) -> Result<Rank> {
    let stream = Stream::new(comm.device())?;
    let operation = AllReduce(comm.alloc(&stream, 2)?);
    measure(comm, &stream, operation)
}

fn all_to_all_v(comm: &Communicator) -> Result<Rank> {
    let stream = Stream::new(comm.device())?;
    let len = 2 * comm.size();
    let operation =
        AllToAllV { send: comm.alloc(&stream, len)?, recv: comm.alloc(&stream, len)?, counts: vec![2; comm.size()] };
    measure(comm, &stream, operation)
}

fn measure(comm: &Communicator, stream: &Stream, mut operation: impl Operation) -> Result<Rank> {
    // A stream of its own: fewer safe calls may be on their way where others enqueue too.
    let other = Stream::new(comm.device())?;
    let rank = Raw { comm: comm.as_raw().expect("an active communicator"), stream: other.as_raw(), size: comm.size() };
    let (mut raw, mut safe, mut difference) = (Vec::new(), Vec::new(), Vec::new());
    let (mut allocations, mut raw_allocations) = (0, 0);
    for block in 0..BLOCKS + WARM_UP {
        stream.synchronize()?;
        let before = ALLOCATIONS.get();
        let start = Instant::now();
        for _ in 0..CALLS {
            operation.raw(&rank);
        }
        let raw_ns = start.elapsed().as_nanos() as f64 / CALLS as f64;
        let between = ALLOCATIONS.get();
        other.synchronize()?;

        let counted = ALLOCATIONS.get();
        let start = Instant::now();
        for _ in 0..CALLS {
            operation.safe(comm, stream)?;
        }
        let safe_ns = start.elapsed().as_nanos() as f64 / CALLS as f64;
        let after = ALLOCATIONS.get();
        if block >= WARM_UP {
            raw.push(raw_ns);
            safe.push(safe_ns);
            difference.push(safe_ns - raw_ns);
            allocations += after - counted;
            raw_allocations += between - before;
        }
    }
    stream.synchronize()?;
    let calls = (BLOCKS * CALLS) as f64;
    Ok(Rank {
        raw_ns: median(&mut raw),
        safe_ns: median(&mut safe),
        difference_ns: median(&mut difference),
        allocations: allocations as f64 / calls,
        raw_allocations: raw_allocations as f64 / calls,
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures one operation as a rank.
type Measure = fn(&Communicator) -> Result<Rank>;

/// Makes a rank on each device, and measures.
type Maker = fn(&[Device], Measure) -> Result<Vec<Rank>>;

fn main() -> Result<()> {
    let devices = match Device::all() {
        Ok(devices) => devices,
        Err(error @ gpucomm::Error::NoDevice { .. }) => {
            println!("skipped: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    println!("messages and reductions of 2 f32, host ns per call, median of {BLOCKS} blocks of {CALLS} calls");
    println!(
        "{:>12} {:>10} {:>5} {:>5} {:>10} {:>10} {:>10} {:>11} {:>11}",
        "operation", "made by", "ranks", "rank", "raw", "safe", "added", "allocations", "those raw"
    );
    // What cargo adds begins with a dash.
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let operations = [("all_reduce", all_reduce as Measure), ("all_to_all_v", all_to_all_v)];
    for (operation, measure) in
        operations.into_iter().filter(|(name, _)| asked.is_empty() || asked.iter().any(|one| one == name))
    {
        for (name, maker) in [("Clique", clique as Maker), ("init_rank", one_by_one)] {
            for size in [1, 2, 4].into_iter().filter(|&size| size <= devices.len()) {
                for (rank, result) in maker(&devices[..size], measure)?.into_iter().enumerate() {
                    println!(
                        "{operation:>12} {name:>10} {size:>5} {rank:>5} {:>10.1} {:>10.1} {:>10.1} {:>11} {:>11}",
                        result.raw_ns, result.safe_ns, result.difference_ns, result.allocations, result.raw_allocations
                    );
                }
            }
        }
    }
    Ok(())
}

fn clique(devices: &[Device], measure: Measure) -> Result<Vec<Rank>> {
    Clique::init_all(devices)?.spmd(measure)
}

fn one_by_one(devices: &[Device], measure: Measure) -> Result<Vec<Rank>> {
    let id = UniqueId::new()?;
    let one = |rank: usize| {
        let _current = devices[rank].set_current()?;
        // SAFETY: every rank is initialised once, with the same id and size, and all make the same calls.
        let comm = unsafe { Communicator::init_rank(devices[rank], devices.len(), &id, rank) }?;
        measure(&comm)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..devices.len()).map(|rank| scope.spawn(move || one(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}
