//! How windows over memory of users end, and those of processes.

use gpucomm::nccl::{Unsupported, Window};
use gpucomm::{DeviceBuffer, InPlace, ReduceOp, Stream};

use crate::support::process::{Role, all_succeed, spawn_all};
use crate::support::{Rig, assert_argument, rank_counts, slower, watched};
use crate::user_windows::{PAGE, mapped, sums_are_right, windows_are_sound};

/// What is dropped, forgotten, or left while unwinding.
#[test]
fn windows_end_in_every_order() {
    watched(100.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                // The memory goes first.
                let mut x = gpucomm::nccl::alloc::<u32>(stream, PAGE)?;
                let window = comm.window(&x)?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                drop(x);
                comm.reclaim()?;
                assert_eq!(window.bytes(), 4096);
                drop(window);
                // While unwinding.
                let y = gpucomm::nccl::alloc::<u32>(stream, PAGE)?;
                let window = comm.window(&y)?;
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _window = window;
                    std::panic::resume_unwind(Box::new("the test"));
                }));
                assert!(caught.is_err());
                comm.reclaim()?;
                // Once more over the same memory, without a reclaim in between.
                for _ in 0..3 {
                    assert_eq!(comm.window(&y)?.unsupported(), None);
                }
                std::mem::forget(comm.window(&y)?);
                std::mem::forget(comm.window(&gpucomm::nccl::alloc::<u32>(stream, PAGE)?)?);
                Ok(())
            });
            rig.close();
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let memory = gpucomm::nccl::alloc::<u32>(stream, PAGE)?;
                std::mem::forget((comm.window(&memory)?, memory));
                Ok(())
            });
            drop(rig);
            let clique = Rig::new(ranks).clique;
            let ranks: Vec<_> = clique.into_ranks().into_iter().map(std::sync::Arc::new).collect();
            std::thread::scope(|scope| {
                for comm in ranks {
                    scope.spawn(move || {
                        let stream = Stream::new(comm.device()).unwrap();
                        let memory = gpucomm::nccl::alloc::<u32>(&stream, PAGE).unwrap();
                        let window: Window<'static> = comm.window(&memory).unwrap().into_shared(&comm).unwrap();
                        drop(comm);
                        assert_eq!(window.unsupported(), None);
                    });
                }
            });
        }
    });
}

#[test]
fn a_window_of_another_communicator_is_not_shared() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let of = |rig: Rig| -> Vec<_> { rig.clique.into_ranks().into_iter().map(std::sync::Arc::new).collect() };
            let (one, two) = (of(Rig::new(ranks)), of(Rig::new(ranks)));
            std::thread::scope(|scope| {
                for (comm, other) in one.iter().zip(&two) {
                    scope.spawn(move || {
                        let stream = Stream::new(comm.device()).unwrap();
                        let memory = gpucomm::nccl::alloc::<u32>(&stream, PAGE).unwrap();
                        let refused = comm.window(&memory).unwrap().into_shared(other);
                        assert_argument(refused, "Window::into_shared", "communicator of the window", "another one");
                    });
                }
            });
        }
    });
}

#[test]
fn processes_make_windows() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            all_succeed(spawn_all("user_window_ends::in_a_process", "windows", ranks, &[]), slower(80.0));
        }
    });
}

#[test]
#[ignore = "a child of the test above"]
fn in_a_process() {
    let Some(role) = Role::of_this_process("windows") else { return };
    let comm = role.join().unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    let expected = if windows_are_sound() { None } else { Some(Unsupported::KnownBug("endless-windows")) };
    for round in 0..3 {
        let mut x = match round {
            1 => mapped(comm.device(), 2 << 20).unwrap(),
            _ => gpucomm::nccl::alloc::<u32>(&stream, 3 * PAGE).unwrap(),
        };
        let window = comm.window(x.slice(PAGE..)).unwrap();
        assert_eq!(window.unsupported(), expected);
        assert!((0..role.size).all(|rank| window.bytes_on(rank) == Some(window.bytes())));
        sums_are_right(&comm, &stream, &mut x, PAGE).unwrap();
        stream.synchronize().unwrap();
        drop(window);
        sums_are_right(&comm, &stream, &mut x, PAGE).unwrap();
        comm.reclaim().unwrap();
        sums_are_right(&comm, &stream, &mut x, 0).unwrap();
        // Left over.
        std::mem::forget(comm.window(&x).unwrap());
        sums_are_right(&comm, &stream, &mut x, 0).unwrap();
    }
    let pool = DeviceBuffer::<u32>::zeroed(&stream, PAGE).unwrap();
    assert_argument(comm.window(&pool), "window", "nccl::alloc", "of a pool");
    comm.close_timeout(gpucomm::default_timeout()).unwrap();
}
