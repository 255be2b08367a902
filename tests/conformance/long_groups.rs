//! Groups of hundreds of calls and of thousands: more than may be on their way at a time.

use gpucomm::{DeviceBuffer, InPlace, ReduceOp, Stream, group};

use crate::support::{Rig, rank_counts, watched};

/// `count` messages from every rank to the next one, all in one group, each of its own length.
fn many_messages(ranks: usize, count: usize, rounds: usize) {
    let rig = Rig::new(ranks);
    rig.run(|comm, stream| {
        let (rank, n) = (comm.rank(), comm.size());
        let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
        let length = |at: usize| at % 5;
        let total: usize = (0..count).map(length).sum();
        let values = |rank: usize| (0..total).map(|at| (at * 7 + rank) as u32).collect::<Vec<_>>();
        let x = DeviceBuffer::from_slice(stream, &values(rank))?;
        let mut y = DeviceBuffer::<u32>::zeroed(stream, total)?;
        for _ in 0..rounds {
            y.fill(stream, 0)?;
            group(|g| {
                let (mut from, mut into) = (x.slice(..), y.slice_mut(..));
                for at in 0..count {
                    let (part, rest) = from.split_at(length(at));
                    from = rest;
                    g.send(comm, part, next, stream)?;
                    let (part, rest) = into.into_split(length(at));
                    into = rest;
                    g.recv(comm, part, before, stream)?;
                }
                Ok(())
            })?;
            assert_eq!(y.to_vec(stream)?, values(before));
        }
        Ok(())
    });
    rig.close();
}

/// More than may be on their way, and more than the ranks keep in mind of each other.
#[test]
fn groups_of_hundreds_of_messages() {
    watched(240.0, || {
        for ranks in rank_counts(&[2, 4]) {
            many_messages(ranks, 600, 3);
        }
        for ranks in rank_counts(&[2]) {
            many_messages(ranks, 4000, 1);
        }
    });
}

/// All that is sent comes before all that is received, on every rank.
#[test]
fn hundreds_of_sends_before_hundreds_of_receives() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let (rank, n) = (comm.rank(), comm.size());
                let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
                let x = DeviceBuffer::from_slice(stream, &(0..1500).map(|at| at + rank as i32).collect::<Vec<_>>())?;
                let mut y = DeviceBuffer::<i32>::zeroed(stream, 1500)?;
                group(|g| {
                    for at in 0..1500 {
                        g.send(comm, x.slice(at..at + 1), next, stream)?;
                    }
                    let mut into = y.slice_mut(..);
                    for _ in 0..1500 {
                        let (part, rest) = into.into_split(1);
                        into = rest;
                        g.recv(comm, part, before, stream)?;
                    }
                    Ok(())
                })?;
                assert_eq!(y.to_vec(stream)?, (0..1500).map(|at| at + before as i32).collect::<Vec<_>>());
                Ok(())
            });
            rig.close();
        }
    });
}

#[test]
fn groups_of_hundreds_of_collectives() {
    watched(240.0, || {
        for (ranks, count) in [(1, 600), (2, 600), (4, 600), (2, 3000)] {
            for ranks in rank_counts(&[ranks]) {
                let rig = Rig::new(ranks);
                rig.run(|comm, stream| {
                    let rank = comm.rank() as i64;
                    let values: Vec<_> = (0..count).map(|at| at + rank).collect();
                    let mut x = DeviceBuffer::from_slice(stream, &values)?;
                    let own = DeviceBuffer::from_slice(stream, &[rank as u8])?;
                    let mut y = DeviceBuffer::<u8>::zeroed(stream, comm.size())?;
                    group(|g| {
                        let mut rest = x.slice_mut(..);
                        for at in 0..count {
                            let (part, after) = rest.into_split(1);
                            rest = after;
                            let op = if at % 2 == 0 { ReduceOp::Sum } else { ReduceOp::Max };
                            g.all_reduce(comm, InPlace(part), op, stream)?;
                        }
                        g.all_gather(comm, (&own, &mut y), stream)
                    })?;
                    let n = ranks as i64;
                    let want: Vec<_> =
                        (0..count).map(|at| if at % 2 == 0 { n * at + n * (n - 1) / 2 } else { at + n - 1 }).collect();
                    assert_eq!(x.to_vec(stream)?, want);
                    assert_eq!(y.to_vec(stream)?, (0..ranks as u8).collect::<Vec<_>>());
                    Ok(())
                });
                rig.close();
            }
        }
    });
}

/// Hundreds of collectives a rank, and messages, by one thread, all of one rank before those of the next.
#[test]
fn one_thread_drives_all_ranks_through_hundreds_of_calls() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let comms = rig.clique.ranks();
            let streams: Vec<Stream> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            let make = |values: &dyn Fn(usize) -> Vec<i32>| -> Vec<DeviceBuffer<i32>> {
                let filled = streams.iter().enumerate();
                filled.map(|(rank, stream)| DeviceBuffer::from_slice(stream, &values(rank)).unwrap()).collect()
            };
            let mut sums = make(&|rank| vec![rank as i32 + 1; 600]);
            let sent = make(&|rank| (0..700).map(|at| at + rank as i32).collect());
            let mut received = make(&|_| vec![0; 700]);
            group(|g| {
                let buffers = sums.iter_mut().zip(&sent).zip(&mut received);
                for ((comm, stream), ((sum, from), into)) in comms.iter().zip(&streams).zip(buffers) {
                    let (next, before) = ((comm.rank() + 1) % ranks, (comm.rank() + ranks - 1) % ranks);
                    let mut rest = sum.slice_mut(..);
                    for _ in 0..600 {
                        let (part, after) = rest.into_split(1);
                        rest = after;
                        g.all_reduce(comm, InPlace(part), ReduceOp::Prod, stream)?;
                    }
                    let mut rest = into.slice_mut(..);
                    for at in 0..700 {
                        g.send(comm, from.slice(at..at + 1), next, stream)?;
                        let (part, after) = rest.into_split(1);
                        rest = after;
                        g.recv(comm, part, before, stream)?;
                    }
                }
                Ok(())
            })
            .unwrap();
            let product: i32 = (1..=ranks as i32).product();
            for (rank, stream) in streams.iter().enumerate() {
                assert_eq!(sums[rank].to_vec(stream).unwrap(), [product; 600]);
                let before = (rank + ranks - 1) % ranks;
                let want: Vec<_> = (0..700).map(|at| at + before as i32).collect();
                assert_eq!(received[rank].to_vec(stream).unwrap(), want);
            }
            rig.close();
        }
    });
}
