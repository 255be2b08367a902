//! Memory of any origin, registered. On the emulator, ranks that do not do it alike, and registrations that are left over where a
//! communicator ends, end the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpucomm::cuda::Slice;
use gpucomm::nccl::Registration;
use gpucomm::{
    Backend, Clique, CommBuffer, Communicator, Device, DeviceBuffer, Error, InPlace, RecvOnly, ReduceOp, Result,
    SendOnly, Stream, group, sys,
};

use crate::support::process::{Role, all_succeed, spawn_all};
use crate::support::{
    Rig, assert_argument, assert_names, is_thorough, places, rank_counts, slower, still_works, watched,
};

/// Large enough for NCCL to move it without copying; the emulator makes no difference.
pub fn large() -> usize {
    match gpucomm::backend() {
        Backend::Nvidia => 12 << 20,
        _ if is_thorough() => 384 << 10,
        _ => 96 << 10,
    }
}

/// Whether memory of NCCL can be registered: not where the library cannot be stopped before that is taken away.
pub fn has_effect() -> bool {
    gpucomm::nccl::version().unwrap() >= gpucomm::Version::new(2, 28, 7)
}

fn value(rank: usize, at: usize) -> u32 {
    (at as u32).wrapping_mul(2_654_435_761).wrapping_add(rank as u32)
}

fn values(rank: usize, len: usize) -> Vec<u32> {
    (0..len).map(|at| value(rank, at)).collect()
}

/// Every operation, out of `send` and into `recv`, each of which has so many elements for each rank.
fn all_is_right(
    comm: &Communicator,
    stream: &Stream,
    (send, recv): (&mut CommBuffer<'_, u32>, &mut CommBuffer<'_, u32>),
    part: usize,
) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let mine = values(me, part * size);
    let sum = |at: usize| (0..size).fold(0, |sum: u32, rank| sum.wrapping_add(value(rank, at)));
    let check = |what: &str, got: Vec<u32>, want: &dyn Fn(usize) -> u32| {
        let wrong = (0..got.len()).filter(|&at| got[at] != want(at)).count();
        assert_eq!(wrong, 0, "{what} of {part} a rank, {size} ranks");
    };
    send.copy_from_slice(stream, &mine)?;
    comm.all_reduce((&*send, &mut *recv), ReduceOp::Sum, stream)?;
    check("all_reduce", recv.to_vec(stream)?, &sum);
    recv.copy_from(stream, &*send)?;
    comm.all_reduce(InPlace(recv.slice_mut(1..)), ReduceOp::Sum, stream)?;
    check("all_reduce in place", recv.slice(1..).to_vec(stream)?, &|at| sum(at + 1));
    comm.all_gather((send.slice(..part), &mut *recv), stream)?;
    check("all_gather", recv.to_vec(stream)?, &|at| value(at / part, at % part));
    comm.reduce_scatter((&*send, recv.slice_mut(..part)), ReduceOp::Sum, stream)?;
    check("reduce_scatter", recv.slice(..part).to_vec(stream)?, &|at| sum(me * part + at));
    comm.all_to_all((&*send, &mut *recv), stream)?;
    check("all_to_all", recv.to_vec(stream)?, &|at| value(at / part, me * part + at % part));
    for root in 0..size {
        match me == root {
            true => comm.broadcast((&*send, &mut *recv), root, stream)?,
            false => comm.broadcast(RecvOnly(&mut *recv), root, stream)?,
        }
        check("broadcast", recv.to_vec(stream)?, &|at| value(root, at));
        match me == root {
            true => comm.gather((send.slice(..part), &mut *recv), root, stream)?,
            false => comm.gather(SendOnly(send.slice(..part)), root, stream)?,
        }
        if me == root {
            check("gather", recv.to_vec(stream)?, &|at| value(at / part, at % part));
        }
    }
    let (next, before) = ((me + 1) % size, (me + size - 1) % size);
    group(|g| {
        g.send(comm, send.slice(..part), next, stream)?;
        g.recv(comm, recv.slice_mut(..part), before, stream)
    })?;
    check("messages", recv.slice(..part).to_vec(stream)?, &|at| value(before, at));
    Ok(())
}

