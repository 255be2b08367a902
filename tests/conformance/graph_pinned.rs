//! Graphs with pinned memory, and graphs that change.

use std::sync::Barrier;

use gpucomm::cuda::GraphPinned;
use gpucomm::{DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Result, Stream, sys};

use crate::support::{Rig, assert_names, rank_counts, slower, still_works, watched};

/// Values go in and come out by way of the graph alone.
#[test]
fn in_and_out() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::<i64>::zeroed(stream, 77)?;
                let (input, output) = (PinnedBuffer::<i64>::zeroed(77)?, PinnedBuffer::from_slice(&[-1i64; 100])?);
                let mut moved = None;
                let mut graph = stream.capture(|stream| {
                    let (input, mut output) = (stream.move_in(input)?, stream.move_in(output)?);
                    x.slice_mut(..40).copy_from_pinned(stream, input.slice(..40))?;
                    x.slice_mut(40..).copy_from_pinned(stream, input.slice(40..))?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    x.copy_to_pinned(stream, output.slice_mut(10..87))?;
                    moved = Some((input, output));
                    Ok(())
                })?;
                let (input, output) = moved.unwrap();
                // What copies did not write stays.
                assert_eq!(graph.pinned(&output)?, [-1; 100]);
                for round in 0..20 {
                    let of = |rank: usize, at: usize| (rank * 1000 + at * 7 + round) as i64;
                    for (at, value) in graph.pinned_mut(&input)?.iter_mut().enumerate() {
                        *value = of(comm.rank(), at);
                    }
                    graph.launch(stream)?;
                    let sum = |at: usize| (0..comm.size()).map(|rank| of(rank, at)).sum::<i64>();
                    let expected: Vec<i64> =
                        (0..100).map(|at| if (10..87).contains(&at) { sum(at - 10) } else { -1 }).collect();
                    assert_eq!(graph.pinned(&output)?, expected);
                }
                // The graph keeps what it uses.
                drop((input, output));
                graph.launch(stream)?;
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// A kernel of others gets at pinned memory as well.
#[test]
fn lent_to_a_kernel() {
    watched(60.0, || {
        let stream = Stream::new(gpucomm::Device::new(0).unwrap()).unwrap();
        let x = DeviceBuffer::from_slice(&stream, &[9u8; 33]).unwrap();
        let mut moved = None;
        let mut graph = stream
            .capture(|stream| {
                let mut bytes = stream.move_in(PinnedBuffer::<u8>::zeroed(33)?)?;
                let code = stream.launch((&x, &mut bytes), |stream, (x, mut bytes)| {
                    let (to, kind) = (bytes.as_mut_ptr().cast(), sys::cudaMemcpyKind::cudaMemcpyDefault);
                    // SAFETY: one launch on this stream, within the lengths of both.
                    unsafe { sys::cudaMemcpyAsync(to, x.as_ptr().cast(), bytes.len(), kind, stream.as_raw()) }
                })?;
                assert_eq!(code, sys::cudaError::cudaSuccess);
                moved = Some(bytes);
                Ok(())
            })
            .unwrap();
        let bytes = moved.unwrap();
        assert_eq!(graph.pinned(&bytes).unwrap(), [0; 33]);
        graph.launch(&stream).unwrap();
        assert_eq!(graph.pinned(&bytes).unwrap(), [9; 33]);
    });
}

