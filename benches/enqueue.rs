//! What the safe layer adds to the C call: host time of an enqueue, and heap allocations.
//!
//! `cargo bench --bench enqueue` (on GPUs; with `--features emulator` the numbers mean nothing). Blocks of raw calls and of
//! safe calls take turns on the same communicator, stream and buffer; the table shows the median over the blocks. With one
//! rank, an in-place all-reduce does nothing in NCCL but check its arguments, so the difference is seen most clearly there.
//! With several ranks, their threads run at the same time. The ranks of a clique compare each operation before it is
//! launched; those that were made one by one, as across processes, do not, so the second half shows what that costs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Instant;

use gpucomm::{Clique, Communicator, Device, InPlace, ReduceOp, Result, Stream, UniqueId, sys};

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
const CALLS: usize = 200;
const BLOCKS: usize = 300;
const WARM_UP: usize = 20;

struct Rank {
    raw_ns: f64,
    safe_ns: f64,
    difference_ns: f64,
    allocations: u64,
    raw_allocations: u64,
}

fn measure(comm: &Communicator) -> Result<Rank> {
    let stream = Stream::new(comm.device())?;
    let mut buffer = comm.alloc::<f32>(&stream, 2)?;
    let handle = comm.as_raw().expect("an active communicator");
    let pointer = buffer.as_raw();
    let (mut raw, mut safe, mut difference) = (Vec::new(), Vec::new(), Vec::new());
    let (mut allocations, mut raw_allocations) = (0, 0);
    for block in 0..BLOCKS + WARM_UP {
        stream.synchronize()?;
        let before = ALLOCATIONS.get();
        let start = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: a live communicator that no other thread uses now, two elements that stay allocated, and a live
            // stream; every rank makes the same calls.
            let result = unsafe {
                sys::ncclAllReduce(
                    pointer.cast_const(),
                    pointer,
                    2,
                    sys::ncclDataType_t::ncclFloat32,
                    sys::ncclRedOp_t::ncclSum,
                    handle,
                    stream.as_raw(),
                )
            };
            assert_eq!(result, sys::ncclResult_t::ncclSuccess);
        }
        let raw_ns = start.elapsed().as_nanos() as f64 / CALLS as f64;
        let between = ALLOCATIONS.get();
        stream.synchronize()?;

        let counted = ALLOCATIONS.get();
        let start = Instant::now();
        for _ in 0..CALLS {
            comm.all_reduce(InPlace(&mut buffer), ReduceOp::Sum, &stream)?;
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
    Ok(Rank {
        raw_ns: median(&mut raw),
        safe_ns: median(&mut safe),
        difference_ns: median(&mut difference),
        allocations,
        raw_allocations,
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Makes a rank on each device, and measures.
type Maker = fn(&[Device]) -> Result<Vec<Rank>>;

fn main() -> Result<()> {
    let devices = match Device::all() {
        Ok(devices) => devices,
        Err(error @ gpucomm::Error::NoDevice { .. }) => {
            println!("skipped: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    println!("all_reduce of 2 f32 in place, host ns per call, median of {BLOCKS} blocks of {CALLS} calls");
    println!(
        "{:>10} {:>5} {:>5} {:>10} {:>10} {:>10} {:>16}",
        "made by", "ranks", "rank", "raw", "safe", "added", "Rust allocations"
    );
    for (name, maker) in [("Clique", clique as Maker), ("init_rank", one_by_one)] {
        for size in [1, 2, 4].into_iter().filter(|&size| size <= devices.len()) {
            for (rank, result) in maker(&devices[..size])?.into_iter().enumerate() {
                println!(
                    "{name:>10} {size:>5} {rank:>5} {:>10.1} {:>10.1} {:>10.1} {:>7} ({} raw)",
                    result.raw_ns, result.safe_ns, result.difference_ns, result.allocations, result.raw_allocations
                );
            }
        }
    }
    Ok(())
}

fn clique(devices: &[Device]) -> Result<Vec<Rank>> {
    Clique::init_all(devices)?.spmd(measure)
}

fn one_by_one(devices: &[Device]) -> Result<Vec<Rank>> {
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
