//! Panics in every closure that the crate calls: carried to the caller, and nothing is left broken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;

use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::nccl::{AbortOutcome, InitOptions};
use gpucomm::{Clique, Communicator, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Stream, group};

use crate::support::{Rig, assert_names, assert_usage, places, quick, rank_counts, slower, still_works, watched};

/// What a panic said.
fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map(|text| (*text).to_owned()).unwrap_or_default(),
    }
}

/// The others wait for the rank that panics; they must not do so for ever, and the panic comes out of `spmd`.
#[test]
fn in_spmd() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            let caught = quick(slower(10.0), || {
                catch_unwind(AssertUnwindSafe(|| {
                    rig.try_run(|comm, stream| {
                        let mut x = DeviceBuffer::from_slice(stream, &[1i32; 100])?;
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                        if comm.rank() == ranks - 1 {
                            panic!("rank {} has had enough", comm.rank());
                        }
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                        stream.synchronize_timeout(slower(30.0))?;
                        comm.async_error()
                    })
                }))
            });
            let text = message(caught.expect_err("the panic was swallowed"));
            assert!(text.contains("has had enough"), "another panic: {text}");
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// The first panic comes out. What the others have thrown is left alone: its destructor would panic while that one unwinds.
#[test]
fn of_all_ranks_with_payloads_that_panic() {
    struct Panics(usize);
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("the payload of rank {} is dropped", self.0)
        }
    }
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                rig.try_run(|comm, _| -> gpucomm::Result<()> { std::panic::panic_any(Panics(comm.rank())) })
            }));
            let payload = caught.expect_err("the panic was swallowed").downcast::<Panics>().expect("that of a rank");
            std::mem::forget(payload);
            still_works(ranks);
        }
    });
}

/// An error of a rank that cannot be made into the user's: the panic comes out of `try_spmd`, and the others do not wait.
#[test]
fn in_the_conversion_of_an_error() {
    #[derive(Debug)]
    struct Own;
    impl From<Error> for Own {
        fn from(error: Error) -> Self {
            panic!("in From<Error>: {error}")
        }
    }
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            let caught = quick(slower(10.0), || {
                catch_unwind(AssertUnwindSafe(|| {
                    rig.clique.try_spmd(|comm| -> Result<(), Own> {
                        let stream = Stream::new(comm.device())?;
                        let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 100])?;
                        if comm.rank() == ranks - 1 {
                            comm.broadcast(InPlace(&mut x), ranks, &stream)?;
                        }
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                        stream.synchronize_timeout(slower(30.0))?;
                        Ok(())
                    })
                }))
            });
            let text = message(caught.map(drop).expect_err("the panic was swallowed"));
            assert!(text.contains("in From<Error>: "), "{text}");
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// The result of a rank that is thrown away, as another rank fails, panics where it is dropped.
#[test]
fn in_the_drop_of_a_result() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("in the drop of a result")
            }
        }
    }
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            let caught = quick(slower(10.0), || {
                catch_unwind(AssertUnwindSafe(|| {
                    rig.clique.spmd(|comm| match comm.rank() {
                        0 => Err(Error::InvalidUsage { operation: "the test", reason: "rank 0 fails".into() }),
                        _ => Ok(Bomb),
                    })
                }))
            });
            let text = message(caught.map(std::mem::forget).expect_err("the panic was swallowed"));
            assert!(text.contains("in the drop of a result"), "{text}");
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// What one rank of a program, or all of them, run again as all ranks.
#[test]
fn a_program_within_a_program() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let (clique, all): (_, Vec<_>) = (&rig.clique, (0..ranks).collect());
            let seen = rig
                .run(|comm, _| if comm.rank() == 0 { clique.spmd(|inner| Ok(inner.rank())) } else { Ok(Vec::new()) });
            assert_eq!(seen, [all.clone(), Vec::new()]);
            let seen = rig.run(|_, _| clique.spmd(|inner| Ok(inner.rank())));
            assert_eq!(seen, [all.clone(), all]);
            rig.close();
            still_works(ranks);
        }
    });
}

