//! Enqueues one operation again and again, for `scripts/instructions`, which counts what the safe layer executes for it.
//!
//! `instructions KIND`, on the emulator. One thread drives all ranks, so that nothing waits and each call takes the same path. Between
//! two calls the stream becomes idle. A call is made in [`measured`], by whose name the script finds it.

use gpucomm::{Clique, Communicator, Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream, UniqueId, group};

const WARM_UP: usize = 20;
/// `scripts/instructions` divides by it.
const CALLS: usize = 100;

/// What `scripts/instructions` looks at.
#[inline(never)]
fn measured(call: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    call()
}

fn repeat(stream: &Stream, mut call: impl FnMut() -> Result<()>) -> Result<()> {
    for at in 0..WARM_UP + CALLS {
        if at < WARM_UP { call() } else { measured(&mut call) }?;
        stream.synchronize()?;
    }
    Ok(())
}

fn alone() -> Result<Communicator> {
    // SAFETY: the only rank does the same as all ranks.
    unsafe { Communicator::init_rank(Device::new(0)?, 1, &UniqueId::new()?, 0) }
}

fn main() -> Result<()> {
    let kind = std::env::args().nth(1).unwrap_or_default();
    let device = Device::new(0)?;
    let _current = device.set_current()?;
    let stream = Stream::new(device)?;
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, 2)?;
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 2)?;
    match &*kind {
        "all_reduce" => {
            let comm = alone()?;
            repeat(&stream, || comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream))
        }
        "all_reduce_out_of_place" => {
            let comm = alone()?;
            repeat(&stream, || comm.all_reduce((&x, &mut y), ReduceOp::Sum, &stream))
        }
        "all_reduce_symmetric" => {
            let comm = alone()?;
            let mut x = comm.alloc::<f32>(&stream, 2)?;
            repeat(&stream, || comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream))
        }
        "broadcast" => {
            let comm = alone()?;
            repeat(&stream, || comm.broadcast(InPlace(&mut x), 0, &stream))
        }
        "all_to_all_v" => {
            let comm = alone()?;
            repeat(&stream, || comm.all_to_all_v((&x, &mut y), &[2], &[2], &stream))
        }
        "send_recv" => {
            let comm = alone()?;
            repeat(&stream, || {
                group(|g| {
                    g.send(&comm, &x, 0, &stream)?;
                    g.recv(&comm, &mut y, 0, &stream)
                })
            })
        }
        "group_of_clique" => {
            let clique = Clique::init_all(&[device, Device::new(1)?])?;
            let other = Stream::new(Device::new(1)?)?;
            let mut there = DeviceBuffer::<f32>::zeroed(&other, 2)?;
            repeat(&stream, || {
                group(|g| {
                    g.all_reduce(clique.rank(0), InPlace(&mut x), ReduceOp::Sum, &stream)?;
                    g.all_reduce(clique.rank(1), InPlace(&mut there), ReduceOp::Sum, &other)
                })
            })
        }
        "graph_launch" => {
            let comm = alone()?;
            let graph = stream.capture(|stream| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream))?;
            repeat(&stream, || graph.launch(&stream))
        }
        other => panic!("no kind {other:?}: see scripts/instructions"),
    }
}
