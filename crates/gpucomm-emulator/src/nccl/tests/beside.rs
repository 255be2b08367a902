//! Pieces of one graph that have no order, and wait for each other: those of several ranks, on several devices.

use super::replays::{CUDA_OK, SUM, U32, captured, cuda, launch, nccl, order};
use super::*;
use crate::cuda::core::stream::come_to_the_end;
use fastrand::Rng;

/// Ranks of one communicator that one thread drives.
fn clique(size: usize) -> Vec<Rank> {
    let id = unique_id();
    let mut comms = vec![std::ptr::null_mut(); size];
    assert_eq!(nccl!(ncclGroupStart()), OK);
    for (rank, comm) in comms.iter_mut().enumerate() {
        set_device(rank);
        assert_eq!(nccl!(ncclCommInitRankConfig(comm, size as i32, id, rank as i32, &mut config(true))), OK);
    }
    assert_eq!(nccl!(ncclGroupEnd()), OK, "{}", last_error());
    let make = |(rank, comm)| {
        set_device(rank);
        Rank::new(rank, size, comm)
    };
    comms.into_iter().enumerate().map(make).collect()
}

/// One call of each rank, together.
fn grouped(ranks: &[Rank], call: impl Fn(&Rank) -> ncclResult_t) {
    assert_eq!(nccl!(ncclGroupStart()), OK);
    ranks.iter().for_each(|rank| assert_eq!(call(rank), OK, "{}", last_error()));
    assert_eq!(nccl!(ncclGroupEnd()), OK, "{}", last_error());
}

/// The streams of all ranks become part of the capture of the first one's, and are joined again after `work`.
fn forked(ranks: &[Rank], work: impl FnOnce()) -> cudaGraphExec_t {
    set_device(0);
    let first = ranks[0].stream;
    let exec = captured(first, || {
        set_device(0);
        ranks[1..].iter().for_each(|rank| order(first, rank.stream));
        work();
        for rank in &ranks[1..] {
            set_device(rank.rank);
            order(rank.stream, first);
        }
    });
    set_device(0);
    exec
}

fn words(random: &mut Rng, count: usize) -> Vec<u32> {
    (0..count).map(|_| random.u32(..)).collect()
}

/// Memory of the current device.
struct Words(*mut u32, usize);

impl Words {
    fn of(rank: &Rank, count: usize) -> Self {
        set_device(rank.rank);
        let mut at = std::ptr::null_mut();
        cuda!(cudaMalloc(&mut at, 4 * count));
        Self(at.cast(), count)
    }

    fn at(&self, index: usize) -> *mut c_void {
        self.0.wrapping_add(index).cast()
    }

