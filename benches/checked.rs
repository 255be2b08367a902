//! What checked mode costs: the host's time of an all-reduce, with ranks as processes that compare over an exchange, and that do not.
//!
//! `cargo bench --bench checked -- [RANKS]`, on the emulator with `--features emulator`. It prints, in µs, the median of what rank 0 measures:
//! of the call alone, and until the stream is idle; of 8 elements of f32, in place.

use std::process::Command;
use std::time::{Duration, Instant};

use gpucomm::exchange::{Directory, Exchange, TcpPlace};
use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream};

const PLACE: &str = "GPUCOMM_BENCH_PLACE";
const WARM: usize = 50;
const CALLS: usize = 2000;

fn main() -> Result<()> {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    if let Ok(place) = std::env::var(PLACE) {
        return run(numbers[0], numbers[1], &place);
    }
    let ranks = numbers.first().copied().unwrap_or(2);
    for store in ["directory", "TCP"] {
        for checked in ["0", "1"] {
            let path = std::env::temp_dir().join(format!("gpucomm-bench-{}", std::process::id()));
            let place = match store {
                "TCP" => format!("tcp {}", address()),
                _ => path.display().to_string(),
            };
            println!("{ranks} ranks, store: {store}, checked: {checked}");
            let start = |rank: usize| {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.args([rank.to_string(), ranks.to_string()]).env(PLACE, &place);
                command.env("GPUCOMM_CHECKED", checked).spawn().expect("a process")
            };
            let children: Vec<_> = (0..ranks).map(start).collect();
            for mut child in children {
                assert!(child.wait().expect("the process ends").success());
            }
            let _ = std::fs::remove_dir_all(path);
        }
    }
    Ok(())
}

/// An address of this host at which nobody listens.
fn address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").to_string()
}

fn run(rank: usize, size: usize, place: &str) -> Result<()> {
    let exchange = match place.strip_prefix("tcp ") {
        Some(address) => Exchange::join(TcpPlace::new(address).store(rank, size)?)?,
        None => Exchange::join(Directory::open(place, rank, size)?)?,
    };
    // Newer versions of NCCL let ranks share a device: NCCL_MULTI_RANK_GPU_ENABLE=1.
    let device = Device::new(rank % Device::count()?)?;
    // SAFETY: all ranks run this, and so do the same.
    let comm = unsafe { Communicator::init_rank_over(device, &exchange, &InitOptions::default())? };
    let stream = Stream::new(device)?;
    let mut x = DeviceBuffer::from_slice(&stream, &[0.0f32; 8])?;
    let (mut calls, mut whole) = (Vec::new(), Vec::new());
    for at in 0..WARM + CALLS {
        let start = Instant::now();
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
        let called = start.elapsed();
        stream.synchronize()?;
        if at >= WARM {
            calls.push(called);
            whole.push(start.elapsed());
        }
    }
    if rank == 0 {
        println!("  the call {:.1} µs, until it is done {:.1} µs", median(calls), median(whole));
    }
    comm.close()?;
    // Rank 0 may leave before the others have seen that it has come.
    let _ = exchange.barrier();
    Ok(())
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
