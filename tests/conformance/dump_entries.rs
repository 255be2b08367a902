//! What stands in dumps of the flight recorder: numbers, which are the same on all ranks, and what a rank waits for.

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Stream, group, nccl};

use crate::support::harness::devices;
use crate::support::{Rig, skip, watched, watched_alone};

/// The number that stands under a name in a piece of a dump.
fn number(text: &str, name: &str) -> Option<u64> {
    let (_, value) = text.split_once(&format!("\"{name}\": "))?;
    value[..value.find(|digit: char| !digit.is_ascii_digit())?].parse().ok()
}

/// How many messages were `sent` to a peer, or `received` from it.
fn messages(dump: &str, peer: usize, side: &str) -> u64 {
    let start = format!("{{\"peer\": {peer}, \"sent\"");
    dump.lines().find(|line| line.contains(&start)).and_then(|line| number(line, side)).unwrap_or(0)
}

fn collectives(dump: &str) -> u64 {
    number(dump, "collectives").expect("how many collectives")
}

/// The numbers of the entries of one kind, and of their sequences, the first ones first.
fn sequences(dump: &str, kind: &str) -> Vec<(u64, Option<u64>)> {
    let kind = format!("\"kind\": \"{kind}\"");
    let lines = dump.lines().filter(|line| line.contains(&kind));
    lines.map(|line| (number(line, "number").expect("a number"), number(line, "sequence"))).collect()
}

