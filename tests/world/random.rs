//! Random programs: what a seed draws is done by a world, and by the host, which keeps what each rank must hold.
//!
//! `GPUCOMM_TEST_SEED` is the seed, which is printed; `GPUCOMM_RANDOM_SECONDS` how long it goes on.

use std::time::Instant;

use fastrand::Rng;
use gpucomm::DeviceBuffer;
use gpucomm::world::{Rank, Reason, World, WorldOptions, requests::Request};

use super::random_steps::step;
use super::support::{completion, drawn, on, values, world};

pub type Buffer = DeviceBuffer<u32>;

/// A world, and what its ranks hold on the devices and must hold.
pub struct Program {
    pub world: World,
    pub rng: Rng,
    held: Vec<Buffer>,
    pub model: Vec<Vec<u32>>,
    pub log: Vec<String>,
    /// How many requests were refused.
    wrong: u64,
}

#[test]
fn programs() {
    let (first, time) = drawn();
    let (start, mut seed) = (Instant::now(), first);
    loop {
        run(seed);
        seed += 1;
        if start.elapsed() >= time {
            println!("{} programs", seed - first);
            return;
        }
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let completion = completion(&mut rng);
    let options =
        WorldOptions::new().with_completion(completion).with_sequenced(rng.bool()).with_queue(rng.usize(1..9));
    let world = world(rng.usize(1..=4), options);
    let size = world.size();
    let len = size * rng.usize(1..40);
    let model: Vec<Vec<u32>> = (0..size).map(|_| (0..len).map(|_| rng.u32(..)).collect()).collect();
    let held = world.devices().into_iter().zip(&model).map(|(device, values)| on(device, values)).collect();
    let mut program = Program { world, rng, held, model, log: Vec::new(), wrong: 0 };
    for _ in 0..30 {
        step(&mut program);
        if program.rng.u8(..4) == 0 {
            program.compare(seed);
        }
    }
    program.compare(seed);
    // What was wrong on one rank was refused on all.
    assert_eq!(program.world.metrics().failed, program.wrong);
}

impl Program {
    fn compare(&self, seed: u64) {
        for (rank, (held, model)) in self.held.iter().zip(&self.model).enumerate() {
            assert_eq!(&values(held), model, "GPUCOMM_TEST_SEED={seed}: rank {rank} after {:?}", self.log);
        }
    }

    /// One request of each rank, from its buffer, by all at once, rank by rank, or in stream order.
    pub fn ask<R: Request>(&mut self, make: impl Fn(&Rank, Buffer) -> R, back: impl Fn(R::Back) -> Buffer) {
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

    /// The same, by all at once, and nobody wants it any more: whether it is done all the same, on all ranks or on none. `undone` gives the
    /// buffer back of what was not.
    pub fn ask_and_cancel<R: Request>(
        &mut self,
        make: impl Fn(&Rank, Buffer) -> R,
        back: impl Fn(R::Back) -> Buffer,
        undone: impl Fn(R::Back) -> Buffer,
    ) -> bool {
        let (ranks, held) = (self.world.ranks(), std::mem::take(&mut self.held));
        let asked = self.world.submit(ranks.iter().zip(held).map(|(rank, buffer)| make(rank, buffer)));
        let cancelled = asked.cancel();
        match asked.wait() {
            Ok(all) => {
                assert!(!cancelled);
                self.held = all.into_iter().map(back).collect();
                true
            }
            Err(failed) => {
                assert_eq!((cancelled, failed.reason), (true, Reason::Cancelled), "{}", failed.error);
                self.held = failed.buffers.unwrap().into_iter().map(|one| undone(one.unwrap())).collect();
                false
            }
        }
    }

    /// One request that is wrong on one rank, and so made by none.
    pub fn ask_wrongly<R: Request>(&mut self, make: impl Fn(&Rank, Buffer) -> R, undone: impl Fn(R::Back) -> Buffer) {
        let (ranks, held) = (self.world.ranks(), std::mem::take(&mut self.held));
        let asked = self.world.submit(ranks.iter().zip(held).map(|(rank, buffer)| make(rank, buffer)));
        let failed = asked.wait().err().expect("it is wrong");
        assert_eq!(failed.reason, Reason::Refused, "{}", failed.error);
        self.held = failed.buffers.unwrap().into_iter().map(|one| undone(one.unwrap())).collect();
        self.wrong += u64::try_from(self.held.len()).unwrap();
    }
}
