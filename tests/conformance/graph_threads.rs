//! Graphs beside whatever else happens at the same time: other uses of their memory, and the ends of what they are made of.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpucomm::cuda::SliceMut;
use gpucomm::nccl::close_all_timeout;
use gpucomm::{Clique, Device, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Stream, group, sys};

use crate::support::{Rig, assert_names, rank_counts, slower, still_works, watched};

/// Elements, so many that a use takes its time.
const LEN: usize = 1 << 16;

/// No borrow keeps a graph from being launched while another thread uses its memory: one of both comes first, with all that it does.
#[test]
fn operations_beside_launches() {
    watched(120.0, || {
        let device = Device::new(0).unwrap();
        let clique = Clique::init_all(&[device]).unwrap();
        let comm = clique.rank(0);
        let stream = Stream::new(device).unwrap();
        let two = DeviceBuffer::from_slice(&stream, &vec![2i32; LEN]).unwrap();
        let mut x = DeviceBuffer::from_slice(&stream, &vec![0i32; LEN]).unwrap();
        let mut pinned = PinnedBuffer::from_slice(&vec![3i32; LEN]).unwrap();
        let mut y = DeviceBuffer::from_slice(&stream, &vec![0i32; LEN]).unwrap();
        stream.synchronize().unwrap();
        // In two halves, so that whatever comes in between shows.
        let graph = stream
            .capture(|stream| {
                let (mut front, mut back) = x.split_at_mut(LEN / 2);
                front.fill(stream, 1)?;
                back.fill(stream, 1)
            })
            .unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = Stream::new(device).unwrap();
                while !over.load(Ordering::Relaxed) {
                    graph.launch(&own).unwrap();
                }
                own.synchronize().unwrap();
            });
            let begin = Instant::now();
            let mut round = 0;
            while begin.elapsed() < Duration::from_millis(500) || round < 40 {
                let uniform = |what: &str, values: &[i32]| {
                    let first = values[0];
                    assert!(values.iter().all(|value| *value == first), "round {round}, {what}: {first} and others");
                };
                match round % 10 {
                    0 => x.fill(&stream, 4).unwrap(),
                    1 => x.copy_from(&stream, &two).unwrap(),
                    2 => x.copy_from_slice(&stream, &vec![5; LEN]).unwrap(),
                    3 => x.slice_mut(..).copy_from_pinned(&stream, &pinned).unwrap(),
                    4 => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap(),
                    5 => group(|g| {
                        g.all_reduce(comm, (&two, &mut y), ReduceOp::Sum, &stream)?;
                        g.all_reduce(comm, InPlace(&mut x), ReduceOp::Max, &stream)
                    })
                    .unwrap(),
                    6 => comm.all_reduce((&x, &mut y), ReduceOp::Max, &stream).unwrap(),
                    7 => {
                        let launched = stream.launch(&mut x, |stream, mut x| {
                            let bytes = x.len() * size_of::<i32>();
                            // SAFETY: one launch on this stream, within the length.
                            unsafe { sys::cudaMemsetAsync(x.as_mut_ptr().cast(), 7, bytes, stream.as_raw()) }
                        });
                        assert_eq!(launched.unwrap(), sys::cudaError::cudaSuccess);
                    }
                    8 => {
                        x.slice(..).copy_to_pinned(&stream, &mut pinned).unwrap();
                        uniform("copy_to_pinned", pinned.as_slice().unwrap());
                    }
                    _ => y.copy_from(&stream, &x).unwrap(),
                }
                if round % 3 == 0 {
                    uniform("x", &x.to_vec(&stream).unwrap());
                }
                uniform("y", &y.to_vec(&stream).unwrap());
                round += 1;
            }
            over.store(true, Ordering::Relaxed);
        });
        clique.close_timeout(slower(10.0)).expect("the graph has none of it");
    });
}

/// Who has lent memory to a closure would wait for itself.
#[test]
fn a_launch_in_the_middle_of_another_use() {
    watched(60.0, || {
        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        let mut x = DeviceBuffer::from_slice(&stream, &[0u8; 99]).unwrap();
        let mut y = DeviceBuffer::from_slice(&stream, &[5u8; 99]).unwrap();
        let graph = stream.capture(|stream| x.fill(stream, 1)).unwrap();
        let within = stream.launch(&x, |_, _| {
            let own = Stream::new(graph.device())?;
            // Reading is what its borrow allows.
            y.copy_from(&own, &x)?;
            graph.launch(&own)
        });
        assert_names(&within.unwrap().expect_err("x is lent"), &["Graph::launch", "Stream::launch", "before or after"]);
        let clique = Clique::init_all(&[stream.device()]).unwrap();
        let within = stream.launch(&x, |_, _| clique.rank(0).all_reduce(InPlace(&mut y), ReduceOp::Sum, &stream));
        assert_names(&within.unwrap().expect_err("x is lent"), &["all_reduce", "Stream::launch", "before or after"]);
        let within = stream.launch(&x, |_, _| group(|_| Ok(())));
        assert_names(&within.unwrap().expect_err("x is lent"), &["group", "Stream::launch"]);
        graph.launch(&stream).unwrap();
        assert_eq!(x.to_vec(&stream).unwrap(), [1; 99]);
        assert_eq!(y.to_vec(&stream).unwrap(), [0; 99]);
    });
}

