//! Starts NCCL on all devices and tries it.

use std::time::Instant;

use gpucomm::{Clique, Device, InPlace, ReduceOp, Stream};
use serde_json::{Value, json};

/// What came of it, or why nothing did.
pub fn run() -> Value {
    let start = Instant::now();
    let attempt = || {
        let clique = Clique::init_all(&Device::all()?)?;
        let started = start.elapsed();
        let ranks = clique.spmd(|comm| {
            let stream = Stream::new(comm.device())?;
            let mut x = comm.alloc_from(&stream, &[comm.rank() as i64; 1000])?;
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
            let window = x.is_window();
            Ok((window, x.to_vec(&stream)?))
        })?;
        let sum: i64 = (0..clique.size() as i64).sum();
        Ok(json!({
            "ranks": clique.size(),
            "start_seconds": started.as_secs_f64(),
            "symmetric_windows": ranks.iter().all(|(window, _)| *window),
            "all_reduce": if ranks.iter().flat_map(|(_, x)| x).all(|&x| x == sum) { "right" } else { "wrong" },
        }))
    };
    attempt().unwrap_or_else(|error: gpucomm::Error| error.to_string().into())
}
