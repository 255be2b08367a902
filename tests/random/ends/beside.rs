//! What goes on beside work that is stuck.

use std::time::Duration;

use fastrand::Rng;
use gpucomm::cuda::trim_pinned;
use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::nccl::InitOptions;
use gpucomm::world::{World, WorldOptions};
use gpucomm::{Clique, Device, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Result, Stream};

use super::pace::within;
use super::{GRACE, TIMEOUT};
use crate::cliques::PATIENT;
use crate::gate::Gate;
use crate::places::places;
use crate::settings::Batch;
use crate::settings::slower;

/// Memory comes, is written, read, and goes.
pub fn looks(device: Device) -> Result<()> {
    let stream = Stream::new(device)?;
    let memory = DeviceBuffer::from_slice(&stream, &[7u8; 5000])?;
    assert_eq!(memory.to_vec(&stream)?, [7; 5000]);
    Ok(())
}

/// Some calls, in any order, none of which waits for what is stuck.
pub fn calls(repeat: &str, devices: &[Device], rng: &mut Rng) {
    let limit = slower(TIMEOUT);
    for _ in 0..rng.usize(2..7) {
        let device = devices[rng.usize(..devices.len())];
        match rng.u32(..6) {
            0 => within(repeat, "trim_pinned", limit, || {
                drop(PinnedBuffer::<u8>::zeroed(1 << 20).expect("pinned memory"));
                let trimmed = trim_pinned();
                assert!(matches!(trimmed, Ok(_) | Err(Error::Timeout { .. })), "{trimmed:?}: {repeat}");
            }),
            1 => within(repeat, "mapped memory", limit, || {
                let memory = PhysicalMemory::new(device, 100_000).expect("memory");
                drop(memory.map(&[Access::read_write(device)]).expect("a mapping"));
            }),
            2 => within(repeat, "a graph", limit, || graph(device).expect("a graph")),
            3 => clique(repeat, devices, rng),
            4 => within(repeat, "an event", limit, || {
                let stream = Stream::new(device).expect("a stream");
                stream.record().expect("an event").synchronize_timeout(limit).expect("nothing to wait for");
            }),
            _ => {}
        }
        for device in devices {
            within(repeat, "a look at a device", limit, || looks(*device)).expect("a device that works");
        }
    }
}

fn graph(device: Device) -> Result<()> {
    let stream = Stream::new(device)?;
    let mut memory = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
    let graph = stream.capture(|stream| memory.fill(stream, 3))?;
    graph.launch(&stream)?;
    assert_eq!(memory.to_vec(&stream)?, [3; 1000]);
    Ok(())
}

/// A clique that starts, works, and ends while others cannot.
fn clique(repeat: &str, devices: &[Device], rng: &mut Rng) {
    let (limit, patient) = (slower(TIMEOUT), slower(PATIENT));
    let options = InitOptions::new().with_timeout(patient);
    let clique = within(repeat, "the start of a clique", patient, || Clique::init_all_with(devices, &options));
    let clique = clique.expect("a clique beside work that is stuck");
    let sums = within(repeat, "a sum", patient, || {
        clique.spmd(|comm| {
            let stream = Stream::new(comm.device())?;
            let mut memory = DeviceBuffer::from_slice(&stream, &[comm.rank() as u32 + 1; 500])?;
            comm.all_reduce(InPlace(&mut memory), ReduceOp::Sum, &stream)?;
            memory.to_vec(&stream)
        })
    });
    let sum = (1..=devices.len() as u32).sum::<u32>();
    assert!(sums.expect("a sum").iter().flatten().all(|value| *value == sum), "{repeat}");
    clique.ranks().iter().for_each(|comm| comm.set_timeout(limit));
    match rng.u32(..3) {
        0 => within(repeat, "drop of a clique beside", limit, || drop(clique)),
        1 => within(repeat, "close beside", limit, || clique.close_timeout(limit)).expect("no work of it is under way"),
        _ => drop(within(repeat, "abort beside", GRACE, || clique.abort("beside"))),
    }
}

/// A world that ends beside work that is stuck.
pub fn world(batch: &Batch, rng: &mut Rng) {
    let (repeat, limit) = (batch.repeat(batch.first), slower(TIMEOUT));
    let devices = &places()[..batch.ranks];
    let world = World::new_with(devices, &WorldOptions::new().with_timeout(slower(PATIENT)));
    let world = world.expect("a world");
    let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).expect("a stream")).collect();
    let sums = |len: usize| {
        let own = |(rank, stream): (usize, &Stream)| DeviceBuffer::from_slice(stream, &vec![rank as u32 + 1; len]);
        let forms = streams.iter().enumerate().map(own).collect::<Result<Vec<_>>>().expect("memory");
        world.all_reduce(forms.into_iter().map(InPlace), ReduceOp::Sum)
    };
    let want = (1..=devices.len() as u32).sum::<u32>();
    let right = |back: Vec<DeviceBuffer<u32>>| {
        for (memory, stream) in back.iter().zip(&streams) {
            assert!(memory.to_vec(stream).expect("a copy").iter().all(|value| *value == want), "wrong data: {repeat}");
        }
    };
    right(sums(1000).wait().expect("a sum"));
    let gate = Gate::default();
    let stuck: Vec<_> = devices.iter().map(|device| Stream::new(*device).expect("a stream")).collect();
    stuck.iter().filter(|_| rng.bool()).for_each(|stream| gate.hold(stream).expect("room for a host function"));
    gpucomm::set_default_timeout(limit);
    // Answers come, whoever is stuck; some are still to come in the end.
    let answers: Vec<_> = (0..rng.usize(1..5)).map(|_| sums(rng.usize(1..3000))).collect();
    let (ends, early) = (rng.u32(..4), rng.bool());
    let mut answers = answers.into_iter();
    if early && let Some(first) = answers.next() {
        right(within(&repeat, "an answer", slower(PATIENT), || first.wait()).expect("a sum"));
    }
    match ends {
        0 => within(&repeat, "drop of a world", limit + GRACE, || drop(world)),
        1 => drop(within(&repeat, "the end of a world", limit + GRACE, || world.close_timeout(limit))),
        2 => drop(within(&repeat, "the abort of a world", limit + GRACE, || world.abort("a test"))),
        _ => {
            world.fail("the program");
            within(&repeat, "drop of a world that failed", limit + GRACE, || drop(world));
        }
    }
    for device in devices {
        within(&repeat, "a look at a device", limit, || looks(*device)).expect("a device that works");
    }
    for answer in answers {
        match within(&repeat, "an answer after the end", Duration::ZERO, || answer.wait()) {
            Ok(back) => right(back),
            Err(failed) => {
                assert!(
                    matches!(failed.error, Error::Aborted { .. } | Error::Timeout { .. }),
                    "{:?}: {repeat}",
                    failed.error
                );
            }
        }
    }
    calls(&repeat, devices, rng);
    drop(gate);
    stuck.iter().for_each(|stream| stream.synchronize_timeout(slower(PATIENT)).expect("work that is no world's"));
}