#[test]
fn in_a_group() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[3i32; 100])?;
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    group(|g| -> gpucomm::Result<()> {
                        g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                        panic!("in the closure of a group");
                    })
                }));
                let text = message(caught.expect_err("the panic was swallowed"));
                assert!(text.contains("closure of a group"), "{text}");
                assert_eq!(x.to_vec(stream)?, [3; 100], "submitted in spite of the panic");
                group(|g| g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream))?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                assert_eq!(x.to_vec(stream)?, [3 * ranks as i32; 100]);
                Ok(())
            });
            rig.close();
            still_works(ranks);
        }
    });
}

/// A panic in a host callback must not cross C: the next wait on the stream reports it, and the stream goes on.
#[test]
fn in_a_host_callback() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, _| {
                let stream = Stream::new(comm.device())?;
                let mut x = DeviceBuffer::from_slice(&stream, &[1i64; 10])?;
                stream.launch_host(|| panic!("in a host callback"))?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                let error = stream.synchronize_timeout(slower(20.0)).expect_err("the panic was swallowed");
                assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                assert_names(&error, &["in a host callback"]);
                stream.synchronize_timeout(slower(20.0))?;
                assert_eq!(x.to_vec(&stream)?, [ranks as i64; 10]);
                Ok(())
            });
            rig.close();
            still_works(ranks);
        }
    });
}

/// While a thread unwinds, a communicator is aborted, not destroyed: destroying waits for the other ranks.
#[test]
fn with_a_communicator_on_the_stack() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let mut comms = Rig::new(ranks).clique.into_ranks();
            let first = comms.remove(0);
            let caught = quick(slower(15.0), || {
                std::thread::spawn(move || {
                    let stream = Stream::new(first.device()).unwrap();
                    let mut window = DeviceBuffer::from_slice(&stream, &[1.0f32; 1000]).unwrap();
                    first.all_reduce(InPlace(&mut window), ReduceOp::Sum, &stream).unwrap();
                    let _operator = first.pre_mul_sum(1.0f32).unwrap();
                    panic!("with everything alive");
                })
                .join()
            });
            assert_eq!(message(caught.expect_err("no panic")), "with everything alive");
            quick(slower(20.0), || drop(comms));
            still_works(ranks);
        }
    });
}

/// What enters NCCL is refused within a host function, where it might wait for the very stream that waits for the function.
#[test]
fn nccl_within_a_host_function() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let clique = Arc::new(rig.clique);
            let stream = Stream::new(clique.rank(0).device()).unwrap();
            let (sender, said) = channel();
            let inside = Arc::clone(&clique);
            let other = Arc::new(Stream::new(clique.rank(0).device()).unwrap());
            let within = Arc::clone(&other);
            let mut x = DeviceBuffer::from_slice(&other, &[1i32; 10]).unwrap();
            let factor = DeviceBuffer::from_slice(&other, &[2.0f32]).unwrap();
            stream
                .launch_host(move || {
                    let comm = inside.rank(0);
                    let devices: Vec<_> = inside.ranks().iter().map(Communicator::device).collect();
                    let id = gpucomm::UniqueId::from_bytes([7; 128]);
                    // SAFETY: it is refused.
                    let init = unsafe { Communicator::init_rank(comm.device(), 2, &id, 0) };
                    let options = InitOptions::default();
                    // SAFETY: it is refused.
                    let with = unsafe { Communicator::init_rank_with(comm.device(), 2, &id, 0, &options) };
                    let streams = vec![Stream::clone(&within); inside.size()];
                    let results = [
                        ("Clique::init_all: ", Clique::init_all(&devices).map(drop)),
                        ("Clique::init_all_with: ", Clique::init_all_with(&devices, &options).map(drop)),
                        ("Communicator::init_rank: ", init.map(drop)),
                        ("Communicator::init_rank_with: ", with.map(drop)),
                        ("async_error: ", comm.async_error()),
                        ("all_reduce: ", comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &within)),
                        ("pre_mul_sum: ", comm.pre_mul_sum(2.0f32).map(drop)),
                        ("pre_mul_sum_device: ", comm.pre_mul_sum_device(&factor).map(drop)),
                        ("alloc_from: ", comm.alloc_from(&within, &[1u8]).map(drop)),
                        ("Clique::alloc: ", inside.alloc::<u8>(&streams, 1).map(drop)),
                        ("Clique::reclaim: ", inside.reclaim()),
                        ("alloc: ", comm.alloc::<u8>(&within, 1).map(drop)),
                        ("alloc_local: ", comm.alloc_local::<u8>(&within, 1).map(drop)),
                        ("reclaim: ", comm.reclaim()),
                        ("spmd: ", inside.spmd(|_| Ok(())).map(drop)),
                        ("UniqueId::new: ", gpucomm::UniqueId::new().map(drop)),
                    ];
                    for (operation, result) in results {
                        let _ = sender.send((operation, result));
                    }
                })
                .unwrap();
            stream.synchronize_timeout(slower(20.0)).unwrap();
            for (operation, result) in said {
                let error = result.expect_err(operation);
                assert!(matches!(error, Error::InvalidUsage { .. }), "{operation}: {error:?}");
                assert!(error.to_string().starts_with(operation), "{operation} says {error}");
            }
            assert!(clique.ranks().iter().all(Communicator::is_active));
            // An abort is begun there, and not waited for.
            let (sender, said) = channel();
            let aborter = clique.rank(0).aborter();
            stream.launch_host(move || drop(sender.send(aborter.abort("from a host function")))).unwrap();
            let _ = said.recv_timeout(slower(5.0)).unwrap();
            assert_ne!(clique.rank(0).aborter().abort("and once more"), AbortOutcome::StillRunning);
            drop(clique);
            still_works(ranks);
        }
    });
}

