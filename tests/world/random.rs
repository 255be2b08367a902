//! Random programs: what a seed draws is done by a world, and by the host, which keeps what each rank must hold.
//!
//! `GPUCOMM_TEST_SEED` is the seed, which is printed; `GPUCOMM_RANDOM_SECONDS` how long it goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use gpucomm::world::{
    AllGather, AllReduce, AllToAll, AllToAllV, Blocking, Broadcast, Completion, HostCallback, Op, Polling, Rank, Recv,
    Request, Send, World, WorldOptions,
};
use gpucomm::{DeviceBuffer, InPlace};

use super::support::{on, values, world, zeroed};

type Buffer = DeviceBuffer<u32>;

/// A world, and what its ranks hold on the devices and must hold.
struct Program {
    world: World,
    rng: Rng,
    held: Vec<Buffer>,
    model: Vec<Vec<u32>>,
    log: Vec<String>,
}

#[test]
fn programs() {
    let seconds = std::env::var("GPUCOMM_RANDOM_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let seed = std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let first: u64 = seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    let (start, mut seed) = (Instant::now(), first);
    println!("GPUCOMM_TEST_SEED={first}");
    loop {
        run(seed);
        seed += 1;
        if start.elapsed() >= Duration::from_secs_f64(seconds) {
            println!("{} programs", seed - first);
            return;
        }
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let completion: Arc<dyn Completion> = match rng.usize(..3) {
        0 => Arc::new(Polling { interval: Duration::from_micros(rng.u64(..100)) }),
        1 => Arc::new(HostCallback),
        _ => Arc::new(Blocking),
    };
    let options = WorldOptions { completion, sequenced: rng.bool(), queue: rng.usize(1..9), ..WorldOptions::default() };
    let world = world(rng.usize(1..=4), options);
    let size = world.size();
    let len = size * rng.usize(1..40);
    let model: Vec<Vec<u32>> = (0..size).map(|_| (0..len).map(|_| rng.u32(..)).collect()).collect();
    let held = world.devices().into_iter().zip(&model).map(|(device, values)| on(device, values)).collect();
    let mut program = Program { world, rng, held, model, log: Vec::new() };
    for _ in 0..30 {
        program.step();
        if program.rng.u8(..4) == 0 {
            program.compare(seed);
        }
    }
    program.compare(seed);
    assert_eq!(program.world.metrics().failed, 0);
}

fn fold(op: &Op<u32>, one: u32, other: u32) -> u32 {
    match op {
        Op::Sum => one.wrapping_add(other),
        Op::Prod => one.wrapping_mul(other),
        Op::Min => one.min(other),
        _ => one.max(other),
    }
}

impl Program {
    fn compare(&self, seed: u64) {
        for (rank, (held, model)) in self.held.iter().zip(&self.model).enumerate() {
            assert_eq!(&values(held), model, "GPUCOMM_TEST_SEED={seed}: rank {rank} after {:?}", self.log);
        }
    }

    /// One request of each rank, from its buffer, by all at once, rank by rank, or in stream order.
    fn ask<R: Request>(&mut self, make: impl Fn(&Rank, Buffer) -> R, back: impl Fn(R::Back) -> Buffer) {
        let (ranks, held) = (self.world.ranks(), std::mem::take(&mut self.held));
        let made = ranks.iter().zip(held).map(|(rank, buffer)| make(rank, buffer));
        self.held = match self.rng.usize(..3) {
            0 => self.world.submit(made).wait().unwrap().into_iter().map(back).collect(),
            1 => {
                let answers: Vec<_> = ranks.iter().zip(made).map(|(rank, one)| rank.submit(one)).collect();
                answers.into_iter().map(|answer| back(answer.wait().unwrap())).collect()
            }
            _ => {
                let answers: Vec<_> = ranks.iter().zip(made).map(|(rank, one)| rank.submit_in_order(one)).collect();
                answers.into_iter().map(|answer| back(answer.wait().unwrap().buffers)).collect()
            }
        };
    }

    fn step(&mut self) {
        let size = self.world.size();
        let (len, root) = (self.model[0].len(), self.rng.usize(..size));
        let part = len / size;
        let old = self.model.clone();
        let op = [Op::Sum, Op::Prod, Op::Min, Op::Max][self.rng.usize(..4)];
        let kind = self.rng.usize(..7);
        self.log.push(format!("{kind} {op:?} {root}"));
        match kind {
            0 => {
                self.ask(|_, x| AllReduce::new(InPlace(x), op), |x| x);
                let all: Vec<_> =
                    (0..len).map(|at| old.iter().map(|one| one[at]).reduce(|a, b| fold(&op, a, b)).unwrap()).collect();
                self.model = vec![all; size];
            }
            1 => {
                self.ask(|_, x| Broadcast::new(InPlace(x), root), |x| x);
                self.model = vec![old[root].clone(); size];
            }
            2 => {
                self.ask(|_, x| AllGather::new(InPlace(x)), |x| x);
                let of = |rank: usize| old[rank][rank * part..(rank + 1) * part].to_vec();
                self.model = vec![(0..size).flat_map(of).collect(); size];
            }
            3 => {
                self.ask(|rank, x| AllToAll::new((x, zeroed::<u32>(rank.device(), len))), |(_, recv)| recv);
                let from = |to: usize| {
                    (0..size).flat_map(|from| old[from][to * part..(to + 1) * part].to_vec()).collect::<Vec<_>>()
                };
                self.model = (0..size).map(from).collect();
            }
            4 => {
                // Each rank sends its parts to the ranks in another order of lengths: as many to all.
                let count = self.rng.usize(..=part);
                let counts = vec![count; size];
                let make = |rank: &Rank, x| {
                    let offsets = (0..size).map(|at| at * part).collect::<Vec<_>>();
                    let recv = zeroed::<u32>(rank.device(), len);
                    AllToAllV::new((x, recv), (counts.clone(), offsets.clone()), (counts.clone(), offsets))
                };
                self.ask(make, |(_, recv)| recv);
                let mut model = vec![vec![0; len]; size];
                for (to, own) in model.iter_mut().enumerate() {
                    for from in 0..size {
                        own[from * part..from * part + count].copy_from_slice(&old[from][to * part..to * part + count]);
                    }
                }
                self.model = model;
            }
            5 => {
                let make = |rank: &Rank, x| {
                    let (next, before) = ((rank.rank() + 1) % size, (rank.rank() + size - 1) % size);
                    (Send::new(x, next), Recv::new(zeroed::<u32>(rank.device(), len), before))
                };
                self.ask(make, |(_, received)| received);
                self.model = (0..size).map(|rank| old[(rank + size - 1) % size].clone()).collect();
            }
            _ => {
                // A list: the sum of a buffer, and one of something else.
                let make = |rank: &Rank, x| {
                    vec![AllReduce::new(InPlace(x), op), AllReduce::new(InPlace(on(rank.device(), &[1])), Op::Sum)]
                };
                self.ask(make, |mut list| list.swap_remove(0));
                let all: Vec<_> =
                    (0..len).map(|at| old.iter().map(|one| one[at]).reduce(|a, b| fold(&op, a, b)).unwrap()).collect();
                self.model = vec![all; size];
            }
        }
    }
}