fn sum(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> gpucomm::Result<()> {
    comm.all_reduce(InPlace(x), ReduceOp::Sum, stream)
}

/// Points count among the collectives, also those that are not kept any more.
#[cfg(nccl_ge_2_27)]
#[test]
fn collectives_are_numbered_beside_points() {
    watched(60.0, || {
        let rig = Rig::new(1);
        rig.run(|comm, stream| {
            let (mut x, rounds) = (DeviceBuffer::from_slice(stream, &[1f32; 3])?, 100);
            for _ in 0..rounds {
                comm.reclaim()?;
                sum(comm, &mut x, stream)?;
            }
            let dump = comm.dump().to_string();
            let (all, got) = (collectives(&dump), sequences(&dump, "all_reduce"));
            let got: Vec<_> = got.iter().rev().take(rounds).map(|(_, sequence)| *sequence).collect();
            let expected: Vec<_> = (0..rounds as u64).map(|round| Some(all - 2 * round)).collect();
            assert_eq!(got, expected, "{dump}");
            stream.synchronize()
        });
        rig.close();
    });
}

/// A graph that holds messages alone is no collective, and its messages count.
#[test]
fn graphs_of_messages_are_no_collectives() {
    if devices() < 2 {
        return skip("two ranks: this machine has one device");
    }
    watched(60.0, || {
        let rig = Rig::new(2);
        rig.run(|comm, stream| {
            let (rank, rounds) = (comm.rank(), 7);
            let mut x = DeviceBuffer::from_slice(stream, &[1f32; 3])?;
            let mut message = DeviceBuffer::from_slice(stream, &[rank as i32; 5])?;
            let graph = stream.capture(|stream| match rank {
                0 => comm.send(&message, 1, stream),
                _ => comm.recv(&mut message, 0, stream),
            })?;
            let (kind, side) = if rank == 0 { ("send", "sent") } else { ("recv", "received") };
            let before = comm.dump().to_string();
            let (before, messages_before) = (collectives(&before), messages(&before, 1 - rank, side));
            for _ in 0..rounds {
                graph.launch(stream)?;
                sum(comm, &mut x, stream)?;
            }
            drop(graph);
            match rank {
                0 => comm.send(&message, 1, stream)?,
                _ => comm.recv(&mut message, 0, stream)?,
            }
            let dump = comm.dump().to_string();
            assert_eq!(collectives(&dump), before + rounds, "{dump}");
            let got = sequences(&dump, "all_reduce").into_iter().map(|(_, sequence)| sequence);
            let got: Vec<_> = got.filter(|sequence| *sequence > Some(before)).collect();
            assert_eq!(got, (1..=rounds).map(|round| Some(before + round)).collect::<Vec<_>>(), "{dump}");
            let launches = sequences(&dump, "Graph::launch");
            assert_eq!(launches.len() as u64, rounds, "{dump}");
            assert!(launches.iter().all(|(_, sequence)| sequence.is_none()), "{dump}");
            let (last, all) = (sequences(&dump, kind).last().and_then(|(_, last)| *last), messages_before + rounds + 1);
            assert_eq!((last, messages(&dump, 1 - rank, side)), (Some(all), all), "{dump}");
            stream.synchronize()
        });
        rig.close();
    });
}

/// What is issued together has numbers one after the other, messages for each peer and direction.
#[test]
fn groups_are_numbered_in_their_order() {
    if devices() < 2 {
        return skip("two ranks: this machine has one device");
    }
    watched(60.0, || {
        let rig = Rig::new(2);
        rig.run(|comm, stream| {
            let other = 1 - comm.rank();
            let sums = [2, 3, 4].map(|len| DeviceBuffer::from_slice(stream, &vec![1f32; len]));
            let mut sums = sums.into_iter().collect::<gpucomm::Result<Vec<_>>>()?;
            let sent = DeviceBuffer::from_slice(stream, &[1i32; 9])?;
            let mut got = [DeviceBuffer::<i32>::zeroed(stream, 9)?, DeviceBuffer::<i32>::zeroed(stream, 9)?];
            for _ in 0..2 {
                let before = comm.dump().to_string();
                group(|g| {
                    let mut got = got.iter_mut();
                    for sum in &mut sums {
                        g.all_reduce(comm, InPlace(sum), ReduceOp::Sum, stream)?;
                        if let Some(got) = got.next() {
                            g.send(comm, &sent, other, stream)?;
                            g.recv(comm, got, other, stream)?;
                        }
                    }
                    Ok(())
                })?;
                let dump = comm.dump().to_string();
                let of = |side| messages(&before, other, side);
                let kinds =
                    [("all_reduce", collectives(&before), 3), ("send", of("sent"), 2), ("recv", of("received"), 2)];
                for (kind, before, count) in kinds {
                    let first = before + 1;
                    let got = sequences(&dump, kind);
                    let got: Vec<_> = got[got.len() - count..].iter().map(|(_, sequence)| *sequence).collect();
                    assert_eq!(got, (first..first + count as u64).map(Some).collect::<Vec<_>>(), "{kind}: {dump}");
                }
            }
            stream.synchronize()
        });
        rig.close();
    });
}

/// Who is asked while it issues something does not mistake one number for another.
#[test]
fn numbers_stand_while_more_is_issued() {
    watched(60.0, || {
        let rig = Rig::unconnected(1);
        rig.run(|comm, stream| {
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let asks = scope.spawn(|| {
                    let mut asked = 0;
                    while !over.load(Ordering::Relaxed) || asked == 0 {
                        let dump = comm.dump().to_string();
                        for (number, sequence) in sequences(&dump, "all_reduce") {
                            assert_eq!(Some(number), sequence, "{dump}");
                        }
                        asked += 1;
                    }
                });
                let mut x = DeviceBuffer::from_slice(stream, &[1f32; 3])?;
                let issued = (0..5000).try_for_each(|_| sum(comm, &mut x, stream));
                over.store(true, Ordering::Relaxed);
                asks.join().expect("numbers that stand");
                issued?;
                stream.synchronize()
            })
        });
        rig.close();
    });
}