/// Nobody gets at the memory of a graph but by that.
#[test]
fn elsewhere() {
    watched(60.0, || {
        let stream = Stream::new(gpucomm::Device::new(0).unwrap()).unwrap();
        let mut x = DeviceBuffer::<i32>::zeroed(&stream, 5).unwrap();
        let refused = stream.move_in(PinnedBuffer::<i32>::zeroed(5).unwrap()).expect_err("no capture");
        assert_names(&refused, &["Stream::move_in", "capture"]);
        let capture = |x: &mut DeviceBuffer<i32>| -> (gpucomm::Graph, GraphPinned<i32>) {
            let mut moved = None;
            let graph = stream.capture(|lent| {
                let mut pinned = lent.move_in(PinnedBuffer::<i32>::zeroed(5)?)?;
                let looked = pinned.slice(..).as_slice().map(drop).expect_err("a graph has it");
                assert_names(&looked, &["PinnedSlice::as_slice", "Graph::pinned"]);
                let looked = pinned.slice_mut(..).as_slice_mut().map(drop).expect_err("a graph has it");
                assert_names(&looked, &["PinnedSliceMut::as_slice_mut", "Graph::pinned"]);
                x.copy_from_pinned(lent, &pinned)?;
                moved = Some(pinned);
                Ok(())
            });
            (graph.unwrap(), moved.unwrap())
        };
        let ((mut one, mut first), (mut two, second)) = (capture(&mut x), capture(&mut x));
        for (graph, memory) in [(&mut one, &second), (&mut two, &first)] {
            let refused = graph.pinned(memory).map(drop).expect_err("the other's");
            assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused:?}");
            assert!(graph.pinned_mut(memory).is_err());
        }
        let usage = |what: &str, result: Result<()>| match result {
            Err(Error::InvalidUsage { .. }) => {}
            other => panic!("{what}: {other:?}"),
        };
        usage("a copy from it", x.copy_from_pinned(&stream, &first));
        usage("a copy to it", x.copy_to_pinned(&stream, &mut first));
        usage("a launch", stream.launch(&first, |_, _| ()));
        let graph = stream.capture(|lent| {
            usage("another capture", x.copy_from_pinned(lent, &first));
            usage("another launch", lent.launch(&mut first, |_, _| ()));
            x.fill(lent, 3)
        });
        graph.unwrap().launch(&stream).unwrap();
        // What moved into a capture that failed is of no use any more.
        let mut lost = None;
        let failed = stream.capture(|lent| {
            lost = Some(lent.move_in(PinnedBuffer::<i32>::zeroed(5)?)?);
            Err(Error::InvalidUsage { operation: "test", reason: "not this one".to_owned() })
        });
        failed.expect_err("the closure fails");
        usage("after a failure", x.copy_from_pinned(&stream, lost.as_ref().unwrap()));
        assert_eq!(x.to_vec(&stream).unwrap(), [3; 5]);
    });
}

/// What comes of an operation that failed is not shown.
#[test]
fn after_an_abort() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let (rig, captured) = (Rig::new(ranks), Barrier::new(ranks));
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1i64; 9])?;
                let mut moved = None;
                let mut graph = stream.capture(|stream| {
                    let mut output = stream.move_in(PinnedBuffer::<i64>::zeroed(9)?)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    x.copy_to_pinned(stream, &mut output)?;
                    moved = Some(output);
                    Ok(())
                })?;
                captured.wait();
                if comm.rank() == 1 {
                    graph.launch(stream)?;
                    let _ = comm.aborter().abort("the test aborts");
                    let failed = graph.pinned(&moved.unwrap()).map(drop).expect_err("aborted");
                    assert!(matches!(failed, Error::Aborted { .. }), "{failed:?}");
                }
                Ok(())
            });
            drop(rig);
            still_works(ranks);
        }
    });
}

/// A graph becomes another one, in place where that can be, and what was launched before is done as it was.
#[test]
fn updates() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let size = comm.size() as i32;
                let mut all: Vec<DeviceBuffer<i32>> = Vec::new();
                let mut first = DeviceBuffer::<i32>::zeroed(stream, 10)?;
                let mut graph = stream.capture(|stream| first.fill(stream, 1))?;
                for round in 0..12usize {
                    graph.launch(stream)?;
                    let mut x = DeviceBuffer::from_slice(stream, &vec![round as i32; 10 + round])?;
                    match round % 4 {
                        // The same form, another buffer, length and value.
                        0 => graph.update(|stream| x.fill(stream, 100 + round as i32))?,
                        1 => graph.update(|stream| {
                            x.fill(stream, 5)?;
                            x.slice_mut(1..).fill(stream, 6)
                        })?,
                        2 => graph.update(|stream| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream))?,
                        _ => graph.update(|stream| comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream))?,
                    }
                    let failed = graph
                        .update(|_| Err(Error::InvalidUsage { operation: "test", reason: "not this one".to_owned() }));
                    assert_names(&failed.expect_err("the closure fails"), &["not this one"]);
                    all.push(x);
                }
                graph.launch(stream)?;
                assert_eq!(first.to_vec(stream)?, [1; 10]);
                for (round, x) in all.iter().enumerate() {
                    let mut expected = vec![round as i32; 10 + round];
                    match round % 4 {
                        0 => expected.fill(100 + round as i32),
                        1 => {
                            expected.fill(6);
                            expected[0] = 5;
                        }
                        2 => expected.fill(round as i32 * size),
                        _ => {}
                    }
                    assert_eq!(x.to_vec(stream)?, expected, "round {round}");
                }
                Ok(())
            });
            let begin = std::time::Instant::now();
            rig.close();
            assert!(begin.elapsed() < slower(10.0));
        }
    });
}
