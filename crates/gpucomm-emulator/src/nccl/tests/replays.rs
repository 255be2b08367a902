//! Operations in graphs: random ones, against a model.

use super::processes::{all_well, play};
use super::*;
use fastrand::Rng;
use std::sync::LazyLock;

pub(super) const U32: ncclDataType_t = ncclDataType_t::ncclUint32;
pub(super) const SUM: ncclRedOp_t = ncclRedOp_t::ncclSum;
pub(super) const CUDA_OK: cudaError = cudaError::cudaSuccess;

/// Calls a function of CUDA, which must succeed.
macro_rules! cuda {
    ($call:expr) => {{
        // SAFETY: pointers are to what the test owns, and memory stays until its streams are idle and its graphs gone.
        assert_eq!(unsafe { $call }, CUDA_OK)
    }};
}

/// Calls a function of NCCL.
macro_rules! nccl {
    ($call:expr) => {{
        // SAFETY: as above.
        unsafe { $call }
    }};
}

pub(super) use {cuda, nccl};

/// Captures what `work` enqueues on `stream`.
pub(super) fn captured(stream: cudaStream_t, work: impl FnOnce()) -> cudaGraphExec_t {
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    cuda!(cudaStreamBeginCapture(stream, cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal));
    work();
    cuda!(cudaStreamEndCapture(stream, &mut graph));
    cuda!(cudaGraphInstantiate(&mut exec, graph, 0));
    cuda!(cudaGraphDestroy(graph));
    exec
}

pub(super) fn launch(exec: cudaGraphExec_t, stream: cudaStream_t) {
    cuda!(cudaGraphLaunch(exec, stream));
}

/// Lets `to` come after what is enqueued on `from` by now.
pub(super) fn order(from: cudaStream_t, to: cudaStream_t) {
    let mut event = std::ptr::null_mut();
    cuda!(cudaEventCreateWithFlags(&mut event, cudaEventDisableTiming));
    cuda!(cudaEventRecord(event, from));
    cuda!(cudaStreamWaitEvent(to, event, 0));
    cuda!(cudaEventDestroy(event));
}

/// Elements of each part of a block, of which it has one for each rank.
const PART: usize = 3;
const CELLS: usize = 5;

/// What all ranks do; the first number says on which of two communicators, the others name blocks.
#[derive(Debug, Clone, Copy)]
enum Step {
    Fill(usize, u8),
    Copy(usize, usize),
    Sum(usize, usize),
    Gather(usize, usize),
    /// From the second block of each rank to the third of the next one.
    Ring(usize, usize, usize),
    /// Two sums in one group, on streams of their own.
    Both(usize, usize, usize),
}

impl Step {
    fn random(random: &mut Rng) -> Self {
        let comm = random.usize(..2);
        let (one, two) = (random.usize(..CELLS), random.usize(..CELLS));
        match random.u32(..8) {
            0 => Self::Fill(one, random.u8(..)),
            1 if one != two => Self::Copy(one, two),
            2 => Self::Gather(comm, one),
            3 | 4 if one != two => Self::Ring(comm, one, two),
            5 if one != two => Self::Both(comm, one, two),
            _ => Self::Sum(comm, one),
        }
    }

    fn cells(self) -> Vec<usize> {
        match self {
            Self::Fill(cell, _) | Self::Sum(_, cell) | Self::Gather(_, cell) => vec![cell],
            Self::Copy(one, two) | Self::Ring(_, one, two) | Self::Both(_, one, two) => vec![one, two],
        }
    }

