//! What graphs must not be made of, or do: memory at several addresses, and what ranks take for the same though it is not.

use std::sync::atomic::{AtomicUsize, Ordering};

use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::{Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

use crate::support::{Rig, assert_names, rank_counts, slower, still_works, watched};

/// A graph keeps memory at each of the addresses at which it uses it.
#[test]
fn memory_at_two_addresses() {
    watched(60.0, || {
        let device = Device::new(0).unwrap();
        let stream = Stream::new(device).unwrap();
        let Ok(memory) = PhysicalMemory::new(device, 2 << 20) else { return };
        // SAFETY: this thread alone uses both, one after the other.
        let again = unsafe { memory.alias() };
        let mut x = memory.map(&[Access::read_write(device)]).unwrap().into_buffer::<u8>();
        let y = again.map(&[Access::read_write(device)]).unwrap().into_buffer::<u8>();
        let mut z = DeviceBuffer::from_slice(&stream, &[0u8; 999]).unwrap();
        let graph = stream
            .capture(|stream| {
                x.fill(stream, 7)?;
                z.copy_from(stream, y.slice(1..1000))
            })
            .unwrap();
        drop(y);
        // What nobody uses is unmapped by another thread.
        std::thread::sleep(slower(0.3));
        for _ in 0..3 {
            z.fill(&stream, 0).unwrap();
            graph.launch(&stream).unwrap();
            assert_eq!(z.to_vec(&stream).unwrap(), [7; 999]);
        }
    });
}

/// Two graphs use the same memory, which no borrow says: launched by two threads, on streams of their own, they come one after the other.
#[test]
fn two_threads_launch_graphs_of_the_same_memory() {
    watched(60.0, || {
        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        let buffer = |value: i32| DeviceBuffer::from_slice(&stream, &vec![value; 1000]).unwrap();
        let (mut x, mut y, one, two) = (buffer(0), buffer(0), buffer(1), buffer(2));
        let both = |x: &mut DeviceBuffer<i32>, y: &mut DeviceBuffer<i32>, value: &DeviceBuffer<i32>| {
            let made = stream.capture(|stream| {
                x.copy_from(stream, value)?;
                y.copy_from(stream, &*x)
            });
            made.unwrap()
        };
        // They take them in different orders.
        let graphs = [both(&mut x, &mut y, &one), both(&mut y, &mut x, &two)];
        std::thread::scope(|scope| {
            for graph in &graphs {
                scope.spawn(move || {
                    let own = Stream::new(graph.device()).unwrap();
                    (0..2000).for_each(|_| graph.launch(&own).unwrap());
                    own.synchronize().unwrap();
                });
            }
        });
        let last = x.to_vec(&stream).unwrap();
        assert!(last == [1; 1000] || last == [2; 1000], "{:?}", &last[..3]);
        assert_eq!(y.to_vec(&stream).unwrap(), last);
    });
}

/// Two ranks do `body`, which differs between them, and are told: `words` stand in what the first of them hears.
fn told(words: &[&str], body: impl Fn(&Communicator, &Stream) -> Result<()> + Sync) {
    for ranks in rank_counts(&[2]) {
        let rig = Rig::new(ranks);
        let heard = AtomicUsize::new(0);
        rig.run(|comm, stream| {
            if let Err(error) = body(comm, stream) {
                assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                assert_names(&error, words);
                heard.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        assert!(heard.into_inner() > 0, "nobody heard of it");
        drop(rig);
        still_works(ranks);
    }
}

/// Two captures at once take what is issued in turns, and not the same turns on all ranks.
#[test]
fn captures_that_are_interleaved() {
    watched(60.0, || {
        told(&["launch of the graph with collective", "holds 2 of them"], |comm, stream| {
            let mut sums = (0..3).map(|_| DeviceBuffer::from_slice(stream, &[1i32; 33])).collect::<Result<Vec<_>>>()?;
            let sum = |x: &mut DeviceBuffer<i32>, stream: &Stream| comm.all_reduce(InPlace(x), ReduceOp::Sum, stream);
            let mut inner = None;
            let outer = stream.capture(|lent| {
                let [x, y, z] = &mut sums[..] else { unreachable!() };
                sum(x, lent)?;
                if comm.rank() == 0 {
                    inner = Some(stream.capture(|lent| sum(y, lent))?);
                    sum(z, lent)
                } else {
                    sum(y, lent)?;
                    inner = Some(stream.capture(|lent| sum(z, lent))?);
                    Ok(())
                }
            })?;
            outer.launch(stream)?;
            stream.synchronize_timeout(slower(20.0))
        });
        told(&["launch of the graph with message"], |comm, stream| {
            let mut all = (0..3).map(|_| DeviceBuffer::from_slice(stream, &[1i32; 33])).collect::<Result<Vec<_>>>()?;
            let message = |x: &mut DeviceBuffer<i32>, stream: &Stream| match comm.rank() {
                0 => comm.send(&*x, 1, stream),
                _ => comm.recv(x, 0, stream),
            };
            let mut inner = None;
            let outer = stream.capture(|lent| {
                let [x, y, z] = &mut all[..] else { unreachable!() };
                message(x, lent)?;
                if comm.rank() == 0 {
                    inner = Some(stream.capture(|lent| message(y, lent))?);
                    message(z, lent)
                } else {
                    message(y, lent)?;
                    inner = Some(stream.capture(|lent| message(z, lent))?);
                    Ok(())
                }
            })?;
            outer.launch(stream)?;
            stream.synchronize_timeout(slower(20.0))
        });
    });
}

/// NCCL makes messages of an all_to_all: those of a graph, too, come one after the other with all others between the same ranks.
#[cfg(nccl_ge_2_28)]
#[test]
fn an_exchange_and_a_message_in_different_orders() {
    watched(60.0, || {
        for within in [false, true] {
            // In other words by whoever comes first.
            told(&["all_to_all", "of 10 i32"], |comm, stream| {
                let (rank, beside) = (comm.rank(), Stream::new(comm.device())?);
                let x = DeviceBuffer::from_slice(stream, &[1i32; 20])?;
                let mut y = DeviceBuffer::from_slice(stream, &[0i32; 20])?;
                let mut z = DeviceBuffer::from_slice(stream, &[7i32; 10])?;
                let mut message = |stream: &Stream| match rank {
                    0 => comm.send(&z, 1, stream),
                    _ => comm.recv(&mut z, 0, stream),
                };
                let graph = stream.capture(|stream| {
                    let side = stream.fork(comm.device())?;
                    if within && rank == 1 {
                        message(&side)?;
                    }
                    comm.all_to_all((&x, &mut y), stream)?;
                    if within && rank == 0 { message(&side) } else { Ok(()) }
                })?;
                if !within && rank == 1 {
                    message(&beside)?;
                }
                graph.launch(stream)?;
                if !within && rank == 0 {
                    message(&beside)?;
                }
                stream.synchronize_timeout(slower(20.0))?;
                beside.synchronize_timeout(slower(20.0))
            });
        }
    });
}

/// A graph that holds no collectives is not said to begin with one.
#[test]
fn what_is_waited_for_in_a_graph_of_messages() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 10])?;
                let graph = stream.capture(|stream| match comm.rank() {
                    0 => comm.send(&x, 1, stream),
                    _ => comm.recv(&mut x, 0, stream),
                })?;
                if comm.rank() == 1 {
                    graph.launch(stream)?;
                    let late = stream.synchronize_timeout(slower(0.3)).expect_err("rank 0 does not launch");
                    assert_names(&late, &["rank 1 waits for launch of the graph (its operation"]);
                }
                Ok(())
            });
            drop(rig);
            still_works(ranks);
        }
    });
}
