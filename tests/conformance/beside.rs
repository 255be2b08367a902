//! Communicators that end while the device does work that is not NCCL's and that takes long. NCCL would wait for it, and each
//! call of CUDA for NCCL, so the crate has NCCL free them later.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use gpucomm::cuda::multicast::Multicast;
use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::nccl::{AbortOutcome, InitOptions};
use gpucomm::{
    Clique, Communicator, Device, DeviceBuffer, Error, Graph, InPlace, PinnedBuffer, ReduceOp, Result, Stream, group,
    sys,
};

use crate::support::process::{Role, spawn_all};
use crate::support::{places, quick, rank_counts, slower, still_works, watched, watched_alone};

/// How the clique ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Drop,
    Close,
    Abort,
}

/// Where the work is that takes long.
#[derive(Debug, Clone, Copy)]
enum Where {
    /// On a stream that no rank has used.
    Elsewhere,
    /// On a stream of a rank, behind its operations.
    Behind,
    /// On a stream that is gone.
    Gone,
    /// On the stream of another device, for which a stream of a rank waits.
    OfOther,
    /// On the device of a rank that was closed before.
    OfClosed,
}

/// A stream of the first device with a host function on it, which returns when the sender is dropped.
fn hold(stream: &Stream) -> Sender<()> {
    let (open, opened) = channel();
    let wait = move || drop::<Result<(), _>>(opened.recv_timeout(slower(60.0)));
    stream.launch_host(wait).unwrap();
    open
}

fn ends(end: End, at: Where) {
    let devices = &places()[..2];
    let options = InitOptions::new().with_timeout(slower(3.0));
    let clique = Clique::init_all_with(devices, &options).unwrap();
    let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
    let sums = clique.spmd(|comm| {
        let stream = &streams[comm.rank()];
        let mut x = DeviceBuffer::from_slice(stream, &[comm.rank() as u32 + 1; 1000])?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        x.to_vec(stream)
    });
    assert_eq!(sums.unwrap(), [[3; 1000], [3; 1000]]);
    let other = Stream::new(devices[0]).unwrap();
    let open = match at {
        Where::Elsewhere => hold(&other),
        Where::Behind => hold(&streams[0]),
        Where::Gone => hold(&Stream::new(devices[0]).unwrap()),
        Where::OfOther => {
            let Some(device) = places().get(2).copied() else { return };
            let stream = Stream::new(device).unwrap();
            let open = hold(&stream);
            streams[0].wait_event(&stream.record().unwrap()).unwrap();
            open
        }
        Where::OfClosed => {
            let mut ranks = clique.into_ranks();
            ranks.remove(0).close_timeout(slower(10.0)).unwrap();
            let open = hold(&other);
            quick(slower(3.0), || drop(ranks));
            go_on(devices);
            drop(open);
            return streams.iter().chain([&other]).for_each(|stream| stream.synchronize().unwrap());
        }
    };
    quick(slower(3.0), || match end {
        End::Drop => drop(clique),
        // What is behind an operation on its stream is waited for as that is.
        End::Close if matches!(at, Where::Behind | Where::OfOther) => {
            let error = clique.close_timeout(slower(1.0)).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        }
        End::Close => clique.close_timeout(slower(10.0)).unwrap(),
        End::Abort => assert_eq!(clique.abort("not wanted"), AbortOutcome::StillRunning),
    });
    go_on(devices);
    drop(open);
    streams.iter().chain([&other]).for_each(|stream| stream.synchronize().unwrap());
}

/// Nobody else on these devices is held up.
fn go_on(devices: &[Device]) {
    for device in devices {
        quick(slower(1.0), || {
            let stream = Stream::new(*device).unwrap();
            let x = DeviceBuffer::from_slice(&stream, &[7u8; 5000]).unwrap();
            assert_eq!(x.to_vec(&stream).unwrap(), [7; 5000]);
        });
    }
}

fn each_way(end: End) {
    watched(120.0, move || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        for at in [Where::Elsewhere, Where::Behind, Where::Gone, Where::OfOther, Where::OfClosed] {
            ends(end, at);
            still_works(2);
        }
    });
}

#[test]
fn a_drop() {
    each_way(End::Drop);
}

#[test]
fn a_close() {
    each_way(End::Close);
}

