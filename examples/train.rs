//! Data-parallel training of a small model: one program, unchanged, under `gpucomm run`, `torchrun`, `srun` and `mpirun`, and by itself.
//!
//! Each rank computes the gradients of its share of every batch on the host. Those of the last layer are on their way (`f32`) while it
//! computes those of the first (`bf16`, which takes half of the bandwidth). All ranks then make the same step, so their models stay equal bit by bit.
//!
//! A rank that dies in mid-run is no end: where the launcher leaves the others alone, as `srun --kill-on-bad-exit=0` does, they go on without it
//! (`Communicator::recover`) from the last step that all have made; where it starts all anew, they go on from a checkpoint.
//!
//! ```text
//! cargo run --example train --features emulator
//! gpucomm run -n 4 --max-restarts 1 -- target/debug/examples/train --checkpoint /tmp/model --die 2:25
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use gpucomm::exchange::Exchange;
use gpucomm::{Communicator, DeviceBuffer, InPlace, Launch, PinnedBuffer, ReduceOp, Result, Stream, bf16};

const INPUTS: usize = 16;
const HIDDEN: usize = 32;
/// Samples of a step, over all ranks.
const BATCH: usize = 96;
const RATE: f32 = 0.1;
/// Steps from one checkpoint to the next.
const OFTEN: u64 = 10;

/// What the user asks for.
struct Options {
    steps: u64,
    checkpoint: Option<PathBuf>,
    /// A rank that dies, and before which step: to see what happens then.
    die: Option<(usize, u64)>,
}

impl Options {
    fn read(mut args: impl Iterator<Item = String>) -> Self {
        let mut options = Self { steps: 40, checkpoint: None, die: None };
        while let Some(name) = args.next() {
            let value = args.next().unwrap_or_default();
            match name.as_str() {
                "--steps" => options.steps = value.parse().expect("a number of steps"),
                "--checkpoint" => options.checkpoint = Some(value.into()),
                "--die" => {
                    let (rank, step) = value.split_once(':').expect("RANK:STEP");
                    options.die = Some((rank.parse().expect("a rank"), step.parse().expect("a step")));
                }
                _ => panic!("expected --steps N, --checkpoint FILE or --die RANK:STEP, got {name}"),
            }
        }
        options
    }
}

/// The weights of two layers, and the biases behind them.
#[derive(Clone, PartialEq)]
struct Model {
    first: Vec<f32>,
    last: Vec<f32>,
}

impl Model {
    fn new() -> Self {
        let weight = |index: usize| (random(index as u64 ^ 0xfeed) - 0.5) * 0.5;
        Self { first: (0..HIDDEN * (INPUTS + 1)).map(weight).collect(), last: (0..=HIDDEN).map(weight).collect() }
    }

    fn hidden(&self, x: &[f32]) -> Vec<f32> {
        let weighted = |row: &[f32]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f32>() + row[INPUTS];
        self.first.chunks(INPUTS + 1).map(|row| weighted(row).tanh()).collect()
    }

    fn output(&self, hidden: &[f32]) -> f32 {
        hidden.iter().zip(&self.last).map(|(h, w)| h * w).sum::<f32>() + self.last[HIDDEN]
    }

    fn descend(&mut self, first: &[bf16], last: &[f32]) {
        self.first.iter_mut().zip(first).for_each(|(w, g)| *w -= RATE * g.to_f32());
        self.last.iter_mut().zip(last).for_each(|(w, g)| *w -= RATE * g);
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.first.iter().chain(&self.last).flat_map(|weight| weight.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut first: Vec<f32> =
            bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
        let last = first.split_off(HIDDEN * (INPUTS + 1));
        Self { first, last }
    }
}

/// A number from 0 to 1 that depends on `seed` alone.
fn random(seed: u64) -> f32 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 40) as f32 / (1u64 << 24) as f32
}

/// A sample: what goes in, and what should come out.
fn sample(number: u64) -> (Vec<f32>, f32) {
    let x: Vec<f32> = (0..INPUTS as u64).map(|i| random(number * INPUTS as u64 + i) * 2.0 - 1.0).collect();
    let y = x.iter().enumerate().map(|(i, x)| if i % 2 == 0 { *x } else { -x }).sum::<f32>();
    (x, (0.5 * y).sin())
}

/// Gradients on their way: pinned memory, so that copies do not wait, and memory of the device.
struct Bucket<T: gpucomm::Reduce> {
    host: PinnedBuffer<T>,
    device: DeviceBuffer<T>,
}

impl<T: gpucomm::Reduce> Bucket<T> {
    fn new(stream: &Stream, len: usize) -> Result<Self> {
        Ok(Self { host: PinnedBuffer::zeroed(len)?, device: DeviceBuffer::zeroed(stream, len)? })
    }

    /// Sends them off, and has their sum come back.
    fn reduce(&mut self, comm: &Communicator, stream: &Stream) -> Result<()> {
        self.device.copy_from_pinned(stream, &self.host)?;
        comm.all_reduce(InPlace(&mut self.device), ReduceOp::Sum, stream)?;
        self.device.copy_to_pinned(stream, &mut self.host)
    }
}

/// What a rank trains with.
struct Trainer {
    comm: Communicator,
    exchange: Exchange,
    stream: Stream,
    first: Bucket<bf16>,
    /// With the loss behind the gradients.
    last: Bucket<f32>,
}

impl Trainer {
    fn new(comm: Communicator, exchange: Exchange) -> Result<Self> {
        let stream = Stream::new(comm.device())?;
        let first = Bucket::new(&stream, HIDDEN * (INPUTS + 1))?;
        let last = Bucket::new(&stream, HIDDEN + 2)?;
        Ok(Self { comm, exchange, stream, first, last })
    }