    /// What it does to the blocks of all ranks.
    fn model(self, ranks: &mut [Vec<Vec<u32>>]) {
        let size = ranks.len();
        // The second communicator counts its ranks from the end.
        let place = |comm: usize, rank: usize| if comm == 0 { rank } else { size - 1 - rank };
        let sum = |ranks: &mut [Vec<Vec<u32>>], cell: usize| {
            let total = |at: usize| ranks.iter().fold(0u32, |sum, cells| sum.wrapping_add(cells[cell][at]));
            let totals: Vec<u32> = (0..size * PART).map(total).collect();
            ranks.iter_mut().for_each(|cells| cells[cell].clone_from(&totals));
        };
        match self {
            Self::Fill(cell, byte) => {
                ranks.iter_mut().for_each(|cells| cells[cell].fill(u32::from_ne_bytes([byte; 4])))
            }
            Self::Copy(to, from) => ranks.iter_mut().for_each(|cells| cells[to] = cells[from].clone()),
            Self::Sum(_, cell) => sum(ranks, cell),
            Self::Both(_, one, two) => [one, two].iter().for_each(|&cell| sum(ranks, cell)),
            Self::Gather(comm, cell) => {
                let parts = (0..size).flat_map(|index| {
                    let rank = place(comm, index);
                    ranks[rank][cell][index * PART..][..PART].to_vec()
                });
                let all: Vec<u32> = parts.collect();
                ranks.iter_mut().for_each(|cells| cells[cell].clone_from(&all));
            }
            Self::Ring(comm, from, to) => {
                let sent: Vec<Vec<u32>> = ranks.iter().map(|cells| cells[from].clone()).collect();
                for index in 0..size {
                    ranks[place(comm, (index + 1) % size)][to].clone_from(&sent[place(comm, index)]);
                }
            }
        }
    }
}

/// One rank of a program that all ranks draw from the same seed.
struct Player<'a> {
    rank: &'a Rank,
    comms: [ncclComm_t; 2],
    blocks: Vec<Buffer>,
    streams: Vec<cudaStream_t>,
}

impl Player<'_> {
    fn call(&self, step: Step, [stream, other]: [cudaStream_t; 2]) {
        let size = self.rank.size;
        let (at, count) = (|cell: usize| self.blocks[cell].0, size * PART);
        let index = |comm: usize| if comm == 0 { self.rank.rank } else { size - 1 - self.rank.rank };
        let sum = |comm: usize, cell: usize, stream| {
            assert_eq!(nccl!(ncclAllReduce(at(cell), at(cell), count, U32, SUM, self.comms[comm], stream)), OK);
        };
        match step {
            Step::Fill(cell, byte) => cuda!(cudaMemsetAsync(at(cell), i32::from(byte), 4 * count, stream)),
            Step::Copy(to, from) => {
                cuda!(cudaMemcpyAsync(at(to), at(from), 4 * count, cudaMemcpyKind::cudaMemcpyDefault, stream));
            }
            Step::Sum(comm, cell) => sum(comm, cell, stream),
            Step::Both(comm, one, two) => {
                assert_eq!(nccl!(ncclGroupStart()), OK);
                sum(comm, one, stream);
                sum(comm, two, other);
                assert_eq!(nccl!(ncclGroupEnd()), OK, "{}", last_error());
            }
            Step::Gather(comm, cell) => {
                let own = self.blocks[cell].at(index(comm) * PART);
                assert_eq!(nccl!(ncclAllGather(own, at(cell), PART, U32, self.comms[comm], stream)), OK);
            }
            Step::Ring(comm, from, to) => {
                let (next, previous) = ((index(comm) + 1) % size, (index(comm) + size - 1) % size);
                let comm = self.comms[comm];
                assert_eq!(nccl!(ncclGroupStart()), OK);
                assert_eq!(nccl!(ncclSend(at(from), count, U32, next as i32, comm, stream)), OK);
                assert_eq!(nccl!(ncclRecv(at(to), count, U32, previous as i32, comm, stream)), OK);
                assert_eq!(nccl!(ncclGroupEnd()), OK, "{}", last_error());
            }
        }
    }

    /// Captures random steps, that fork over all streams and join again.
    fn capture(&self, random: &mut Rng) -> (cudaGraphExec_t, Vec<Step>) {
        let (first, mut steps) = (random.usize(..self.streams.len()), Vec::new());
        let exec = captured(self.streams[first], || {
            for &other in self.streams.iter().filter(|&&other| other != self.streams[first]) {
                order(self.streams[first], other);
            }
            let mut users = [first; CELLS];
            for _ in 0..random.usize(0..14) {
                let step = Step::random(random);
                let (stream, other) = (random.usize(..self.streams.len()), random.usize(..self.streams.len()));
                // The second block may be that of the second stream.
                let streams = [stream, if matches!(step, Step::Both(..)) { other } else { stream }];
                for (cell, stream) in step.cells().into_iter().zip(streams) {
                    let last = std::mem::replace(&mut users[cell], stream);
                    if last != stream {
                        order(self.streams[last], self.streams[stream]);
                    }
                }
                self.call(step, streams.map(|stream| self.streams[stream]));
                steps.push(step);
            }
            for &other in self.streams.iter().filter(|&&other| other != self.streams[first]) {
                order(other, self.streams[first]);
            }
        });
        (exec, steps)
    }

    fn check(&self, model: &[Vec<Vec<u32>>], seed: u64, what: &dyn std::fmt::Debug) {
        for (cell, expected) in model[self.rank.rank].iter().enumerate() {
            let seen: Vec<u32> = self.blocks[cell].values().into_iter().map(f32::to_bits).collect();
            assert_eq!(&seen, expected, "seed {seed}, rank {}, cell {cell}: {what:?}", self.rank.rank);
        }
    }

    fn play(&self, seed: u64) {
        let mut random = Rng::with_seed(seed);
        let size = self.rank.size;
        let mut model = vec![vec![vec![0; size * PART]; CELLS]; size];
        let graphs: Vec<_> = (0..3).map(|_| self.capture(&mut random)).collect();
        for _ in 0..5 {
            for cells in &mut model {
                cells.iter_mut().flatten().for_each(|value| *value = random.u32(..));
            }
            for (cell, values) in model[self.rank.rank].iter().enumerate() {
                for (index, &value) in values.iter().enumerate() {
                    // SAFETY: memory of this process that nothing uses now.
                    unsafe { self.blocks[cell].at(index).cast::<u32>().write(value) };
                }
            }
            for _ in 0..random.usize(..20) {
                let stream = self.rank.stream;
                if random.u32(..4) == 0 {
                    let step = Step::random(&mut random);
                    self.call(step, [stream; 2]);
                    step.model(&mut model);
                } else {
                    let (exec, steps) = &graphs[random.usize(..graphs.len())];
                    launch(*exec, stream);
                    steps.iter().for_each(|step| step.model(&mut model));
                }
            }
            self.rank.wait();
            self.check(&model, seed, &graphs);
        }
        for (exec, _) in graphs {
            cuda!(cudaGraphExecDestroy(exec));
        }
    }
}