#[test]
fn an_abort() {
    each_way(End::Abort);
}

/// Operations that are held up cannot be stopped before the device begins them. A drop waits for that once, also where another thread has
/// dropped a rank before; memory that is registered is taken away from NCCL first.
#[test]
fn a_drop_with_operations_that_are_held_up() {
    watched(120.0, || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        for by_two_threads in [false, true] {
            let devices = &places()[..2];
            let clique = Clique::init_all(devices).unwrap();
            let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
            let all = Barrier::new(2);
            let open = clique.spmd(|comm| {
                let stream = &streams[comm.rank()];
                let mut memory = comm.alloc_local::<u32>(stream, 5000)?;
                let registered = comm.register(&memory)?;
                comm.all_reduce(InPlace(&mut memory), ReduceOp::Sum, stream)?;
                stream.synchronize()?;
                all.wait();
                comm.set_timeout(slower(3.0));
                let open = hold(stream);
                comm.all_reduce(InPlace(&mut memory), ReduceOp::Sum, stream)?;
                drop((registered, memory));
                Ok(open)
            });
            let (mut ranks, start) = (clique.into_ranks(), Instant::now());
            if by_two_threads {
                // It takes its time, and so does this thread.
                let first = ranks.remove(0);
                std::thread::spawn(move || drop(first)).join().unwrap();
            }
            drop(ranks);
            let limit = slower(if by_two_threads { 8.0 } else { 5.0 });
            assert!(start.elapsed() < limit, "{:?}", start.elapsed());
            go_on(devices);
            drop(open);
            still_works(2);
        }
    });
}

/// What a rank calls.
type Call = fn(&Communicator, &Stream) -> Result<()>;

fn sum(comm: &Communicator, stream: &Stream) -> Result<()> {
    assert_eq!(comm.all_reduce_scalar(1u32, ReduceOp::Sum, stream)?, 2);
    Ok(())
}

const CALLS: [(&str, Call); 9] = [
    ("sum", sum),
    ("barrier", |comm, stream| comm.barrier(stream)),
    ("alloc", |comm, stream| {
        drop(comm.alloc_from(stream, &[3u32; 500])?);
        comm.reclaim()
    }),
    ("split", |comm, stream| sum(&comm.split(Some(0), 0)?.expect("a part"), stream)),
    ("graph", |comm, stream| {
        let mut x = DeviceBuffer::from_slice(stream, &[1u32; 4])?;
        let graph = stream.capture(|stream| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream))?;
        graph.launch(stream)?;
        assert_eq!(x.to_vec(stream)?, [2; 4]);
        Ok(())
    }),
    ("window", |comm, stream| {
        let memory = gpucomm::nccl::alloc::<f32>(stream, 1 << 20)?;
        match comm.window(&memory) {
            Ok(window) => drop(window),
            Err(Error::Unsupported { .. }) => {}
            Err(error) => return Err(error),
        }
        drop(memory);
        comm.reclaim()
    }),
    ("register", |comm, stream| {
        let memory = comm.alloc_local::<f32>(stream, 1 << 20)?;
        drop(comm.register(&memory)?);
        drop(memory);
        comm.reclaim()
    }),
    ("pinned memory", |_, stream| {
        let mut pinned = PinnedBuffer::<u8>::zeroed(32 << 20)?;
        let x = DeviceBuffer::from_slice(stream, &[9u8; 3])?;
        x.copy_to_pinned(stream, pinned.slice_mut(..3))?;
        assert_eq!(pinned.as_slice()?[..3], [9; 3]);
        drop(pinned);
        // Enough that CUDA has to be asked again.
        PinnedBuffer::<u8>::zeroed(32 << 20).map(drop)
    }),
    ("a large buffer", |_, stream| {
        for _ in 0..2 {
            let mut x = DeviceBuffer::<u8>::uninit(stream, 300_000_000)?;
            x.slice_mut(299_999_000..).fill(stream, 3)?;
            assert_eq!(x.slice(299_999_500..299_999_510).to_vec(stream)?, [3; 10]);
        }
        Ok(())
    }),
];

