//! Send and receive, alone and in groups.

use gpucomm::{DeviceBuffer, ElementKind, group};

use crate::support::{Case, Guarded, Number, Rig, each_type, harness::lengths, rank_counts, watched};

/// Every rank sends to the next and receives from the one before, as one group.
fn ring_of<T: Number>(rig: &Rig) {
    let large = if T::KIND == ElementKind::F64 { 300_007 } else { 20_011 };
    for len in lengths(large) {
        let ranks = rig.size();
        let case = Case::moving::<T>("ring of send and recv", ranks, len, false);
        let inputs = case.inputs::<T>(ranks, len);
        rig.run(|comm, stream| {
            let rank = comm.rank();
            let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            let send = Guarded::holding(stream, &inputs[rank])?;
            let mut recv = Guarded::poisoned(stream, len)?;
            group(|g| {
                g.send(comm, send.inner(), next, stream)?;
                g.recv(comm, recv.inner_mut(), before, stream)
            })?;
            case.same(rank, &recv.read(stream)?, &inputs[before]);
            case.same(rank, &send.read(stream)?, &inputs[rank]);
            Ok(())
        });
    }
}

#[test]
fn ring() {
    watched(180.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            each_type!(ring_of(&rig));
            rig.close();
        }
    });
}

/// Rank 0 to the last rank without a group: one side only sends, the other only receives.
fn one_way_of<T: Number>(rig: &Rig) {
    for len in lengths(20_011) {
        let case = Case::moving::<T>("one way", rig.size(), len, false);
        let input = case.input::<T>(0, len);
        let last = rig.size() - 1;
        rig.run(|comm, stream| {
            if comm.rank() == 0 {
                let send = Guarded::holding(stream, &input)?;
                comm.send(send.inner(), last, stream)?;
                case.same(0, &send.read(stream)?, &input);
            } else if comm.rank() == last {
                let mut recv = Guarded::poisoned(stream, len)?;
                comm.recv(recv.inner_mut(), 0, stream)?;
                case.same(last, &recv.read(stream)?, &input);
            }
            Ok(())
        });
    }
}

#[test]
fn one_way() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            each_type!(one_way_of(&rig));
            rig.close();
        }
    });
}

#[test]
fn messages_between_two_ranks_keep_their_order() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let peer = 1 - comm.rank();
                let mut got = Vec::new();
                for round in 0..20u32 {
                    let len = 1 + (round as usize * 37) % 100;
                    if comm.rank() == 0 {
                        comm.send(&DeviceBuffer::from_slice(stream, &vec![round; len])?, peer, stream)?;
                    } else {
                        let mut recv = DeviceBuffer::from_slice(stream, &vec![u32::MAX; len])?;
                        comm.recv(&mut recv, peer, stream)?;
                        got.push((round, recv.to_vec(stream)?));
                    }
                }
                assert!(got.iter().all(|(round, values)| values.iter().all(|value| value == round)), "{got:?}");
                Ok(())
            });
            rig.close();
        }
    });
}

/// Different lengths to every peer, both directions, several messages a pair in one group.
#[test]
fn everybody_to_everybody_in_one_group() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            let value = |from: usize, to: usize, message: usize| (100 * from + 10 * to + message) as i32;
            let len = |from: usize, to: usize, message: usize| 1 + 5 * from + 3 * to + 1000 * message;
            rig.run(|comm, stream| {
                let rank = comm.rank();
                let mut sends = Vec::new();
                let mut recvs = Vec::new();
                for message in 0..2 {
                    for peer in 0..ranks {
                        let out = vec![value(rank, peer, message); len(rank, peer, message)];
                        sends.push((peer, Guarded::holding(stream, &out)?));
                        recvs.push((peer, message, Guarded::<i32>::poisoned(stream, len(peer, rank, message))?));
                    }
                }
                group(|g| {
                    for (peer, send) in &sends {
                        g.send(comm, send.inner(), *peer, stream)?;
                    }
                    for (peer, _, recv) in &mut recvs {
                        g.recv(comm, recv.inner_mut(), *peer, stream)?;
                    }
                    Ok(())
                })?;
                for (peer, message, recv) in &recvs {
                    let got = recv.read(stream)?;
                    let want = value(*peer, rank, *message);
                    assert!(got.iter().all(|got| *got == want), "rank {rank} from {peer}, message {message}: {got:?}");
                }
                Ok(())
            });
            rig.close();
        }
    });
}
