//! Communicators that end while the device does work that is not NCCL's and that takes long. NCCL would wait for it, and each
//! call of CUDA for NCCL, so the crate has NCCL free them later.

use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use gpucomm::cuda::multicast::Multicast;
use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::nccl::{AbortOutcome, InitOptions};
use gpucomm::{
    Clique, Communicator, Device, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Result, Stream, group,
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
    let options = InitOptions { timeout: slower(3.0), ..InitOptions::default() };
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
            ranks.remove(0).close(slower(10.0)).unwrap();
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
            let error = clique.close(slower(1.0)).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        }
        End::Close => clique.close(slower(10.0)).unwrap(),
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
    ("barrier", |comm, stream| comm.wait_at_barrier(stream)),
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
        clique.close(slower(10.0)).unwrap();
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

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    if Role::of_this_process("starts").is_some() {
        let (stream, other) = (Stream::new(places()[0]).unwrap(), Stream::new(places()[0]).unwrap());
        let clique = Clique::init_all(&places()[..1]).unwrap();
        let mut x = DeviceBuffer::from_slice(&stream, &[1.0_f32; 4]).unwrap();
        stream.synchronize().unwrap();
        let open = hold(&other);
        quick(slower(1.0), || clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap());
        drop(open);
    }
}

/// With `NCCL_SET_STACK_SIZE=1`, the start of a communicator makes what the first operation needs.
#[test]
fn a_first_operation_of_a_process_that_made_its_memory_before() {
    watched(60.0, || {
        let mut children = spawn_all("beside::child", "starts", 1, &[("NCCL_SET_STACK_SIZE", "1")]);
        children.remove(0).finish(slower(50.0)).assert_success();
    });
}

/// NCCL would wait inside the driver, where no deadline reaches it. So the crate waits before.
#[test]
fn the_first_operation_of_a_process() {
    watched_alone(60.0, || {
        let options = InitOptions { timeout: slower(1.0), ..InitOptions::default() };
        let clique = Clique::init_all_with(&places()[..1], &options).unwrap();
        let (stream, other) = (Stream::new(places()[0]).unwrap(), Stream::new(places()[0]).unwrap());
        let mut x = DeviceBuffer::from_slice(&stream, &[3.0_f32; 4]).unwrap();
        let open = hold(&other);
        let late = clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap_err();
        assert!(matches!(late, Error::Timeout { .. }) && late.to_string().contains("NCCL_SET_STACK_SIZE"), "{late}");
        let late = group(|g| g.all_reduce(clique.rank(0), InPlace(&mut x), ReduceOp::Sum, &stream)).unwrap_err();
        assert!(matches!(late, Error::Timeout { .. }), "{late}");
        drop(open);
        // Nothing was submitted, so the communicator goes on.
        clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
        assert_eq!(x.to_vec(&stream).unwrap(), [3.0; 4]);
    });
}

/// CUDA makes the local memory of a graph's kernels when the graph is instantiated.
#[test]
fn the_first_operation_of_a_process_in_a_graph() {
    watched_alone(60.0, || {
        let options = InitOptions { timeout: slower(1.0), ..InitOptions::default() };
        let clique = Clique::init_all_with(&places()[..1], &options).unwrap();
        let (stream, other) = (Stream::new(places()[0]).unwrap(), Stream::new(places()[0]).unwrap());
        let mut x = DeviceBuffer::from_slice(&stream, &[3.0_f32; 4]).unwrap();
        stream.synchronize().unwrap();
        let mut holder = None;
        let late = stream.capture(|stream| {
            clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
            holder = Some(hold(&other));
            Ok(())
        });
        let late = late.unwrap_err();
        assert!(matches!(late, Error::Timeout { .. }) && late.to_string().contains("NCCL_SET_STACK_SIZE"), "{late}");
        let late = stream.capture(|stream| clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream));
        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
        drop(holder);
        let graph = stream.capture(|stream| clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)).unwrap();
        // The memory has been made.
        let open = hold(&other);
        quick(slower(1.0), || graph.launch(&stream).unwrap());
        quick(slower(1.0), || {
            drop(stream.capture(|stream| clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)))
        });
        drop(open);
        assert_eq!(x.to_vec(&stream).unwrap(), [3.0; 4]);
    });
}

/// A call that the driver holds up launches its kernel afterwards. So its communicator is not revoked before: a
/// revoke frees memory that the kernel uses. Only the first operation of a process is held up.
fn inside_the_driver(end: fn(&Communicator)) {
    watched_alone(90.0, move || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let devices = &places()[..2];
        let options = InitOptions { timeout: slower(8.0), ..InitOptions::default() };
        let clique = Clique::init_all_with(devices, &options).unwrap();
        let other = Stream::new(devices[0]).unwrap();
        std::thread::scope(|scope| {
            let call = |rank: usize| {
                let (comm, stream) = (clique.rank(rank), Stream::new(devices[rank]).unwrap());
                comm.all_reduce_scalar(1_u32, ReduceOp::Sum, &stream)
            };
            let first = scope.spawn(move || call(0));
            // It waits for the other rank, and has found the device idle.
            std::thread::sleep(slower(0.5));
            let open = hold(&other);
            let second = scope.spawn(move || call(1));
            std::thread::sleep(slower(0.5));
            end(clique.rank(0));
            // An abort would have revoked the communicator by now.
            std::thread::sleep(slower(6.0));
            drop(open);
            for call in [first, second] {
                let ended = call.join().unwrap();
                assert!(ended.is_err(), "{ended:?}");
            }
        });
        drop(clique);
        still_works(2);
    });
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
