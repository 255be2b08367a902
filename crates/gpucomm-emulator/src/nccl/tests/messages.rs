//! Send and receive.

use super::*;
use crate::report::expected::expect;

const F32: ncclDataType_t = ncclDataType_t::ncclFloat32;

fn send(rank: &Rank, buffer: &Buffer, to: usize) -> ncclResult_t {
    // SAFETY: the buffer stays until the stream is idle.
    unsafe { ncclSend(buffer.0, buffer.1, F32, to as i32, rank.comm, rank.stream) }
}

fn recv(rank: &Rank, buffer: &Buffer, from: usize) -> ncclResult_t {
    // SAFETY: the buffer stays until the stream is idle.
    unsafe { ncclRecv(buffer.0, buffer.1, F32, from as i32, rank.comm, rank.stream) }
}

fn group(body: impl FnOnce()) -> ncclResult_t {
    // SAFETY: take no pointers.
    assert_eq!(unsafe { ncclGroupStart() }, OK);
    body();
    // SAFETY: as above.
    unsafe { ncclGroupEnd() }
}

#[test]
fn a_ring_in_groups_does_not_block() {
    for size in 1..=4 {
        spmd(size, |rank| {
            for count in [0, 1, 1000, 300_000] {
                let (out, inn) = (Buffer::new(&vec![rank.rank as f32; count]), Buffer::zeros(count));
                let (next, previous) = ((rank.rank + 1) % rank.size, (rank.rank + rank.size - 1) % rank.size);
                let ended = group(|| {
                    assert_eq!(send(rank, &out, next), OK);
                    assert_eq!(recv(rank, &inn, previous), OK);
                });
                assert_eq!(ended, OK, "{}", last_error());
                rank.wait();
                assert_eq!(inn.values(), vec![previous as f32; count]);
            }
        });
    }
}

#[test]
fn messages_of_a_pair_match_in_order() {
    spmd(2, |rank| {
        let buffers: Vec<Buffer> = (0..20).map(|i| Buffer::new(&[(100 * rank.rank + i) as f32; 3])).collect();
        if rank.rank == 0 {
            for buffer in &buffers {
                assert_eq!(send(rank, buffer, 1), OK);
            }
        } else {
            // Half in one group, half alone: the other side need not do the same.
            let ended = group(|| buffers[..10].iter().for_each(|buffer| assert_eq!(recv(rank, buffer, 0), OK)));
            assert_eq!(ended, OK);
            buffers[10..].iter().for_each(|buffer| assert_eq!(recv(rank, buffer, 0), OK));
        }
        rank.wait();
        for (i, buffer) in buffers.iter().enumerate() {
            assert_eq!(buffer.values(), [i as f32; 3]);
        }
    });
}

#[test]
fn everybody_to_everybody_on_several_streams() {
    spmd(4, |rank| {
        let others = [rank.stream, stream(), stream()];
        let out: Vec<Buffer> = (0..4).map(|to| Buffer::new(&[(10 * rank.rank + to) as f32; 50])).collect();
        let inn: Vec<Buffer> = (0..4).map(|_| Buffer::zeros(50)).collect();
        for round in 0..20 {
            let ended = group(|| {
                for peer in 0..4 {
                    let stream = others[(peer + round) % 3];
                    // SAFETY: the buffers stay until the streams are idle.
                    unsafe {
                        assert_eq!(ncclRecv(inn[peer].0, 50, F32, peer as i32, rank.comm, stream), OK);
                        assert_eq!(ncclSend(out[peer].0, 50, F32, peer as i32, rank.comm, stream), OK);
                    }
                }
            });
            assert_eq!(ended, OK, "{}", last_error());
            others.into_iter().for_each(wait);
            for (peer, buffer) in inn.iter().enumerate() {
                assert_eq!(buffer.values(), [(10 * peer + rank.rank) as f32; 50]);
            }
        }
        for stream in &others[1..] {
            // SAFETY: nothing is left to do on the stream.
            assert_eq!(unsafe { cudaStreamDestroy(*stream) }, cudaError::cudaSuccess);
        }
    });
}

#[test]
fn a_pair_that_disagrees_fails_on_both_sides() {
    let expected = expect("a message does not match");
    spmd(2, |rank| {
        let buffer = Buffer::new(&[rank.rank as f32; 8]);
        // SAFETY: the buffer holds 8 elements.
        let issued = unsafe {
            match rank.rank {
                0 => ncclSend(buffer.0, 8, F32, 1, rank.comm, rank.stream),
                _ => ncclRecv(buffer.0, 7, F32, 0, rank.comm, rank.stream),
            }
        };
        assert_eq!(issued, OK);
        rank.wait();
        assert_eq!(rank.state(), ncclResult_t::ncclInvalidUsage);
        let text = rank.error();
        assert!(text.contains("rank 1 expected 7") && text.contains("rank 0, which sent 8"), "{text}");
        assert_eq!(buffer.values(), [rank.rank as f32; 8], "no data moved");
    });
    assert!(expected.count() > 0);
}

#[test]
fn a_message_to_oneself_needs_both_ends_in_the_group() {
    spmd(1, |rank| {
        let buffer = Buffer::zeros(4);
        assert_eq!(send(rank, &buffer, 0), ncclResult_t::ncclInvalidUsage);
        assert!(last_error().contains("itself"), "{}", last_error());
        assert_eq!(rank.state(), OK);
    });
}

/// As NCCL: the first message to a peer and the first one from it go together, and the next ones begin when both are done.
#[test]
fn what_comes_back_between_two_messages_of_a_group_is_waited_for() {
    for grouped_alike in [true, false] {
        spmd(2, move |rank| {
            let (first, second, back) = (Buffer::new(&[1.0; 8]), Buffer::new(&[2.0; 8]), Buffer::new(&[3.0; 8]));
            let all = || match rank.rank {
                0 => [recv(rank, &first, 1), recv(rank, &second, 1), send(rank, &back, 1)],
                _ => [send(rank, &first, 0), send(rank, &second, 0), recv(rank, &back, 0)],
            };
            let issue = || assert_eq!(all(), [OK; 3]);
            // The first messages connect the ranks, which they do alike.
            assert_eq!(group(issue), OK);
            rank.wait();
            if grouped_alike || rank.rank == 1 {
                assert_eq!(group(issue), OK);
            } else {
                issue();
            }
            if grouped_alike {
                rank.wait();
            } else {
                std::thread::sleep(Duration::from_millis(200));
                // SAFETY: a live stream.
                assert_eq!(unsafe { cudaStreamQuery(rank.stream) }, cudaError::cudaErrorNotReady);
                rank.abort();
                rank.wait();
            }
        });
    }
}
