//! Random graphs of work over threads, devices, streams and events, against what their order demands.

use super::*;
use fastrand::Rng;

const CELLS: usize = 24;

/// What a thread knows: which streams wait for what is up to the emulator; here every write is ordered after the last one of
/// its cell by an event, so each cell must end with the value that was written last.
fn random_writes(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let streams: Vec<TestStream> = (0..6).map(|index| TestStream::with_flags(index % 4, random.u32(0..2))).collect();
    let device = |stream: usize| stream as i32 % 4;
    let mut pools = Vec::new();
    for ordinal in 0..4 {
        let mut pool = null_mut();
        ok!(gpucommPoolCreate(&mut pool, ordinal));
        pools.push(pool);
    }
    let events: Vec<cudaEvent_t> = (0..CELLS)
        .map(|cell| {
            ok!(cudaSetDevice(device(cell % streams.len())));
            event(if random.bool() { cudaEventDisableTiming } else { cudaEventDefault })
        })
        .collect();
    // Where each cell lives, which stream used it last, and its value, which is a block of 256 equal numbers.
    let mut cells: Vec<(*mut c_void, usize, u32)> = Vec::new();
    for cell in 0..CELLS {
        let owner = cell % streams.len();
        let mut ptr = null_mut();
        ok!(cudaMallocFromPoolAsync(&mut ptr, 1024, pools[owner % 4], streams[owner].0));
        ok!(cudaMemsetAsync(ptr, 0, 1024, streams[owner].0));
        cells.push((ptr, owner, 0));
    }
    // Lets `stream` come after everything that was done to a cell. Its event belongs to the device of its first stream.
    let order = |cells: &mut Vec<(*mut c_void, usize, u32)>, cell: usize, stream: usize| {
        let last = cells[cell].1;
        if last == stream {
            return;
        }
        let mut event = null_mut();
        ok!(cudaSetDevice(device(last)));
        ok!(cudaEventCreateWithFlags(&mut event, cudaEventDisableTiming));
        ok!(cudaEventRecord(event, streams[last].0));
        ok!(cudaStreamWaitEvent(streams[stream].0, event, 0));
        ok!(cudaEventDestroy(event));
        cells[cell].1 = stream;
    };
    let mut gates: Vec<Gate> = Vec::new();
    for step in 1..=400u32 {
        let (cell, stream) = (random.usize(..CELLS), random.usize(..streams.len()));
        match random.u32(..12) {
            0..4 => {
                order(&mut cells, cell, stream);
                let host = [step; 256];
                upload(cells[cell].0, &host, streams[stream].0);
                cells[cell].2 = step;
            }
            4..7 => {
                let other = random.usize(..CELLS);
                if other != cell {
                    order(&mut cells, cell, stream);
                    order(&mut cells, other, stream);
                    let kind = cudaMemcpyKind::cudaMemcpyDefault;
                    ok!(cudaMemcpyAsync(cells[cell].0, cells[other].0, 1024, kind, streams[stream].0));
                    cells[cell].2 = cells[other].2;
                }
            }
            7 => {
                order(&mut cells, cell, stream);
                ok!(cudaFreeAsync(cells[cell].0, streams[stream].0));
                let mut ptr = null_mut();
                let pool = pools[random.usize(..4)];
                ok!(cudaMallocFromPoolAsync(&mut ptr, 1024, pool, streams[stream].0));
                ok!(cudaMemsetAsync(ptr, 0, 1024, streams[stream].0));
                cells[cell] = (ptr, stream, 0);
            }
            8 => {
                let event = events[cell];
                let first = cell % streams.len();
                ok!(cudaSetDevice(device(first)));
                ok!(cudaEventRecord(event, streams[first].0));
                ok!(cudaStreamWaitEvent(streams[stream].0, event, 0));
                assert!([SUCCESS, NOT_READY].contains(&c!(cudaEventQuery(event))));
            }
            9 if gates.len() < 3 => gates.push(streams[stream].close_gate()),
            9 | 10 if !gates.is_empty() => drop(gates.swap_remove(random.usize(..gates.len()))),
            11 if gates.is_empty() => {
                order(&mut cells, cell, stream);
                let seen = download::<u32>(cells[cell].0, 256, streams[stream].0);
                assert!(
                    seen.iter().all(|&value| value == cells[cell].2),
                    "seed {seed}, step {step}, cell {cell}: {seen:?}"
                );
            }
            _ => {}
        }
    }
    gates.clear();
    for (index, &(ptr, stream, value)) in cells.iter().enumerate() {
        let seen = download::<u32>(ptr, 256, streams[stream].0);
        assert!(seen.iter().all(|&seen| seen == value), "seed {seed}, cell {index}: expected {value}, got {seen:?}");
        ok!(cudaFreeAsync(ptr, streams[stream].0));
    }
    for stream in &streams {
        stream.wait();
    }
    for event in events {
        ok!(cudaEventDestroy(event));
    }
}

#[test]
fn random_graphs_end_with_the_values_that_their_order_demands() {
    let seed =
        std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("GPUCOMM_TEST_SEED={seed} repeats this");
    let rounds = std::env::var("GPUCOMM_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let seed_text = seed.to_string();
    let environment = [("GPUCOMM_TEST_SEED", &*seed_text)];
    isolated!(&environment, || {
        for round in 0..rounds {
            std::thread::scope(|scope| {
                for thread in 0..4u64 {
                    scope.spawn(move || random_writes(seed.wrapping_add(round * 4 + thread)));
                }
            });
        }
        assert_eq!(crate::report::count(), 0);
        for device in 0..4 {
            ok!(cudaSetDevice(device));
            let (mut free, mut total) = (0, 0);
            ok!(cudaMemGetInfo(&mut free, &mut total));
            assert_eq!(free, total, "nothing leaks");
        }
    });
}