/// An abort does not wait for who waits for memory that another thread is in the middle of using.
#[test]
fn aborts_while_a_launch_waits_for_its_turn() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            for what in ["a launch", "an operation"] {
                let rig = Rig::new(ranks);
                let (comm, stream) = (rig.clique.rank(0), Stream::new(rig.clique.rank(0).device()).unwrap());
                let made = rig.clique.spmd(|comm| {
                    let stream = Stream::new(comm.device())?;
                    let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 50])?;
                    let graph = stream.capture(|stream| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream))?;
                    Ok((graph, x))
                });
                let mut made = made.unwrap();
                let (graph, x) = &mut made[0];
                let (front, mut back) = x.split_at_mut(25);
                let (within, over) = (AtomicBool::new(false), AtomicBool::new(false));
                std::thread::scope(|scope| {
                    let user = scope.spawn(|| {
                        let own = Stream::new(comm.device()).unwrap();
                        own.launch(&front, |_, _| {
                            within.store(true, Ordering::Release);
                            while !over.load(Ordering::Acquire) {
                                std::thread::yield_now();
                            }
                        })
                    });
                    while !within.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    let waiting = scope.spawn(|| match what {
                        "a launch" => graph.launch(&stream),
                        // Whose borrows keep it apart from the other: it does not wait for that.
                        _ => comm.all_reduce(InPlace(&mut back), ReduceOp::Sum, &stream),
                    });
                    std::thread::sleep(Duration::from_millis(100));
                    assert_eq!(waiting.is_finished(), what != "a launch");
                    let begin = Instant::now();
                    let _ = comm.aborter().abort("the test aborts");
                    let answer = waiting.join().unwrap();
                    assert!(begin.elapsed() < slower(5.0), "{:?}", begin.elapsed());
                    match what {
                        "a launch" => assert!(matches!(answer, Err(Error::Aborted { .. })), "{answer:?}"),
                        _ => answer.unwrap(),
                    }
                    over.store(true, Ordering::Release);
                    user.join().unwrap().unwrap();
                });
                drop(made);
                drop(rig);
                still_works(ranks);
            }
        }
    });
}

/// What a launch writes comes from what it has read: where an operation hangs that came before it, it is not taken for done.
#[test]
fn what_a_launch_read_beside_an_operation() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let mut after = 0;
            for round in 0..16u64 {
                let rig = Rig::new(ranks);
                let comm = rig.clique.rank(0);
                let (one, two) = (Stream::new(comm.device()).unwrap(), Stream::new(comm.device()).unwrap());
                let mut x = DeviceBuffer::from_slice(&one, &[1i32; 50]).unwrap();
                let mut y = DeviceBuffer::from_slice(&one, &[2i32; 50]).unwrap();
                rig.clique.spmd(|comm| comm.barrier_on_stream(&Stream::new(comm.device())?)).unwrap();
                let graph = one.capture(|stream| y.copy_from(stream, &x)).unwrap();
                let begin = std::sync::Barrier::new(2);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        begin.wait();
                        graph.launch(&one).unwrap();
                    });
                    begin.wait();
                    std::thread::sleep(Duration::from_micros(round * 3));
                    // The other rank does not come.
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &two).unwrap();
                });
                let asked = Instant::now();
                while !one.query().unwrap() && asked.elapsed() < Duration::from_millis(100) {
                    std::thread::yield_now();
                }
                let first = one.query().unwrap();
                let _ = comm.aborter().abort("the test aborts");
                match y.to_vec(&Stream::new(comm.device()).unwrap()) {
                    Ok(values) => assert!(first && values == [1; 50], "round {round}: {:?}", &values[..3]),
                    Err(Error::Aborted { .. }) => assert!(!first, "round {round}: the launch came first"),
                    Err(error) => panic!("round {round}: {error:?}"),
                }
                after += usize::from(!first);
                drop(graph);
            }
            println!("{after} of 16 launches came after the operation");
            still_works(ranks);
        }
    });
}

/// What a graph reads before it overwrites it still comes from where it came from.
#[test]
fn what_is_overwritten_after_it_was_read() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let comm = rig.clique.rank(0);
            let stream = Stream::new(comm.device()).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 50]).unwrap();
            let mut y = DeviceBuffer::from_slice(&stream, &[2i32; 50]).unwrap();
            let copies = |x: &mut DeviceBuffer<i32>, y: &mut DeviceBuffer<i32>| {
                let made = stream.capture(|stream| {
                    y.copy_from(stream, &*x)?;
                    x.fill(stream, 3)
                });
                made.unwrap()
            };
            let graph = copies(&mut x, &mut y);
            // The other rank does not come.
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
            let _ = comm.aborter().abort("the test aborts");
            graph.launch(&stream).unwrap();
            let read = y.to_vec(&stream).expect_err("it comes from what was aborted");
            assert!(matches!(read, Error::Aborted { .. }), "{read:?}");
            // All of it was overwritten, by nothing that was read, but who reads first is asked first.
            x.accept();
            assert_eq!(x.to_vec(&stream).unwrap(), [3; 50]);
            drop(rig);
            still_works(ranks);
        }
    });
}