/// NCCL and CUDA must not be called in a host function. What is dropped there goes later, or stays.
#[test]
fn drops_within_a_host_function() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let devices = &places()[..ranks];
            let stream = Stream::new(devices[0]).unwrap();
            let clique = || {
                let clique = Rig::new(ranks).clique;
                let sums =
                    clique.spmd(|comm| comm.all_reduce_scalar(1u32, ReduceOp::Sum, &Stream::new(comm.device())?));
                assert_eq!(sums.unwrap(), vec![ranks as u32; ranks]);
                clique
            };
            let mut memory = DeviceBuffer::<u32>::zeroed(&stream, 100).unwrap();
            let graph = stream.capture(|stream| memory.fill(stream, 1)).unwrap();
            graph.launch(&stream).unwrap();
            let mapping = PhysicalMemory::new(devices[0], 1).unwrap().map(&[Access::read_write(devices[0])]).unwrap();
            let alone = Arc::new(Clique::init_all(&devices[..1]).unwrap().into_ranks().remove(0));
            let shared = alone.alloc_shared::<f32>(&stream, 100).unwrap();
            let last = Stream::new(devices[1]).unwrap();
            let event = last.record().unwrap();
            let mut some = clique().into_ranks();
            let things: [(&str, Box<dyn Send>); 8] = [
                ("a new clique", Box::new(Clique::init_all(devices).unwrap())),
                ("a clique that was used", Box::new(clique())),
                ("a rank", Box::new(some.remove(0))),
                ("a graph and its buffer", Box::new((graph, memory))),
                ("a mapping", Box::new(mapping)),
                ("pinned memory", Box::new(PinnedBuffer::<u8>::zeroed(100).unwrap())),
                ("a stream and its event", Box::new((last, event))),
                ("memory that shares a communicator", Box::new((alone, shared))),
            ];
            for (what, thing) in things {
                println!("{what}");
                stream.launch_host(move || drop(thing)).unwrap();
                stream.synchronize_timeout(slower(20.0)).unwrap();
            }
            drop(some);
            still_works(ranks);
        }
    });
}

/// A close waits for streams, perhaps for the one that runs the host function: it is refused, and what it takes is dropped.
#[test]
fn a_close_within_a_host_function() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let stream = Stream::new(places()[0]).unwrap();
            for whole in [true, false] {
                let rig = Rig::new(ranks);
                rig.run(|comm, stream| comm.all_reduce_scalar(1u32, ReduceOp::Sum, stream));
                let (sender, said) = channel();
                let clique = rig.clique;
                let close = move || match whole {
                    true => clique.close_timeout(slower(30.0)),
                    false => clique.into_ranks().remove(0).close_timeout(slower(30.0)),
                };
                stream.launch_host(move || sender.send(close()).unwrap()).unwrap();
                let closed = quick(slower(1.0), || said.recv_timeout(slower(20.0)).expect("it hangs"));
                assert_usage(closed, &["close", "a host function of a stream must not"]);
                stream.synchronize_timeout(slower(20.0)).unwrap();
                still_works(ranks);
            }
        }
    });
}