    fn write(&self, values: &[u32]) {
        assert_eq!(values.len(), self.1);
        // SAFETY: memory of the emulator's devices is memory of this process; nothing runs on it now.
        unsafe { self.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    fn read(&self) -> Vec<u32> {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }.to_vec()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        cuda!(cudaFree(self.0.cast()));
    }
}

/// One graph has all ranks: a sum over them, a fill of each, a gathering, and messages in a ring.
fn one_thread_replays(size: usize) {
    within_limit(move || {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = Rng::with_seed(seed);
        let count = 2 * random.usize(1..9) + 1;
        let ranks = clique(size);
        let make = |count: usize| ranks.iter().map(|rank| Words::of(rank, count)).collect::<Vec<_>>();
        let (input, sums, gathered, passed) = (make(count), make(count), make(size * count), make(count));
        let all = || {
            grouped(&ranks, |rank| {
                let (from, to) = (input[rank.rank].at(0), sums[rank.rank].at(0));
                nccl!(ncclAllReduce(from, to, count, U32, SUM, rank.comm, rank.stream))
            });
            for rank in &ranks {
                let first = input[rank.rank].at(0);
                cuda!(cudaMemsetAsync(first, rank.rank as i32 + 1, 4, rank.stream));
            }
            grouped(&ranks, |rank| {
                let (from, to) = (input[rank.rank].at(0), gathered[rank.rank].at(0));
                nccl!(ncclAllGather(from, to, count, U32, rank.comm, rank.stream))
            });
            grouped(&ranks, |rank| {
                let (next, last) = ((rank.rank + 1) % size, (rank.rank + size - 1) % size);
                let (from, to) = (sums[rank.rank].at(0), passed[rank.rank].at(0));
                let sent = nccl!(ncclSend(from, count - 1, U32, next as i32, rank.comm, rank.stream));
                assert_eq!(sent, OK);
                nccl!(ncclRecv(to, count - 1, U32, last as i32, rank.comm, rank.stream))
            });
        };
        // What connects the ranks, and no capture may hold.
        input.iter().for_each(|words| words.write(&vec![0; count]));
        all();
        ranks.iter().for_each(Rank::wait);
        let exec = forked(&ranks, all);
        for replay in 0..100 {
            let given: Vec<Vec<u32>> = ranks.iter().map(|_| words(&mut random, count)).collect();
            for rank in 0..size {
                input[rank].write(&given[rank]);
                for (words, count) in [(&sums, count), (&gathered, size * count), (&passed, count)] {
                    words[rank].write(&vec![0xdead_beef; count]);
                }
            }
            launch(exec, ranks[0].stream);
            ranks[0].wait();
            let sum = |at: usize| given.iter().fold(0u32, |sum, values| sum.wrapping_add(values[at]));
            let total: Vec<u32> = (0..count).map(sum).collect();
            let filled = |(rank, values): (usize, &Vec<u32>)| {
                let mut values = values.clone();
                values[0] = 0x0101_0101 * (rank as u32 + 1);
                values
            };
            let all: Vec<u32> = given.iter().enumerate().flat_map(filled).collect();
            let mut ring = total.clone();
            ring[count - 1] = 0xdead_beef;
            for rank in 0..size {
                let what = format!("seed {seed}, replay {replay}, rank {rank}");
                assert_eq!(sums[rank].read(), total, "{what}");
                assert_eq!(gathered[rank].read(), all, "{what}");
                assert_eq!(passed[rank].read(), ring, "{what}");
            }
        }
        cuda!(cudaGraphExecDestroy(exec));
        drop((input, sums, gathered, passed));
        ranks.iter().for_each(Rank::end);
    });
}

#[test]
fn one_thread_replays_two_ranks() {
    alone!();
    one_thread_replays(2);
}

#[test]
fn one_thread_replays_four_ranks() {
    alone!();
    one_thread_replays(4);
}

/// The ranks do not call together: what the second captures comes after nothing of the first.
#[test]
fn ranks_in_one_graph_need_no_group() {
    alone!();
    within_limit(|| {
        let ranks = clique(2);
        let words: Vec<Words> = ranks.iter().map(|rank| Words::of(rank, 3)).collect();
        let sum = |rank: &Rank| {
            let at = words[rank.rank].at(0);
            nccl!(ncclAllReduce(at, at, 3, U32, SUM, rank.comm, rank.stream))
        };
        grouped(&ranks, sum);
        ranks.iter().for_each(Rank::wait);
        let exec = forked(&ranks, || {
            for _ in 0..5 {
                ranks.iter().for_each(|rank| assert_eq!(sum(rank), OK));
            }
        });
        words[0].write(&[1, 2, 3]);
        words[1].write(&[10, 20, 30]);
        (0..2).for_each(|_| launch(exec, ranks[0].stream));
        ranks[0].wait();
        // The first sum, doubled nine times.
        let total = [11 << 9, 22 << 9, 33 << 9];
        assert_eq!([words[0].read(), words[1].read()], [total, total]);
        cuda!(cudaGraphExecDestroy(exec));
        drop(words);
        ranks.iter().for_each(Rank::end);
    });
}

/// Two branches have sums of one communicator, or of two, with no edge between them; beside them, one holds its branch up.
#[test]
fn branches_without_an_edge() {
    alone!();
    let ended = spmd(2, |rank| {
        let mut second = std::ptr::null_mut();
        assert_eq!(nccl!(ncclCommSplit(rank.comm, 0, rank.rank as i32, &mut second, std::ptr::null_mut())), OK);
        let other = Rank::new(rank.rank, 2, second);
        [rank, &other].iter().for_each(|rank| rank.connect());
        let (one, two, three) = (Words::of(rank, 3), Words::of(rank, 5), Words::of(rank, 1));
        let side = stream();
        let sum = |words: &Words, comm, stream| {
            assert_eq!(nccl!(ncclAllReduce(words.at(0), words.at(0), words.1, U32, SUM, comm, stream)), OK);
        };
        let exec = captured(rank.stream, || {
            order(rank.stream, side);
            order(rank.stream, other.stream);
            sum(&one, rank.comm, rank.stream);
            sum(&two, rank.comm, side);
            sum(&three, other.comm, other.stream);
            order(side, rank.stream);
            order(other.stream, rank.stream);
        });
        for replay in 0..100u32 {
            let mine = replay + 7 * rank.rank as u32;
            [&one, &two, &three].iter().for_each(|words| words.write(&vec![mine; words.1]));
            launch(exec, rank.stream);
            come_to_the_end(rank.stream);
            let total = 2 * replay + 7;
            let all = [one.read(), two.read(), three.read()].concat();
            assert!(all.iter().all(|&value| value == total), "replay {replay}: {all:?}");
            // The other rank writes its own before it has seen that this one has read: both have come to the end of the graph.
            rank.wait();
        }
        cuda!(cudaGraphExecDestroy(exec));
        drop((one, two, three));
        cuda!(cudaStreamDestroy(side));
        other.end();
        true
    });
    assert_eq!(ended, [true; 2]);
}