/// What a rank calls on a communicator that does not go on afterwards.
#[cfg(nccl_ge_2_28_7)]
const LAST_CALLS: [(&str, Call); 2] = [
    ("revoke", |comm, stream| {
        let revoked = comm.revoke("the test revokes")?;
        sum(&revoked.split(Some(0), 0)?.expect("a part"), stream)
    }),
    ("shrink", |comm, stream| match comm.rank() {
        0 => {
            assert_eq!(comm.shrink(&[1])?.all_reduce_scalar(5u32, ReduceOp::Sum, stream)?, 5);
            Ok(())
        }
        _ => Ok(()),
    }),
];

/// What a rank calls does not wait for work of others on its device, nor does the start of another clique.
#[test]
fn calls() {
    watched(120.0, || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let devices = &places()[..2];
        // NCCL loads its kernels with the first operation of a process, and waits for the whole device then.
        still_works(2);
        let clique = Clique::init_all(devices).unwrap();
        #[cfg(nccl_ge_2_28_7)]
        let last = LAST_CALLS.map(|call| (Clique::init_all(devices).unwrap(), call));
        let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
        let other = Stream::new(devices[0]).unwrap();
        let open = hold(&other);
        for (what, call) in CALLS {
            println!("{what}");
            quick(slower(5.0), || clique.spmd(|comm| call(comm, &streams[comm.rank()]))).unwrap();
        }
        #[cfg(nccl_ge_2_28_7)]
        for (clique, (what, call)) in last {
            println!("{what}");
            quick(slower(5.0), || {
                clique.spmd(|comm| call(comm, &streams[comm.rank()])).unwrap();
                drop(clique);
            });
        }
        if Multicast::supported(devices).unwrap() {
            let multicast = || Multicast::single_process(devices, 1)?.close();
            quick(slower(1.0), multicast).unwrap();
        }
        let mapped = |device: Device| PhysicalMemory::new(device, 1000)?.map(&[Access::read_write(device)]).map(drop);
        quick(slower(1.0), || mapped(devices[0])).unwrap();
        quick(slower(5.0), || {
            let another = Clique::init_all(devices).unwrap();
            another.spmd(|comm| sum(comm, &streams[comm.rank()])).unwrap();
        });
        go_on(devices);
        drop(open);
        other.synchronize().unwrap();
        clique.close_timeout(slower(10.0)).unwrap();
    });
}

/// Whoever aborts a rank sees that the device is busy, also while another thread aborts another rank.
#[test]
fn two_aborts_at_once() {
    watched(120.0, || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let devices = &places()[..2];
        // NCCL loads its kernels with the first operation of a process, and waits for the whole device then.
        still_works(2);
        for _ in 0..if gpucomm::backend() == gpucomm::Backend::Emulator { 12 } else { 4 } {
            let clique = Clique::init_all(devices).unwrap();
            let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
            let open: Vec<_> = streams.iter().map(hold).collect();
            let others = clique.spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                comm.all_reduce_scalar(1u32, ReduceOp::Sum, &stream)?;
                Ok(stream)
            });
            let all = Barrier::new(2);
            std::thread::scope(|scope| {
                for comm in clique.into_ranks() {
                    let all = &all;
                    scope.spawn(move || {
                        all.wait();
                        let _ = comm.abort("not wanted");
                    });
                }
            });
            go_on(devices);
            drop(open);
            let done = |stream: &Stream| stream.synchronize().unwrap();
            streams.iter().chain(&others.unwrap()).for_each(done);
        }
    });
}

/// Two ranks, and for each a stream, four sums, and a stream of its device that other work occupies.
struct Pair {
    clique: Clique,
    streams: Vec<Stream>,
    sums: Vec<DeviceBuffer<f32>>,
    others: Vec<Stream>,
}

impl Pair {
    fn start() -> Self {
        let devices = &places()[..2];
        let options = InitOptions::new().with_timeout(slower(1.0));
        let clique = Clique::init_all_with(devices, &options).unwrap();
        let streams = || -> Vec<_> { devices.iter().map(|device| Stream::new(*device).unwrap()).collect() };
        let (streams, others) = (streams(), streams());
        let sums: Vec<_> = streams.iter().map(|stream| DeviceBuffer::from_slice(stream, &[3.0; 4]).unwrap()).collect();
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        Self { clique, streams, sums, others }
    }

    fn hold(&self) -> Vec<Sender<()>> {
        self.others.iter().map(hold).collect()
    }

