//! Contexts that end while devices still use memory that was forgotten or dropped: the next context has its memory for itself.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gpucomm::nvshmem::{Context, Pe};
use gpucomm::{Device, DeviceBuffer, Error, Result, Stream};

use super::{generator, machine, number};
use crate::support::farewell::Farewell;
use crate::support::gate::Gate;
use crate::support::random::{rng, same};
use crate::support::{Here, SIZES, Seat, as_pes, slower};

/// What is written late.
const LATE: u32 = 0xbad;

/// What the next context has.
const NEXT: u32 = 7;

/// How a PE uses the memory before the end, on a stream that is held up.
#[derive(Debug, Clone, Copy)]
enum Use {
    Fill,
    /// From this device, or another one.
    CopyIn,
    CopyOut,
    /// By NVSHMEM, from this PE to itself.
    Put,
}

#[derive(Debug)]
struct One {
    how: Use,
    len: usize,
    /// Which device's stream, of all devices.
    device: usize,
    farewell: Farewell,
}

fn draw(rng: &mut fastrand::Rng, lens: &[usize]) -> Vec<One> {
    let devices = Device::all().expect("devices").len();
    let one = |len: &usize| One {
        how: [Use::Fill, Use::CopyIn, Use::CopyOut, Use::Put][rng.usize(..4)],
        len: *len,
        device: rng.usize(..devices),
        // GPUs may run host functions of all streams one after the other. One would wait for the gate of another.
        farewell: match Farewell::ENDS[rng.usize(..5)] {
            _ if rng.bool() => Farewell::Forget,
            Farewell::HostFunction if gpucomm::backend() != gpucomm::Backend::Emulator => Farewell::Drop,
            farewell => farewell,
        },
    };
    lens.iter().map(one).collect()
}

/// One use of memory of `ctx` on a stream that `gate` holds up, and what has come of it: a copy that has to hold a value, if it is not refused.
fn leave(seat: &Seat, ctx: &Context, one: &One, gate: &Gate) -> Result<(Stream, DeviceBuffer<u32>)> {
    let devices = Device::all()?;
    // NVSHMEM works on the device of the PE.
    let device = if matches!(one.how, Use::Put) { seat.device } else { devices[one.device] };
    let (own, stream) = (Stream::new(seat.device)?, Stream::new(device)?);
    let mut memory = ctx.alloc::<u32>(one.len)?;
    memory.fill(&own, LATE)?;
    own.synchronize()?;
    let mut copy = DeviceBuffer::from_slice(&stream, &vec![LATE; one.len])?;
    stream.synchronize()?;
    gate.hold(&stream)?;
    let used = match one.how {
        Use::Fill => memory.fill(&stream, LATE),
        Use::CopyIn => memory.copy_from(&stream, &copy),
        Use::CopyOut => copy.copy_from(&stream, &memory),
        Use::Put => ctx.on(&stream).put(&memory, &copy, Pe(seat.pe)),
    };
    match used {
        // Not all devices reach each other's memory.
        Ok(()) | Err(Error::InvalidArgument { .. } | Error::Unsupported { .. }) => {}
        Err(error) => return Err(error),
    }
    match one.farewell {
        Farewell::ThreadLocal | Farewell::HostFunction => one.farewell.to(memory.into_shared(), &own)?,
        _ => one.farewell.to_borrower(memory),
    }
    own.synchronize()?;
    Ok((stream, copy))
}

