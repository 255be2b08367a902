//! What a world costs: from where a small all_reduce is submitted to where the communicator has it, beside the call itself; and how many requests go
//! through it.
//!
//! ```text
//! cargo bench --bench world
//! gpucomm run -n 2 -- target/release/deps/world-…      a process for each rank, whose calls of the driver do not hold up each other
//! ```
//!
//! `GPUCOMM_WORLD_ROUNDS` and `GPUCOMM_WORLD_REQUESTS` say how often, and how many.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use gpucomm::exchange::Exchange;
use gpucomm::nccl::InitOptions;
use gpucomm::world::{
    Lane, Rank, World, WorldOptions,
    completion::Blocking,
    requests::{self, At, Request},
};
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, InPlace, Launch, ReduceOp, Result, Stream};

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn rounds() -> usize {
    number("GPUCOMM_WORLD_ROUNDS", 5000)
}

/// A sum that remembers when it was submitted, and tells when it had been looked at, when its rank came to it, and when the communicator had it.
struct Timed<R> {
    sum: R,
    submitted: Instant,
    after: [Duration; 3],
}

impl<R: Request<Back = DeviceBuffer<f32>>> Request for Timed<R> {
    type Back = (DeviceBuffer<f32>, [Duration; 3]);

    fn operation(&self) -> &'static str {
        "all_reduce"
    }

    fn check(&mut self, at: &At<'_>) -> Result<()> {
        self.sum.check(at)?;
        self.after[0] = self.submitted.elapsed();
        Ok(())
    }

    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        self.after[1] = self.submitted.elapsed();
        self.sum.enqueue(at)?;
        self.after[2] = self.submitted.elapsed();
        Ok(())
    }

    fn into_back(self) -> Self::Back {
        (self.sum.into_back(), self.after)
    }
}

fn print(what: &str, mut all: Vec<Duration>) {
    all.sort_unstable();
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{what:<24} median {:8.2} µs, 90 % {:8.2} µs, 99 % {:8.2} µs", at(0.5), at(0.9), at(0.99));
}

/// Where the ranks meet, if a launcher has started this process as one of them.
fn launched() -> Result<Option<(Exchange, Device)>> {
    if std::env::var_os("RANK").is_none() {
        return Ok(None);
    }
    let launch = Launch::from_env()?;
    Ok(Some((launch.join()?, launch.find_device()?)))
}

type Place = Option<(Exchange, Device)>;

/// The call itself.
fn calls(comm: &Communicator, together: &Barrier) -> Result<Vec<Duration>> {
    let stream = Stream::new(comm.device())?;
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, 2)?;
    let mut times = Vec::with_capacity(rounds());
    for _ in 0..rounds() {
        together.wait();
        let start = Instant::now();
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
        times.push(start.elapsed());
        stream.synchronize()?;
    }
    Ok(times)
}

/// By a thread for each rank, or a process.
fn direct(place: &Place) -> Result<()> {
    let times = match place {
        Some((exchange, device)) => {
            // SAFETY: all ranks run this program.
            let comm = unsafe { Communicator::init_rank_over(*device, exchange, &InitOptions::default())? };
            calls(&comm, &Barrier::new(1))?
        }
        None => {
            let clique = Clique::init_all(&Device::all()?)?;
            let together = Barrier::new(clique.size());
            clique.spmd(|comm| calls(comm, &together))?.concat()
        }
    };
    print("direct", times);
    Ok(())
}

fn world(place: &Place, options: WorldOptions) -> Result<World> {
    match place {
        // SAFETY: all ranks run this program.
        Some((exchange, device)) => unsafe {
            World::join(exchange.subset(&(0..exchange.size()).collect::<Vec<_>>())?, *device, &options)
        },
        None => World::new_with(&Device::all()?, &options),
    }
}

fn one(rank: &Rank, together: &Barrier, pause: Duration) -> Result<Vec<[Duration; 3]>> {
    let mut x = DeviceBuffer::<f32>::zeroed(&Stream::new(rank.device())?, 2)?;
    let mut times = Vec::with_capacity(rounds());
    for _ in 0..rounds() {
        std::thread::sleep(pause);
        together.wait();
        let sum = requests::all_reduce(InPlace(x), ReduceOp::Sum);
        let timed = Timed { sum, submitted: Instant::now(), after: [Duration::ZERO; 3] };
        let (back, after) = rank.submit(timed).wait()?;
        x = back;
        times.push(after);
    }
    Ok(times)
}

fn through(place: &Place, what: &str, options: WorldOptions, pause: Duration) -> Result<()> {
    let world = world(place, options)?;
    let ranks = world.ranks();
    let together = Barrier::new(ranks.len());
    let times = std::thread::scope(|scope| {
        let one = |rank| one(rank, &together, pause);
        let all: Vec<_> = ranks.iter().map(|rank| scope.spawn(move || one(rank))).collect();
        all.into_iter().map(|rank| rank.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    world.close_timeout(Duration::from_secs(20))?;
    let times: Vec<_> = times.into_iter().flatten().collect();
    for (stage, until) in ["  checked", "  begun", what].into_iter().enumerate() {
        print(until, times.iter().map(|after| after[stage]).collect());
    }
    print("  of which the call", times.iter().map(|after| after[2] - after[1]).collect());
    Ok(())
}

/// 16 tasks, in lanes, as fast as they can.
fn rate(place: &Place) -> Result<()> {
    const TASKS: usize = 16;
    let world = world(place, WorldOptions::new().with_sequenced(true))?;
    let rounds = number("GPUCOMM_WORLD_REQUESTS", 100_000) / TASKS / world.size();
    let start = Instant::now();
    let task = |number: usize| -> Result<()> {
        let lane = Lane::new(format!("{number}"));
        let ranks: Vec<_> = world.ranks().into_iter().map(|rank| rank.with_lane(&lane)).collect();
        let zeroed = |rank: &Rank| DeviceBuffer::<f32>::zeroed(&Stream::new(rank.device())?, 2);
        let mut buffers = ranks.iter().map(zeroed).collect::<Result<Vec<_>>>()?;
        for _ in 0..rounds {
            let asked = ranks.iter().zip(buffers.drain(..));
            let answers: Vec<_> = asked.map(|(rank, x)| rank.all_reduce(InPlace(x), ReduceOp::Sum)).collect();
            for answer in answers {
                buffers.push(answer.wait()?);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let task = &task;
        let tasks: Vec<_> = (0..TASKS).map(|number| scope.spawn(move || task(number))).collect();
        tasks.into_iter().try_for_each(|task| task.join().expect("no panic"))
    })?;
    let done = world.metrics().done;
    println!("{done} requests of {TASKS} tasks: {:.0} a second", done as f64 / start.elapsed().as_secs_f64());
    world.close_timeout(Duration::from_secs(20))
}

fn main() -> Result<()> {
    let place = &launched()?;
    direct(place)?;
    let spinning = || WorldOptions::new().with_spin(Duration::from_micros(500));
    through(place, "world, spinning", spinning(), Duration::ZERO)?;
    through(place, "the same, Blocking", spinning().with_completion(Arc::new(Blocking)), Duration::ZERO)?;
    through(place, "world, parked", WorldOptions::default(), Duration::from_micros(200))?;
    rate(place)
}
