//! Graphs that are launched: what they do, when, and how often.

use super::*;
use crate::report::expected::reported;
use fastrand::Rng;
use std::sync::atomic::{AtomicUsize, Ordering};

const MODE: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;

/// Captures what `work` enqueues on `stream`: the graph, ready to be launched.
fn captured(stream: cudaStream_t, work: impl FnOnce()) -> cudaGraphExec_t {
    let (mut graph, mut exec) = (null_mut(), null_mut());
    ok!(cudaStreamBeginCapture(stream, MODE));
    work();
    ok!(cudaStreamEndCapture(stream, &mut graph));
    ok!(cudaGraphInstantiate(&mut exec, graph, 0));
    // What was made from it stays.
    ok!(cudaGraphDestroy(graph));
    exec
}

fn pinned(values: &[u32]) -> *mut u32 {
    let mut at = null_mut();
    ok!(cudaHostAlloc(&mut at, size_of_val(values), 0));
    let at = at.cast::<u32>();
    // SAFETY: just allocated, for as many.
    unsafe { at.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    at
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the tests pass counters that outlive their graphs.
    unsafe { &*data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

fn count_in(stream: cudaStream_t, counter: &'static AtomicUsize) {
    ok!(cudaLaunchHostFunc(stream, Some(count), std::ptr::from_ref(counter).cast_mut().cast()));
}

/// Numbers of a block, all of them equal.
const BLOCK: usize = 64;

/// What a step of a random graph does with the blocks that it names. The first ones lie on devices, the others in memory of the host.
#[derive(Debug, Clone, Copy)]
enum Step {
    Fill(usize, u8),
    Copy(usize, usize),
}

impl Step {
    fn cells(self) -> Vec<usize> {
        match self {
            Self::Fill(to, _) => vec![to],
            Self::Copy(to, from) => vec![to, from],
        }
    }

    fn model(self, cells: &mut [u32]) {
        match self {
            Self::Fill(to, byte) => cells[to] = u32::from_ne_bytes([byte; 4]),
            Self::Copy(to, from) => cells[to] = cells[from],
        }
    }
}

/// Graphs whose steps fork over streams of two devices and join again, launched in any order and number, on any stream, between which
/// the host changes what they read.
fn random_graphs(seed: u64) {
    const DEVICE_CELLS: usize = 6;
    const CELLS: usize = 10;
    let mut random = Rng::with_seed(seed);
    let streams: Vec<TestStream> =
        (0..5).map(|index| TestStream::with_flags(index % 2, random.u32(0..2) * cudaStreamNonBlocking)).collect();
    let launch = TestStream::with_flags(0, cudaStreamNonBlocking);
    let mut cells: Vec<u32> = (0..CELLS as u32).collect();
    let mut pageable = vec![vec![0u32; BLOCK]; 2];
    let at: Vec<*mut u32> = (0..CELLS)
        .map(|cell| {
            if cell < DEVICE_CELLS {
                ok!(cudaSetDevice((cell % 2) as i32));
                let at = malloc(4 * BLOCK).cast::<u32>();
                upload(at.cast(), &[cells[cell]; BLOCK], launch.0);
                at
            } else if cell < CELLS - 2 {
                pinned(&[cells[cell]; BLOCK])
            } else {
                let block = &mut pageable[cell + 2 - CELLS];
                block.fill(cells[cell]);
                block.as_mut_ptr()
            }
        })
        .collect();
    launch.wait();
    let host = |cell: usize| (DEVICE_CELLS..).contains(&cell);
    let write = |cell: usize, value: u32| {
        // SAFETY: memory of the host that nothing uses now.
        (0..BLOCK).for_each(|index| unsafe { at[cell].add(index).write(value) });
    };
    let read = |cell: usize| -> Vec<u32> {
        if host(cell) {
            // SAFETY: as above.
            return (0..BLOCK).map(|index| unsafe { at[cell].add(index).read() }).collect();
        }
        download(at[cell].cast(), BLOCK, launch.0)
    };
    let order = |from: &TestStream, to: &TestStream, device: usize| {
        ok!(cudaSetDevice(device as i32 % 2));
        let event = event(cudaEventDisableTiming);
        ok!(cudaEventRecord(event, from.0));
        ok!(cudaStreamWaitEvent(to.0, event, 0));
        ok!(cudaEventDestroy(event));
    };
    let mut graphs: Vec<(cudaGraphExec_t, Vec<Step>)> = Vec::new();
    for _ in 0..4 {
        let mut steps = Vec::new();
        let first = random.usize(..streams.len());
        let exec = captured(streams[first].0, || {
            let mut part = vec![first];
            // Which stream has used a cell last.
            let mut users = [first; CELLS];
            for _ in 0..random.usize(0..40) {
                let stream = random.usize(..streams.len());
                if !part.contains(&stream) {
                    let from = part[random.usize(..part.len())];
                    order(&streams[from], &streams[stream], from);
                    part.push(stream);
                }
                let (to, from) = (random.usize(..CELLS), random.usize(..CELLS));
                let step = if to == from || random.u8(..3) == 0 {
                    Step::Fill(to % DEVICE_CELLS, random.u8(..))
                } else {
                    Step::Copy(to, from)
                };
                for cell in step.cells() {
                    let last = std::mem::replace(&mut users[cell], stream);
                    if last != stream {
                        order(&streams[last], &streams[stream], last);
                    }
                }
                let stream = streams[stream].0;
                match step {
                    Step::Fill(to, byte) => {
                        ok!(cudaMemsetAsync(at[to].cast(), i32::from(byte), 4 * BLOCK, stream));
                    }
                    Step::Copy(to, from) => {
                        let kind = cudaMemcpyKind::cudaMemcpyDefault;
                        ok!(cudaMemcpyAsync(at[to].cast(), at[from].cast(), 4 * BLOCK, kind, stream));
                    }
                }
                steps.push(step);
            }
            for &other in &part[1..] {
                order(&streams[other], &streams[first], other);
            }
        });
        graphs.push((exec, steps));
    }
    for round in 0..8 {
        for _ in 0..random.usize(..20) {
            let (exec, steps) = &graphs[random.usize(..graphs.len())];
            ok!(cudaGraphLaunch(*exec, launch.0));
            steps.iter().for_each(|step| step.model(&mut cells));
        }
        launch.wait();
        // One graph alone is in order on any streams.
        let (exec, steps) = &graphs[random.usize(..graphs.len())];
        for _ in 0..random.usize(..6) {
            ok!(cudaGraphLaunch(*exec, streams[random.usize(..streams.len())].0));
            steps.iter().for_each(|step| step.model(&mut cells));
        }
        streams.iter().for_each(TestStream::wait);
        for (cell, &value) in cells.iter().enumerate() {
            let seen = read(cell);
            assert!(
                seen.iter().all(|&seen| seen == value),
                "seed {seed}, round {round}, cell {cell}: expected {value:#x}, got {seen:x?} from {graphs:?}"
            );
        }
        for (cell, value) in cells.iter_mut().enumerate().skip(DEVICE_CELLS) {
            if random.bool() {
                *value = random.u32(..);
                write(cell, *value);
            }
        }
    }
    for (exec, _) in graphs {
        ok!(cudaGraphExecDestroy(exec));
    }
    for (cell, &at) in at.iter().enumerate().take(CELLS - 2) {
        if host(cell) {
            ok!(cudaFreeHost(at.cast()));
        } else {
            ok!(cudaFree(at.cast()));
        }
    }
}

#[test]
fn random_graphs_do_at_each_launch_what_they_hold() {
    let seed =
        std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("GPUCOMM_TEST_SEED={seed} repeats this");
    let rounds = std::env::var("GPUCOMM_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    let seed_text = seed.to_string();
    isolated!(&[("GPUCOMM_TEST_SEED", &*seed_text)], || {
        for (device, peer) in [(0, 1), (1, 0)] {
            ok!(cudaSetDevice(device));
            ok!(cudaDeviceEnablePeerAccess(peer, 0));
        }
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                scope.spawn(move || {
                    (0..rounds).for_each(|round| random_graphs(seed.wrapping_add(round * 3 + thread)));
                });
            }
        });
        assert_eq!(crate::report::count(), 0);
    });
}

#[test]
fn launches_of_one_graph_come_one_after_the_other() {
    alone!();
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let (one, two) = (TestStream::new(0), TestStream::new(0));
    let (open, opened) = channel::<()>();
    // The first launch takes the way, all others find it open.
    unsafe extern "C" fn pass(data: *mut c_void) {
        // SAFETY: a receiver that outlives the graph.
        let _ = unsafe { &*data.cast::<Receiver<()>>() }.recv();
    }
    let opened = Box::new(opened);
    let exec = captured(one.0, || {
        count_in(one.0, &CALLS);
        ok!(cudaLaunchHostFunc(one.0, Some(pass), std::ptr::from_ref(&*opened).cast_mut().cast()));
        count_in(one.0, &CALLS);
    });
    assert_eq!(CALLS.load(Ordering::SeqCst), 0, "a capture calls nothing");
    ok!(cudaGraphLaunch(exec, one.0));
    ok!(cudaGraphLaunch(exec, two.0));
    ok!(cudaGraphLaunch(exec, null_mut()));
    // It ends when they are done.
    ok!(cudaGraphExecDestroy(exec));
    while CALLS.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
    assert_eq!((c!(cudaStreamQuery(one.0)), c!(cudaStreamQuery(two.0))), (NOT_READY, NOT_READY));
    drop(open);
    for stream in [one.0, two.0, null_mut()] {
        wait(stream);
    }
    assert_eq!(CALLS.load(Ordering::SeqCst), 6);
}

/// As on an H100: a graph takes as many places as its copies and fills would, and its host functions take none.
#[test]
fn a_graph_takes_the_places_of_what_it_holds() {
    isolated!(&[("GPUCOMM_EMULATOR_QUEUE", "21")], || {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let stream = TestStream::new(0);
        let memory = malloc(64);
        let graph = |fills: usize, calls: usize| {
            captured(stream.0, || {
                (0..fills).for_each(|_| ok!(cudaMemsetAsync(memory, 1, 64, stream.0)));
                (0..calls).for_each(|_| count_in(stream.0, &CALLS));
            })
        };
        for (exec, fits) in
            [(graph(10, 3), Some(2)), (graph(1, 0), Some(21)), (graph(30, 0), Some(1)), (graph(0, 9), None)]
        {
            let gate = stream.close_gate();
            for _ in 0..fits.unwrap_or(100) {
                ok!(cudaGraphLaunch(exec, stream.0));
            }
            if fits.is_some() {
                let (done, ended) = channel();
                let (handle, exec) = (stream.0.addr(), exec.addr());
                let thread = std::thread::spawn(move || {
                    let (exec, stream) =
                        (std::ptr::without_provenance_mut(exec), std::ptr::without_provenance_mut(handle));
                    ok!(cudaGraphLaunch(exec, stream));
                    done.send(()).unwrap();
                });
                assert!(ended.recv_timeout(Duration::from_millis(100)).is_err(), "the queue holds more than {fits:?}");
                drop(gate);
                thread.join().unwrap();
            } else {
                drop(gate);
            }
            stream.wait();
            ok!(cudaGraphExecDestroy(exec));
        }
        ok!(cudaFree(memory));
    });
}

#[test]
fn a_launch_looks_its_memory_up() {
    alone!();
    let stream = TestStream::new(0);
    let (memory, host) = (malloc(64), pinned(&[7; 16]));
    let kind = cudaMemcpyKind::cudaMemcpyHostToDevice;
    let exec = captured(stream.0, || ok!(cudaMemcpyAsync(memory, host.cast(), 64, kind, stream.0)));
    // An executable graph keeps nothing: neither is in use.
    ok!(cudaFree(memory));
    let freed = || assert_eq!(c!(cudaGraphLaunch(exec, stream.0)), INVALID);
    reported("cudaMemcpyAsync", freed);
    ok!(cudaFreeHost(host.cast()));
    ok!(cudaGraphExecDestroy(exec));
}