/// What was seen to be done is not waited for, on whatever stream, however many there are.
#[test]
fn who_has_done_all_waits_for_nothing() {
    if devices() < 2 {
        return skip("two ranks: this machine has one device");
    }
    watched(60.0, || {
        let (rig, asked) = (Rig::unconnected(2), Barrier::new(2));
        rig.run(|comm, _| {
            let streams = (0..7).map(|_| Stream::new(comm.device())).collect::<gpucomm::Result<Vec<_>>>()?;
            for stream in &streams {
                let mut x = DeviceBuffer::from_slice(stream, &[1f32; 3])?;
                sum(comm, &mut x, stream)?;
                stream.synchronize()?;
            }
            // Later ones are met by nobody before they are launched.
            let mut x = DeviceBuffer::from_slice(&streams[0], &[1f32; 5])?;
            match comm.rank() {
                0 => comm.send(&x, 1, &streams[0])?,
                _ => comm.recv(&mut x, 0, &streams[0])?,
            }
            streams[0].synchronize()?;
            let (dump, all) = (comm.dump().to_string(), streams.len() + 1);
            assert!(dump.contains("\"waits\": null"), "{dump}");
            assert_eq!(dump.matches("\"state\": \"done\"").count(), all, "{dump}");
            // One stream is behind, and others are not.
            let mut x = DeviceBuffer::from_slice(&streams[3], &[1f32; 11])?;
            if comm.rank() == 0 {
                comm.send(&x, 1, &streams[3])?;
                let dump = comm.dump().to_string();
                assert!(dump.contains("\"waits\": \"rank 0 waits for send of 11 f32"), "{dump}");
                assert_eq!(dump.matches("\"state\": \"done\"").count(), all, "{dump}");
                asked.wait();
            } else {
                asked.wait();
                comm.recv(&mut x, 0, &streams[3])?;
            }
            streams.iter().try_for_each(Stream::synchronize)?;
            let dump = comm.dump().to_string();
            assert!(dump.contains("\"waits\": null"), "{dump}");
            Ok(())
        });
        rig.close();
    });
}

/// What ranks have in common beside sizes stands in fields of its own.
#[test]
fn roots_and_reductions() {
    watched(60.0, || {
        let rig = Rig::unconnected(devices().min(2));
        rig.run(|comm, stream| {
            let mut x = DeviceBuffer::from_slice(stream, &[1f32; 3])?;
            let root = comm.size() - 1;
            comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
            comm.broadcast(InPlace(&mut x), root, stream)?;
            comm.reduce(InPlace(&mut x), ReduceOp::Sum, root, stream)?;
            let dump = comm.dump().to_string();
            let root = root.to_string();
            for (kind, root, reduction) in [
                ("all_reduce", "null", "\"max\""),
                ("broadcast", root.as_str(), "null"),
                ("reduce", root.as_str(), "\"sum\""),
            ] {
                let is_it = |line: &&str| line.contains(&format!("\"kind\": \"{kind}\""));
                let line = dump.lines().rfind(is_it).expect("an entry");
                let fields = format!("\"peer\": null, \"root\": {root}, \"reduction\": {reduction}, ");
                assert!(line.contains(&fields), "{fields} is not in {line}");
            }
            stream.synchronize()
        });
        rig.close();
    });
}

/// One file that cannot be written keeps no other from being written.
#[test]
fn files_beside_one_that_cannot_be_written() {
    watched_alone(60.0, || {
        let place = std::env::temp_dir().join(format!("gpucomm-dump-beside-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let rig = Rig::new(devices().min(3));
        let paths = nccl::dump_all(&place).expect("dumps");
        assert_eq!(paths.len(), rig.size());
        for taken in &paths {
            paths.iter().for_each(|path| fs::remove_file(path).expect("a dump"));
            fs::create_dir(taken).expect("a directory");
            let error = nccl::dump_all(&place).expect_err("a directory is no file").to_string();
            assert!(error.contains(taken.to_str().expect("a path in UTF-8")), "{error}");
            let there = paths.iter().filter(|path| path.is_file()).count();
            assert_eq!(there, paths.len() - 1);
            fs::remove_dir(taken).expect("a directory");
            nccl::dump_all(&place).expect("dumps");
        }
        rig.close();
        let _ = fs::remove_dir_all(&place);
    });
}
