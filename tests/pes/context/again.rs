//! Starting again and again.

use gpucomm::{Backend, Stream, backend};

use crate::support::{Seat, as_pes, random, slower};

/// What a process holds of the system.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Holds {
    files: usize,
    threads: usize,
    maps: usize,
    /// Of the host.
    bytes: usize,
    /// Of the device, what is free.
    free: usize,
}

impl Holds {
    fn now(seat: &Seat) -> Self {
        let count = |directory| std::fs::read_dir(directory).unwrap().count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        let free = seat.device.memory_info().unwrap().free;
        Self { files: count("/proc/self/fd"), threads: count("/proc/self/task"), maps, bytes: pages * 4096, free }
    }
}

fn once(seat: &Seat, round: usize) {
    let ctx = seat.start().unwrap();
    let stream = Stream::new(seat.device).unwrap();
    let mut rng = random::rng(&format!("round {round}, PE {}", seat.pe));
    let values: Vec<u64> = (0..1021).map(|_| rng.u64(..)).collect();
    let mut buffer = ctx.alloc::<u64>(1021).unwrap();
    buffer.copy_from_slice(&stream, &values).unwrap();
    assert_eq!(buffer.to_vec(&stream).unwrap(), values);
    drop(buffer);
    assert!(ctx.close().unwrap().is_empty(), "round {round}");
}

/// What the first rounds load stays; after that nothing grows.
#[test]
fn fifty_times_and_nothing_grows() {
    as_pes(&[1, 2, 4], |seat| {
        const FIRST: usize = 10;
        const ROUNDS: usize = 50;
        let mut before = None;
        for round in 0..ROUNDS {
            if round == FIRST {
                seat.meet();
                before = Some(Holds::now(seat));
                seat.meet();
            }
            once(seat, round);
        }
        seat.meet();
        let before = before.unwrap();
        // Threads that have ended are gone a little later.
        let mut after = Holds::now(seat);
        let begin = std::time::Instant::now();
        while after.threads > before.threads && begin.elapsed() < slower(2.0) {
            std::thread::sleep(std::time::Duration::from_millis(20));
            after = Holds::now(seat);
        }
        seat.meet();
        println!("PE {}: {before:?}, then {after:?}", seat.pe);
        assert!(after.files <= before.files + 2, "{before:?} {after:?}");
        assert!(after.threads <= before.threads, "{before:?} {after:?}");
        assert!(after.maps <= before.maps + 40, "{before:?} {after:?}");
        assert!(after.bytes <= before.bytes + (24 << 20), "{before:?} {after:?}");
        // The library leaves 1 MiB of the device at each start (docs/measurements/2026-11-24-h200.md).
        let left = if backend() == Backend::Emulator { 0 } else { (ROUNDS - FIRST) << 20 };
        assert!(after.free + left + (16 << 20) >= before.free, "{before:?} {after:?}");
    });
}