/// A graph belongs to streams of one device, and to registrations that are there.
#[test]
fn launches_that_cannot_be() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = comm.alloc_local::<i32>(stream, 1 << 16)?;
                x.fill(stream, 1)?;
                let registered = comm.register(&x)?;
                let has_effect = registered.without_effect().is_none();
                let graph = stream.capture(|stream| comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream))?;
                if let Some(other) = Device::all()?.into_iter().find(|device| *device != comm.device()) {
                    let refused = graph.launch(&Stream::new(other)?).expect_err("another device");
                    assert_names(
                        &refused,
                        &["Graph::launch", "stream", &comm.device().to_string(), &other.to_string()],
                    );
                }
                graph.launch(stream)?;
                drop(registered);
                comm.reclaim()?;
                match graph.launch(stream) {
                    Err(error) if has_effect => {
                        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                        assert_names(&error, &["Graph::launch", "registration", "dropped", "capture it anew"]);
                    }
                    other => other?,
                }
                assert_eq!(x.to_vec(stream)?, vec![1; 1 << 16]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// A graph that is dropped where CUDA must not be called is dropped elsewhere, with its memory.
#[test]
fn dropped_in_a_host_function() {
    watched(60.0, || {
        struct Told(std::sync::Arc<AtomicBool>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        let memory = DeviceBuffer::from_slice(&stream, &[1u8; 64]).unwrap();
        stream.synchronize().unwrap();
        let (gone, address) = (std::sync::Arc::new(AtomicBool::new(false)), memory.as_raw());
        let owner = (memory, Told(std::sync::Arc::clone(&gone)));
        // SAFETY: memory of the buffer, which the view owns.
        let view = unsafe { DeviceBuffer::<u8>::from_raw_parts(stream.device(), address, 64, owner) };
        let mut view = view.unwrap();
        let graph = stream.capture(|stream| view.fill(stream, 3)).unwrap();
        graph.launch(&stream).unwrap();
        drop(view);
        stream.launch_host(move || drop(graph)).unwrap();
        stream.synchronize().unwrap();
        let begin = Instant::now();
        while !gone.load(Ordering::Acquire) {
            assert!(begin.elapsed() < slower(5.0), "the memory is kept");
            std::thread::yield_now();
        }
    });
}

/// A group with memory that no graph can keep is refused before anybody is told of it.
#[test]
fn a_group_with_memory_of_others() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 50])?;
                let y = DeviceBuffer::from_slice(stream, &[1i32; 50])?;
                stream.synchronize()?;
                let (address, mut owner) = (y.as_raw().cast(), ());
                // SAFETY: memory of `y`, which is used in no other way meanwhile, and idle.
                let mut view = unsafe { SliceMut::<i32>::from_raw_parts(&mut owner, comm.device(), address, 50)? };
                let graph = stream.capture(|stream| {
                    let refused = group(|g| {
                        g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                        g.all_reduce(comm, InPlace(&mut view), ReduceOp::Sum, stream)
                    });
                    assert_names(&refused.expect_err("a view"), &["Stream::capture", "memory"]);
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
                })?;
                graph.launch(stream)?;
                assert_eq!(x.to_vec(stream)?, vec![comm.size() as i32; 50]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// A communicator that closes within a capture of its operations is refused that, and is gone all the same.
#[test]
fn ends_within_the_closure() {
    watched(120.0, || {
        for how in ["close", "close_all", "drop", "abort"] {
            let device = Device::new(0).unwrap();
            let mut comm = Some(Clique::init_all(&[device]).unwrap().into_ranks().remove(0));
            let stream = Stream::new(device).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[3i32; 50]).unwrap();
            let begin = Instant::now();
            let captured = stream.capture(|lent| {
                let comm = comm.take().unwrap();
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, lent)?;
                let refused = match how {
                    "close" => comm.close_timeout(slower(10.0)),
                    "close_all" => close_all_timeout([comm], slower(10.0)).remove(0),
                    "drop" => return Ok(()),
                    _ => {
                        let _ = comm.abort("the test aborts");
                        return Ok(());
                    }
                };
                assert_names(&refused.expect_err("a capture is under way"), &["close", "capture is under way"]);
                Ok(())
            });
            assert!(begin.elapsed() < slower(30.0), "{how}: {:?}", begin.elapsed());
            eprintln!("{how}: {:?}, {captured:?}", begin.elapsed());
            if let Ok(graph) = captured {
                let refused = graph.launch(&stream).expect_err("its communicator is gone");
                assert!(matches!(refused, Error::Aborted { .. }), "{refused:?}");
            }
            assert_eq!(x.to_vec(&stream).unwrap(), [3; 50]);
            still_works(1);
        }
    });
}
