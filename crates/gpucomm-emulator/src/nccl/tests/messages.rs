//! Send and receive.

use super::*;
use crate::report::expected::expect;

const F32: ncclDataType_t = ncclDataType_t::ncclFloat32;

pub(super) fn send(rank: &Rank, buffer: &Buffer, to: usize) -> ncclResult_t {
    // SAFETY: the buffer stays until the stream is idle.
    unsafe { ncclSend(buffer.0, buffer.1, F32, to as i32, rank.comm, rank.stream) }
}

pub(super) fn recv(rank: &Rank, buffer: &Buffer, from: usize) -> ncclResult_t {
    // SAFETY: the buffer stays until the stream is idle.
    unsafe { ncclRecv(buffer.0, buffer.1, F32, from as i32, rank.comm, rank.stream) }
}

pub(super) fn group(body: impl FnOnce()) -> ncclResult_t {
    // SAFETY: take no pointers.
    assert_eq!(unsafe { ncclGroupStart() }, OK);
    body();
    // SAFETY: as above.
    unsafe { ncclGroupEnd() }
}

#[test]
fn a_pair_that_disagrees_fails_on_both_sides() {
    alone!();
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
    alone!();
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
    alone!();
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