    fn all_reduce(&mut self) -> Result<()> {
        let Self { clique, streams, sums, .. } = self;
        sum_on(clique, sums, streams)
    }

    fn capture(&mut self) -> Result<Graph> {
        let Self { clique, streams, sums, .. } = self;
        streams[0].capture(|first| sum_on(clique, sums, &[first.clone(), first.fork(streams[1].device())?]))
    }

    fn check(&self, expected: f32) {
        for (sums, stream) in self.sums.iter().zip(&self.streams) {
            assert_eq!(sums.to_vec(stream).unwrap(), [expected; 4]);
        }
    }
}

fn sum_on(clique: &Clique, sums: &mut [DeviceBuffer<f32>], streams: &[Stream]) -> Result<()> {
    group(|g| {
        let ranks = clique.ranks().iter().zip(sums).zip(streams);
        ranks.into_iter().try_for_each(|((comm, x), stream)| g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream))
    })
}

fn is_late_for_memory(late: Result<()>) {
    let late = late.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }) && late.to_string().contains("NCCL_SET_STACK_SIZE"), "{late}");
}

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    if Role::of_this_process("starts").is_some() {
        // NCCL makes the memory when a communicator starts, which waits for the device too.
        let other = Stream::new(places()[0]).unwrap();
        let open = hold(&other);
        let options = InitOptions::new().with_timeout(slower(1.0));
        is_late_for_memory(Clique::init_all_with(&places()[..2], &options).map(drop));
        drop(open);
        let mut pair = Pair::start();
        let open = pair.hold();
        quick(slower(1.0), || pair.all_reduce().unwrap());
        drop(open);
        pair.check(6.0);
    }
}

/// With `NCCL_SET_STACK_SIZE=1`, the start of a communicator makes what the first operation needs.
#[test]
fn a_first_operation_of_a_process_that_made_its_memory_before() {
    watched(60.0, || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let mut children = spawn_all("beside::child", "starts", 1, &[("NCCL_SET_STACK_SIZE", "1")]);
        children.remove(0).finish(slower(50.0)).assert_success();
    });
}

/// NCCL would wait inside the driver, where no deadline reaches it. So the crate waits before, once for all kernels
/// of NCCL, which need different amounts of memory.
#[test]
fn the_first_operation_of_a_process() {
    watched_alone(60.0, || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let mut pair = Pair::start();
        let open = pair.hold();
        // NCCL launches no kernel for a rank alone.
        let one = Clique::init_all(&places()[..1]).unwrap();
        quick(slower(1.0), || one.rank(0).all_reduce_scalar(3_u32, ReduceOp::Sum, &pair.streams[0]).unwrap());
        is_late_for_memory(pair.all_reduce());
        is_late_for_memory(pair.clique.rank(0).all_reduce(InPlace(&mut pair.sums[0]), ReduceOp::Sum, &pair.streams[0]));
        drop(open);
        // Nothing was submitted, so the communicator goes on.
        pair.all_reduce().unwrap();
        pair.check(6.0);
        let open = pair.hold();
        let Pair { clique, streams, sums, .. } = &mut pair;
        quick(slower(2.0), || {
            group(|g| {
                let ranks = clique.ranks().iter().zip(&mut *sums).zip(&*streams);
                ranks.into_iter().try_for_each(|((comm, x), stream)| g.broadcast(comm, InPlace(x), 1, stream))
            })
            .unwrap();
        });
        let (from, to) = sums.split_at_mut(1);
        quick(slower(2.0), || {
            group(|g| {
                g.send(clique.rank(0), &from[0], 1, &streams[0])?;
                g.recv(clique.rank(1), &mut to[0], 0, &streams[1])
            })
            .unwrap();
        });
        drop(open);
        pair.check(6.0);
    });
}

/// Another thread always has fills on their way. They end by themselves, and are waited for only as far as they were there before.
#[test]
fn the_first_operation_of_a_process_beside_fills_without_end() {
    watched_alone(60.0, || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let mut pair = Pair::start();
        let (other, enough) = (pair.others[0].clone(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = DeviceBuffer::<u8>::zeroed(&other, 8 << 20).unwrap();
                let mut earlier = other.record().unwrap();
                while !enough.load(Ordering::Relaxed) {
                    buffer.fill(&other, 7).unwrap();
                    buffer.fill(&other, 8).unwrap();
                    let now = other.record().unwrap();
                    std::mem::replace(&mut earlier, now).synchronize().unwrap();
                }
            });
            std::thread::sleep(slower(0.2));
            let done = pair.all_reduce();
            enough.store(true, Ordering::Relaxed);
            done.unwrap();
        });
        pair.check(6.0);
    });
}