/// A program, work that is not waited for, and the end.
fn round(seat: &Seat, number: u64) {
    let what = format!("end {number} of {} PEs", seat.n_pes);
    let (mut common, mut mine) = (rng(&what), rng(&format!("{what}, PE {}", seat.pe)));
    let ctx = seat.start().expect("a context");
    let stream = Stream::new(seat.device).expect("a stream");
    let here = Here { seat, ctx: &ctx, stream: &stream };
    let mut machine = machine::Machine::new(&here, &what);
    for (at, step) in generator::draw(&mut common, seat.n_pes, here.is_whole(), 8).iter().enumerate() {
        machine.begin(format!("{what}, step {at}, {step:?} (GPUCOMM_TEST_SEED={})", crate::support::random::seed()));
        machine.step(step).unwrap_or_else(|error| panic!("{}: {error}", machine.what()));
        machine.check();
    }
    drop(machine);
    let lens: Vec<usize> = (0..common.usize(1..5)).map(|_| common.usize(1..20_000)).collect();
    let all = draw(&mut mine, &lens);
    let what = format!("{what}, PE {}, {all:?} (GPUCOMM_TEST_SEED={})", seat.pe, crate::support::random::seed());
    let gate = Gate::default();
    // Most are held up until the end has begun.
    let delay = Duration::from_micros(mine.u64(..150_000));
    let kept: Vec<_> =
        all.iter().map(|one| leave(seat, &ctx, one, &gate).unwrap_or_else(|error| panic!("{what}: {error}"))).collect();
    let forgotten = all.iter().filter(|one| one.farewell == Farewell::Forget).count();
    std::thread::scope(|scope| {
        let (begins, begun) = channel::<()>();
        let gate = &gate;
        scope.spawn(move || {
            let _ = begun.recv();
            std::thread::sleep(delay);
            gate.open();
        });
        drop(begins);
        let leaks = ctx.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(leaks.buffers, forgotten, "{what}");
        let ctx = seat.start().expect("another context");
        let mut next = Vec::new();
        for len in &lens {
            let mut memory = ctx.alloc_uninit::<u32>(*len).expect("memory");
            memory.fill(&stream, NEXT).expect("a fill");
            next.push(memory);
        }
        stream.synchronize().expect("the fills");
        gate.open();
        for ((late, copy), one) in kept.iter().zip(&all) {
            late.synchronize_timeout(slower(20.0)).unwrap_or_else(|error| panic!("{what}: {error}"));
            same(&what, &copy.to_vec(late).expect("a copy"), &vec![LATE; one.len]);
        }
        for (memory, len) in next.iter().zip(&lens) {
            same(&what, &memory.to_vec(&stream).expect("the next memory"), &vec![NEXT; *len]);
        }
        drop(next);
        assert!(ctx.close().expect("the end").is_empty(), "{what}");
    });
    seat.meet();
}

#[test]
fn the_next_context_has_its_memory_for_itself() {
    let rounds = number("GPUCOMM_RANDOM_COUNT", 4);
    as_pes(&SIZES, |seat| (0..rounds).for_each(|number| round(seat, number)));
}

/// Work of others is stuck: the end says so in time, and leaves everything as it is.
#[test]
fn an_end_beside_stuck_work() {
    as_pes(&[1, 2, 3], |seat| {
        let mut rng = rng(&format!("stuck, PE {} of {}", seat.pe, seat.n_pes));
        let limit = slower(3.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).expect("a context");
        let (other, gate) = (Stream::new(seat.device).expect("a stream"), Gate::default());
        let stream = Stream::new(seat.device).expect("a stream");
        let mut memory = ctx.alloc::<u32>(1000).expect("memory");
        memory.fill(&stream, NEXT).expect("a fill");
        let uses = rng.bool();
        gate.hold(&other).expect("room for a host function");
        if uses {
            memory.fill(&other, NEXT).expect("a fill behind what is stuck");
        }
        if rng.bool() {
            drop(memory)
        } else {
            std::mem::forget(memory)
        }
        let begin = Instant::now();
        let ended = ctx.close();
        let took = begin.elapsed();
        assert!(took < limit + slower(6.0), "{took:?}");
        let right = match &ended {
            Ok(_) => !uses,
            Err(error) => matches!(error, Error::Timeout { .. }),
        };
        assert!(right, "{ended:?}");
        // Nobody else is held up.
        let begin = Instant::now();
        let copy = DeviceBuffer::from_slice(&stream, &[1u8; 100]).expect("memory");
        assert_eq!(copy.to_vec(&stream).expect("a copy"), [1; 100]);
        assert!(begin.elapsed() < slower(3.0), "{:?}", begin.elapsed());
        drop(gate);
        other.synchronize_timeout(slower(20.0)).expect("work that is not stuck any more");
        seat.meet();
    });
}
