//! Right programs that are aborted from another thread: every answer is right or an error, and nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpucomm::nccl::{AbortOutcome, Aborter};
use gpucomm::{Backend, Device, Error};

use crate::cliques;
use crate::outcome::{self, Outcome};
use crate::program::Program;
use crate::settings::{Batch, Run, rng, slower};
use crate::watch::{self, say};

/// What calls of an aborted program may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What of a device's memory may be in use in the end that was not after the first clique: pools and NCCL keep some, and CUDA keeps what
/// kernels need for themselves, once for each device: 244 MiB come with the first kernel between windows of NCCL 2.30.7, and 484 MiB were in
/// use on one of two H200s after the first clique that came to the other later, where ranks go on alone.
fn kept() -> usize {
    if gpucomm::backend() == Backend::Nvidia { 560 << 20 } else { 64 << 20 }
}

pub fn run() {
    let mut run = Run::begin("abort", 60, 1, TIMEOUT);
    let (mut before, mut ended, mut slowest, mut lost) = (None, 0, Duration::ZERO, 0);
    while let Some(batch) = run.batch(1) {
        let (aborted, took) = clique(&batch);
        ended += usize::from(aborted);
        slowest = slowest.max(took);
        cliques::still_works(&batch, batch.first);
        let before = before.get_or_insert_with(free);
        lost = lost.max(in_use_since(before, &batch.repeat(batch.first)));
    }
    say(&format!(
        "abort: {ended} programs were aborted before their end, the slowest was over {slowest:.1?} after that; at most {lost} MiB of a \
         device were in use that were free after the first"
    ));
}

/// How many MiB of a device are in use that were free `before`: at the most, and no more than are kept. What ends by itself beside others
/// may take a while.
fn in_use_since(before: &[usize], repeat: &str) -> usize {
    let begin = Instant::now();
    loop {
        let now = free();
        let used = before.iter().zip(&now).map(|(before, now)| before.saturating_sub(*now)).max().unwrap_or(0);
        if used <= kept() {
            return used >> 20;
        }
        let late = begin.elapsed() > slower(TIMEOUT);
        assert!(!late, "{before:?} bytes of the devices were free after the first clique, {now:?} are: {repeat}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Free memory of each device.
fn free() -> Vec<usize> {
    let devices = Device::all().expect("devices");
    devices.iter().map(|device| device.memory_info().expect("the device's memory").free).collect()
}

/// Runs one program. Whether it was aborted, and how long it then took to end.
fn clique(batch: &Batch) -> (bool, Duration) {
    let mut rng = rng(batch.first, "abort");
    let clique = cliques::start_to_end(batch, TIMEOUT);
    let (program, repeat) = (Arc::new(Program::draw(batch, batch.first, false)), batch.repeat(batch.first));
    watch::begin(&repeat, &program);
    let longest = if gpucomm::backend() == Backend::Nvidia { 60_000 } else { 40_000 };
    let delay = Duration::from_micros(rng.u64(..longest));
    let mut aborters: Vec<Aborter> = clique.ranks().iter().map(|comm| comm.aborter()).collect();
    // Through one rank, or all of them, in any order.
    rng.shuffle(&mut aborters);
    if rng.bool() {
        aborters.truncate(1);
    }
    let done = AtomicBool::new(false);
    let (outcomes, aborted) = std::thread::scope(|scope| {
        let abort = scope.spawn(|| {
            std::thread::sleep(delay);
            if done.load(Ordering::Relaxed) {
                return None;
            }
            let begin = Instant::now();
            for aborter in &aborters {
                let outcome = aborter.abort("a random moment");
                // A communicator stays if a launch of a graph hangs for which NCCL has registered memory.
                let stays = outcome == AbortOutcome::StillRunning && program.captures();
                assert!(stays || outcome != AbortOutcome::StillRunning, "an abort has not ended: {repeat}");
            }
            Some(begin)
        });
        let outcomes = outcome::of_ranks(&clique, |comm| program.run(comm));
        done.store(true, Ordering::Relaxed);
        (outcomes, abort.join().expect("the abort"))
    });
    let took = aborted.map_or(Duration::ZERO, |begin| begin.elapsed());
    let allowed = |outcome: &Outcome| match outcome {
        Outcome::Right => true,
        Outcome::Error { error, .. } => {
            aborted.is_some() && matches!(error, Error::Aborted { .. } | Error::Timeout { .. })
        }
        Outcome::Wrong { .. } => false,
    };
    if !outcomes.ranks.iter().all(allowed) {
        outcomes.tell(&program);
        panic!("not what an abort after {delay:?} may bring: {repeat}");
    }
    assert!(took < slower(2 * TIMEOUT), "{took:?} from the abort to the end: {repeat}");
    (aborted.is_some(), took)
}