#[test]
fn operations_are_right_before_meanwhile_and_afterwards() {
    watched(200.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            for part in [5, large() / 4 / ranks] {
                rig.run(|comm, stream| {
                    let mut send = comm.alloc_local::<u32>(stream, part * ranks)?.into_fitting();
                    let mut recv = comm.alloc_local::<u32>(stream, part * ranks)?.into_fitting();
                    all_is_right(comm, stream, (&mut send, &mut recv), part)?;
                    for _ in 0..2 {
                        let registered = [comm.register(&send)?, comm.register(&recv)?];
                        let without = registered.each_ref().map(Registration::without_effect);
                        assert!(without.iter().all(|without| without.is_none() == has_effect()), "{without:?}");
                        all_is_right(comm, stream, (&mut send, &mut recv), part)?;
                        drop(registered);
                        // They stay registered until all ranks come together.
                        all_is_right(comm, stream, (&mut send, &mut recv), part)?;
                        comm.reclaim()?;
                        all_is_right(comm, stream, (&mut send, &mut recv), part)?;
                    }
                    Ok(())
                });
            }
            rig.close();
        }
    });
}

/// One thread that drives all ranks.
#[test]
fn one_thread_registers_for_all() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let clique = Clique::init_all(&places()[..ranks]).unwrap();
            let streams: Vec<_> = clique.ranks().iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            let mut memory: Vec<_> = clique
                .ranks()
                .iter()
                .zip(&streams)
                .map(|(comm, stream)| comm.alloc_local::<u32>(stream, 1000).unwrap())
                .collect();
            let registered = clique.register(&memory).unwrap();
            assert!(registered.iter().all(|one| one.without_effect().is_none() == has_effect()));
            group(|g| {
                let calls = clique.ranks().iter().zip(&mut memory).zip(&streams);
                calls
                    .into_iter()
                    .try_for_each(|((comm, x), stream)| g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream))
            })
            .unwrap();
            drop(registered);
            clique.reclaim().unwrap();
            let few = clique.register(&memory[1..]);
            assert_argument(few, "Clique::register", &format!("{ranks} buffers"), &format!("{} buffers", ranks - 1));
            drop(memory);
            clique.close_timeout(gpucomm::default_timeout()).unwrap();
        }
    });
}

/// Where NCCL shows the memory to nobody, operations go on, and the registration says why.
#[test]
fn memory_that_ranks_cannot_reach_is_copied() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[comm.rank() as u32; 5000])?;
                let owner = DeviceBuffer::from_slice(stream, &[1u32; 5000])?;
                let ptr = owner.as_raw();
                // SAFETY: the memory goes with its owner, which nobody else has, and is used on one stream.
                let mut y = unsafe { DeviceBuffer::<u32>::from_raw_parts(comm.device(), ptr, 5000, owner)? };
                let empty = comm.alloc_local::<u32>(stream, 0)?;
                let registered = [comm.register(&x)?, comm.register(y.slice(7..9))?, comm.register(&empty)?];
                let words = if has_effect() { ["cudaMalloc", "cudaMalloc", "no elements"] } else { ["2.28.7"; 3] };
                for (one, word) in registered.iter().zip(words) {
                    assert!(one.without_effect().is_some_and(|why| why.contains(word)), "{one:?}");
                }
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                comm.all_reduce((&x, &mut y), ReduceOp::Max, stream)?;
                assert_eq!(y.to_vec(stream)?, [(ranks * (ranks - 1) / 2) as u32; 5000]);
                // As often as one likes.
                comm.register(&x).map(drop)
            });
            rig.close();
        }
    });
}

/// Memory of NCCL that nobody but its owner knows.
struct Mapped {
    device: Device,
    ptr: *mut std::ffi::c_void,
    freed: Arc<AtomicUsize>,
}

// SAFETY: an address to the host.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(device: Device, bytes: usize, freed: &Arc<AtomicUsize>) -> Self {
        let _current = device.set_current().unwrap();
        let mut ptr = std::ptr::null_mut();
        // SAFETY: writes a pointer to the address given; the device is current.
        let allocated = unsafe { sys::ncclMemAlloc(&raw mut ptr, bytes) };
        assert_eq!(allocated, sys::ncclResult_t::ncclSuccess);
        Self { device, ptr, freed: Arc::clone(freed) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _current = self.device.set_current();
        // SAFETY: from ncclMemAlloc, freed once, when nothing uses it any more.
        let _ = unsafe { sys::ncclMemFree(self.ptr) };
        self.freed.fetch_add(1, Ordering::SeqCst);
    }
}