/// CUDA would make the local memory of a graph's kernels when the graph is instantiated.
#[test]
fn the_first_operation_of_a_process_in_a_graph() {
    watched_alone(60.0, || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let mut pair = Pair::start();
        let open = pair.hold();
        is_late_for_memory(pair.capture().map(drop));
        drop(open);
        let graph = pair.capture().unwrap();
        let open = pair.hold();
        quick(slower(1.0), || graph.launch(&pair.streams[0]).unwrap());
        let second = quick(slower(1.0), || pair.capture().unwrap());
        quick(slower(1.0), || second.launch(&pair.streams[0]).unwrap());
        drop(open);
        pair.check(12.0);
    });
}

/// A call that the driver holds up launches its kernel afterwards. So its communicator is not revoked before: a
/// revoke frees memory that the kernel uses.
fn inside_the_driver(end: fn(&Communicator)) {
    watched_alone(90.0, move || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let devices = &places()[..2];
        let options = InitOptions::new().with_timeout(slower(8.0));
        let clique = Clique::init_all_with(devices, &options).unwrap();
        let mut lanes: Vec<_> = devices
            .iter()
            .map(|device| {
                let stream = Stream::new(*device).unwrap();
                let x = DeviceBuffer::from_slice(&stream, &[1_u32]).unwrap();
                (stream, x)
            })
            .collect();
        let sum = |comm: &Communicator, (stream, x): &mut (Stream, DeviceBuffer<u32>)| {
            comm.all_reduce(InPlace(&mut *x), ReduceOp::Sum, stream)?;
            x.to_vec(stream)
        };
        std::thread::scope(|scope| {
            for (comm, lane) in clique.ranks().iter().zip(&mut lanes) {
                scope.spawn(move || assert_eq!(sum(comm, lane).unwrap(), [2]));
            }
        });
        let other = Stream::new(devices[0]).unwrap();
        let foreign = Foreign::of(devices[0]);
        std::thread::scope(|scope| {
            let open = hold(&other);
            // It waits for the device inside the driver, with the lock of the driver.
            let free = scope.spawn(move || foreign.free());
            std::thread::sleep(slower(0.5));
            let calls = clique.ranks().iter().zip(&mut lanes);
            let calls: Vec<_> = calls.map(|(comm, lane)| scope.spawn(move || sum(comm, lane))).collect();
            std::thread::sleep(slower(0.5));
            end(clique.rank(0));
            // An abort would have revoked the communicator by now.
            std::thread::sleep(slower(6.0));
            drop(open);
            free.join().unwrap();
            for call in calls {
                let ended = call.join().unwrap();
                assert!(ended.is_err(), "{ended:?}");
            }
        });
        drop(clique);
        still_works(2);
    });
}

/// Memory of a program that does not use this crate for it.
struct Foreign(Device, usize);

impl Foreign {
    fn of(device: Device) -> Self {
        let _current = device.set_current().unwrap();
        let mut memory = std::ptr::null_mut();
        // SAFETY: writes a pointer to the address given.
        let code = unsafe { sys::cudaMalloc(&raw mut memory, 1 << 20) };
        assert_eq!(code, sys::cudaError::cudaSuccess);
        Self(device, memory.expose_provenance())
    }

    fn free(self) {
        let _current = self.0.set_current().unwrap();
        // SAFETY: from cudaMalloc, and not used.
        let code = unsafe { sys::cudaFree(std::ptr::with_exposed_provenance_mut(self.1)) };
        assert_eq!(code, sys::cudaError::cudaSuccess);
    }
}

#[test]
fn an_abort_of_a_call_inside_the_driver() {
    inside_the_driver(|comm| assert_eq!(comm.aborter().abort("not wanted"), AbortOutcome::StillRunning));
}

#[test]
fn a_revoke_of_a_call_inside_the_driver() {
    inside_the_driver(|comm| {
        let late = comm.revoke("not wanted");
        assert!(late.is_err(), "{late:?}");
    });
}