/// Plays some programs.
fn play_from(rank: &Rank, seed: u64, programs: u64) {
    let mut second = std::ptr::null_mut();
    let split = nccl!(ncclCommSplit(rank.comm, 0, -(rank.rank as i32), &mut second, std::ptr::null_mut()));
    assert_eq!(split, OK, "{}", last_error());
    let player = Player {
        rank,
        comms: [rank.comm, second],
        blocks: (0..CELLS).map(|_| Buffer::zeros(rank.size * PART)).collect(),
        streams: (0..3).map(|_| stream()).collect(),
    };
    (0..programs).for_each(|program| player.play(seed.wrapping_add(program)));
    assert_eq!(nccl!(ncclCommDestroy(second)), OK, "{}", last_error());
}

const SEED: &str = "GPUCOMM_TEST_SEED";

fn seed() -> u64 {
    let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("{SEED}={seed} repeats this");
    seed
}

#[test]
fn random_graphs_of_threads_do_what_they_hold() {
    alone!();
    let seed = seed();
    for size in 1..=4 {
        spmd(size, move |rank| play_from(rank, seed, 15));
    }
}

/// What each process does.
pub(super) fn scene(rank: &Rank) {
    play_from(rank, seed(), 15);
    rank.end();
}

#[test]
fn random_graphs_of_processes_do_what_they_hold() {
    alone!();
    static TEXT: LazyLock<String> = LazyLock::new(|| seed().to_string());
    static ENVIRONMENT: LazyLock<[(&str, &str); 1]> = LazyLock::new(|| [(SEED, &TEXT)]);
    all_well(&play("replays", 3, &*ENVIRONMENT));
}