    /// One step of all ranks: `model` gets better, and the loss before it is returned.
    fn step(&mut self, model: &mut Model, number: u64) -> Result<f32> {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let share = rank * BATCH / size..(rank + 1) * BATCH / size;
        let samples: Vec<_> = share.map(|k| sample(number * BATCH as u64 + k as u64)).collect();
        let hidden: Vec<_> = samples.iter().map(|(x, _)| model.hidden(x)).collect();
        let wrong = |(h, (_, y)): (&Vec<f32>, &(Vec<f32>, f32))| (model.output(h) - y) / BATCH as f32;
        let wrong: Vec<f32> = hidden.iter().zip(&samples).map(wrong).collect();

        let last = self.last.host.as_slice_mut()?;
        last.fill(0.0);
        for (h, wrong) in hidden.iter().zip(&wrong) {
            last.iter_mut().zip(h).for_each(|(gradient, h)| *gradient += wrong * h);
            last[HIDDEN] += wrong;
            last[HIDDEN + 1] += wrong * wrong * BATCH as f32;
        }
        self.last.reduce(&self.comm, &self.stream)?;

        // Meanwhile, the first layer.
        let mut sums = vec![0f32; HIDDEN * (INPUTS + 1)];
        for ((x, _), (h, wrong)) in samples.iter().zip(hidden.iter().zip(&wrong)) {
            for (unit, row) in sums.chunks_mut(INPUTS + 1).enumerate() {
                let back = wrong * model.last[unit] * (1.0 - h[unit] * h[unit]);
                row.iter_mut().zip(x).for_each(|(gradient, x)| *gradient += back * x);
                row[INPUTS] += back;
            }
        }
        self.first.host.as_slice_mut()?.iter_mut().zip(&sums).for_each(|(to, sum)| *to = bf16::from_f32(*sum));
        self.first.reduce(&self.comm, &self.stream)?;

        self.stream.synchronize()?;
        let last = self.last.host.as_slice()?;
        model.descend(self.first.host.as_slice()?, &last[..=HIDDEN]);
        Ok(last[HIDDEN + 1])
    }

    /// From ranks of which some have died to those that are left.
    fn recover(self) -> Result<Self> {
        let recovered = self.comm.recover(&self.exchange)?;
        Self::new(recovered.comm, recovered.exchange)
    }
}

/// The step of a checkpoint, and its model, as rank 0 finds them; all ranks have the same.
fn resume(exchange: &Exchange, path: Option<&Path>) -> Result<(u64, Model)> {
    let found = path.filter(|_| exchange.rank() == 0).and_then(|path| fs::read(path).ok()).unwrap_or_default();
    let bytes = exchange.broadcast(&found, 0)?;
    Ok(match bytes.split_first_chunk::<8>() {
        Some((step, model)) => (u64::from_le_bytes(*step), Model::from_bytes(model)),
        None => (0, Model::new()),
    })
}

fn save(path: &Path, step: u64, model: &Model) -> std::io::Result<()> {
    // Whole or not at all: whoever reads it may do so while this is killed.
    let part = path.with_extension("part");
    fs::write(&part, [&step.to_le_bytes()[..], &model.to_bytes()].concat())?;
    fs::rename(part, path)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    train(std::env::args().skip(1))
}

/// What `main` does with its arguments.
pub fn train(args: impl Iterator<Item = String>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::read(args);
    let launch = Launch::from_env()?;
    let exchange = launch.join()?;
    let (mut step, mut model) = resume(&exchange, options.checkpoint.as_deref())?;
    let resumed = step;
    // SAFETY: all ranks run this program, and make the same steps.
    let comm = unsafe { Communicator::from_launch(&launch)? };
    let mut trainer = Trainer::new(comm, exchange)?;
    let (mut before, mut start, mut loss) = (model.clone(), None, f32::NAN);

    while step < options.steps {
        if options.die == Some((launch.rank(), step)) && resumed == 0 {
            std::process::abort();
        }
        let mut after = model.clone();
        match trainer.step(&mut after, step) {
            Ok(now) => {
                (before, model, loss) = (model, after, now);
                start.get_or_insert(now);
                step += 1;
                if let Some(path) =
                    options.checkpoint.as_ref().filter(|_| step % OFTEN == 0 && trainer.comm.rank() == 0)
                {
                    save(path, step, &model)?;
                }
            }
            Err(error) => {
                eprintln!("rank {}, step {step}: {error}", launch.rank());
                trainer = trainer.recover()?;
                // Some are a step ahead: all go back to what all have.
                let steps = trainer.exchange.all_gather(&step.to_le_bytes())?;
                let least =
                    steps.iter().filter_map(|bytes| bytes.as_slice().try_into().ok()).map(u64::from_le_bytes).min();
                if least.is_some_and(|least| least < step) {
                    (model, step) = (before.clone(), step - 1);
                }
                println!("rank {}: {} ranks go on from step {step}", launch.rank(), trainer.comm.size());
            }
        }
    }

    // All ranks have the same model, bit by bit.
    let models = trainer.exchange.all_gather(&model.to_bytes())?;
    assert!(models.iter().all(|other| *other == models[0]), "the models differ");
    let start = start.unwrap_or(loss);
    assert!(loss < start || resumed > 0, "the loss has not fallen: {start} to {loss}");
    if trainer.comm.rank() == 0 {
        println!("{} ranks, from step {resumed} to {step}: loss {loss:.6}", trainer.comm.size());
    }
    trainer.comm.close()?;
    Ok(())
}