/// A buffer over memory of others that is mapped, of so many bytes from `begin` on.
pub fn mapped(
    comm: &Communicator,
    (begin, bytes): (usize, usize),
    freed: &Arc<AtomicUsize>,
) -> Result<DeviceBuffer<u8>> {
    let owner = Mapped::new(comm.device(), large(), freed);
    let ptr = owner.ptr.wrapping_byte_add(begin);
    // SAFETY: the memory goes with its owner, which nobody else has; nothing was done with it before.
    unsafe { DeviceBuffer::from_raw_parts(comm.device(), ptr, bytes, owner) }
}

/// What is registered lives until it is taken away, whatever becomes of its buffer.
#[test]
fn memory_of_others_is_kept_alive() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let freed = Arc::new(AtomicUsize::new(0));
                let mut x = mapped(comm, (0, large()), &freed)?;
                let y = mapped(comm, (0, large()), &freed)?;
                let registered = [comm.register(&x)?, comm.register(&y)?];
                assert!(registered.iter().all(|one| one.without_effect().is_none() == has_effect()), "{registered:?}");
                x.fill(stream, comm.rank() as u8)?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                assert_eq!(x.slice(large() - 3..).to_vec(stream)?, [ranks as u8 - 1; 3]);
                drop((x, y));
                let [first, second] = registered;
                drop(first);
                comm.reclaim()?;
                let kept = |count: usize| if has_effect() { count } else { 2 };
                assert_eq!(freed.load(Ordering::SeqCst), kept(1));
                drop(second);
                assert_eq!(freed.load(Ordering::SeqCst), kept(1));
                // A window that is allocated is such a point, too.
                comm.alloc::<u8>(stream, 100)?;
                assert_eq!(freed.load(Ordering::SeqCst), 2);
                // Parts of pages would be taken for registered by neighbours.
                for part in [(0, 100), (512, large() - 512)] {
                    let z = mapped(comm, part, &freed)?;
                    let registered = comm.register(&z)?;
                    let word = if has_effect() { "pages" } else { "2.28.7" };
                    assert!(registered.without_effect().is_some_and(|why| why.contains(word)), "{registered:?}");
                }
                Ok(())
            });
            rig.close();
        }
    });
}

#[test]
fn what_cannot_be_registered_is_refused() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let other = Rig::new(ranks);
            rig.run(|comm, stream| {
                let window = comm.alloc::<u32>(stream, 10)?;
                if window.is_window() {
                    assert_argument(comm.register(&window), "register", "not registered", "a window");
                }
                let elsewhere = Device::all()?.into_iter().find(|device| *device != comm.device()).unwrap();
                let far = DeviceBuffer::<u32>::zeroed(&Stream::new(elsewhere)?, 10)?;
                assert_argument(comm.register(&far), "register", &comm.device().to_string(), &elsewhere.to_string());
                let theirs = other.clique.rank(comm.rank()).alloc_local::<u32>(stream, 10)?;
                let (own, another) = ("this communicator \"world\"", "another communicator \"world\"");
                assert_argument(comm.register(&theirs), "register", own, another);
                let plain = DeviceBuffer::<u32>::zeroed(stream, 10)?;
                // SAFETY: the view is not used.
                let view = unsafe { Slice::<u32>::from_raw_parts(&plain, comm.device(), plain.as_raw(), 10)? };
                assert_argument(comm.register(view), "register", "keeps alive", "a view");
                let within = group(|_| comm.register(&plain).map(drop)).unwrap_err();
                assert!(matches!(within, Error::InvalidUsage { .. }), "{within:?}");
                let local = comm.alloc_local::<u32>(stream, 10)?;
                let first = comm.register(&local)?;
                if has_effect() {
                    let twice = comm.register(&local).unwrap_err();
                    assert!(matches!(twice, Error::InvalidUsage { .. }), "{twice:?}");
                    assert_names(&twice, &["register", "already"]);
                }
                drop(first);
                comm.register(&local).map(drop)
            });
            rig.close();
            other.close();
        }
    });
}

