//! Calls of the host that all ranks of a communicator make together: each shows the others a few words.

use std::sync::atomic::Ordering;

use super::deadlock::{Activity, Phase, Stop, Watch, died};
use crate::emulator::lock::lock;
use crate::emulator::meet::futex::SLICE;
use crate::emulator::meet::layout::WORDS;
use crate::emulator::nccl::basics::error::{Failure, Outcome};
use crate::emulator::nccl::basics::kind::Kind;
use crate::emulator::nccl::state::comm::Comm;

/// Words that a rank can show.
pub(crate) const SHOWN: usize = WORDS - 1;

/// Shows `words` to all ranks and returns what each of them shows, in the order of ranks.
///
/// Nobody returns before all have read, so the next exchange cannot overtake this one.
pub(crate) fn exchange(comm: &Comm, kind: Kind, words: &[u64]) -> Outcome<Vec<[u64; SHOWN]>> {
    let segment = comm.segment()?;
    let me = segment.rank(comm.rank);
    let number = {
        let mut issued = lock(&comm.issued);
        issued.hosted += 1;
        issued.hosted
    };
    let activity = Activity { kind, number, count: 0, peer: 0 };
    me.host_words[0].store(kind as u64, Ordering::Relaxed);
    for (slot, word) in me.host_words[1..].iter().zip(words) {
        slot.store(*word, Ordering::Relaxed);
    }
    meet(comm, activity, 2 * number - 1)?;
    let all: Vec<_> = (0..comm.size)
        .map(|peer| segment.rank(peer).host_words.each_ref().map(|word| word.load(Ordering::Relaxed)))
        .collect();
    meet(comm, activity, 2 * number)?;
    activity.publish(me, Phase::Done);
    let mut shown = Vec::with_capacity(comm.size);
    for (peer, words) in all.into_iter().enumerate() {
        if words[0] != kind as u64 {
            let theirs = Kind::from_code(words[0]).map_or("nothing", Kind::name);
            return Err(Failure::usage(format!(
                "ranks disagree: rank {} called {}, rank {peer} called {theirs}",
                comm.rank,
                kind.name()
            ))
            .reported());
        }
        shown.push(std::array::from_fn(|i| words[i + 1]));
    }
    Ok(shown)
}

fn meet(comm: &Comm, activity: Activity, step: u64) -> Outcome {
    let segment = comm.segment()?;
    let gate = &segment.head().host;
    segment.rank(comm.rank).hosted.store(step, Ordering::Release);
    let Some(ticket) = gate.arrive(comm.size) else { return Ok(()) };
    let mut watch = Watch::of_host(comm, segment, activity);
    while !gate.wait(ticket, SLICE) {
        let missing = |peer| segment.rank(peer).hosted.load(Ordering::Relaxed) < step;
        let Some(stop) = watch.check(missing) else { continue };
        if !gate.leave(ticket) {
            return Ok(());
        }
        return Err(match stop {
            Stop::Dead(peer) => died(comm, peer, &activity),
            Stop::Aborted | Stop::Cancelled => {
                Failure::internal(format!("rank {}: aborted while waiting in {}", comm.rank, activity.kind.name()))
            }
        });
    }
    Ok(())
}