type Body = fn(&Communicator, &Stream, CommBuffer<'_, u32>) -> Result<()>;

/// What ranks do not do alike is told on all of them.
#[test]
fn ranks_that_do_not_register_alike_are_told() {
    let cases: [(&[&str], Body); 4] = [
        (&["register", "all_reduce"], |comm, stream, mut x| match comm.rank() {
            0 => comm.register(&x).map(drop),
            _ => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream),
        }),
        (&["register of memory that ranks can reach", "copied"], |comm, stream, x| {
            let plain = DeviceBuffer::<u32>::zeroed(stream, 10)?;
            let registered = if comm.rank() == 0 { comm.register(&x) } else { comm.register(&plain) };
            registered.map(drop)
        }),
        (&["all_reduce", "of registration"], |comm, stream, mut x| {
            let mut other = comm.alloc_local::<u32>(stream, 10)?;
            let _registered = comm.register(&x)?;
            let buffer = if comm.rank() == 0 { x.as_slice_mut() } else { other.as_slice_mut() };
            comm.all_reduce(InPlace(buffer), ReduceOp::Sum, stream)
        }),
        (&["rank 0", "rank 1"], |comm, stream, mut x| {
            let mut other = comm.alloc_local::<u32>(stream, 10)?;
            let _registered = comm.register(&x)?;
            match comm.rank() {
                0 => comm.send(&x, 1, stream),
                1 => comm.recv(&mut other, 0, stream),
                _ => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream),
            }
        }),
    ];
    watched(100.0, move || {
        if !has_effect() {
            return;
        }
        for ranks in rank_counts(&[2]) {
            for (words, body) in cases {
                let rig = Rig::new(ranks);
                let result = rig.try_run(|comm, stream| {
                    body(comm, stream, comm.alloc_local::<u32>(stream, 10)?.into_fitting())?;
                    stream.synchronize()
                });
                let error = result.expect_err("ranks disagree");
                assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                assert_names(&error, words);
            }
            still_works(ranks);
        }
    });
}

#[test]
fn processes_register() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            all_succeed(spawn_all("registration::in_a_process", "registers", ranks, &[]), slower(80.0));
        }
    });
}

/// Where NCCL is told to register nothing.
#[test]
fn nothing_is_registered_where_nccl_is_told_so() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let off = [("NCCL_LOCAL_REGISTER", "0")];
            all_succeed(spawn_all("registration::in_a_process", "registers nothing", ranks, &off), slower(50.0));
        }
    });
}

#[test]
#[ignore = "a child of the tests above"]
fn in_a_process() {
    let (role, effect) = match Role::of_this_process("registers") {
        Some(role) => (role, has_effect()),
        None => match Role::of_this_process("registers nothing") {
            Some(role) => (role, false),
            None => return,
        },
    };
    let comm = role.join().unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    for part in [5, large() / 4 / role.size] {
        let mut send = comm.alloc_local::<u32>(&stream, part * role.size).unwrap().into_fitting();
        let mut recv = comm.alloc_local::<u32>(&stream, part * role.size).unwrap().into_fitting();
        for _ in 0..2 {
            let registered = [comm.register(&send).unwrap(), comm.register(&recv).unwrap()];
            assert!(registered.iter().all(|one| one.without_effect().is_none() == effect), "{registered:?}");
            all_is_right(&comm, &stream, (&mut send, &mut recv), part).unwrap();
            drop(registered);
            all_is_right(&comm, &stream, (&mut send, &mut recv), part).unwrap();
            comm.reclaim().unwrap();
            all_is_right(&comm, &stream, (&mut send, &mut recv), part).unwrap();
        }
        // Left over.
        std::mem::forget([comm.register(&send).unwrap(), comm.register(&recv).unwrap()]);
        all_is_right(&comm, &stream, (&mut send, &mut recv), part).unwrap();
    }
    comm.close_timeout(gpucomm::default_timeout()).unwrap();
}
