//! Calls of the host that ranks of a communicator make together: each shows the others a few words.

use super::activity::{Activity, Watch, died};
use crate::meet::meeting::{Meeting, Ranks, Step};
use crate::meet::segment::WORDS;
use crate::meet::watch::{Deed, Phase, Stop};
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::Kind;
use crate::nccl::state::comm::Comm;

/// Words that a rank can show.
pub(crate) const SHOWN: usize = WORDS - 1;

/// Who makes a call together: the ranks, and the epoch of the communicator in which it began.
#[derive(Debug, Clone)]
pub(crate) struct Members {
    pub(crate) ranks: Vec<usize>,
    pub(crate) epoch: u32,
}

impl Members {
    /// All ranks.
    pub(crate) fn all(comm: &Comm, epoch: u32) -> Self {
        Self { ranks: (0..comm.size).collect(), epoch }
    }
}

/// Shows `words` to all members and returns what each of them shows, in their order.
///
/// Nobody returns before all have read, so the next exchange cannot overtake this one.
pub(crate) fn exchange(comm: &Comm, members: &Members, kind: Kind, words: &[u64]) -> Outcome<Vec<[u64; SHOWN]>> {
    let segment = comm.segment()?;
    let me = segment.rank(comm.rank);
    let (number, meeting) = {
        let mut issued = comm.issued.lock();
        issued.hosted += 1;
        let meeting = Meeting::of_ranks(segment, comm.rank, &members.ranks, members.epoch, &mut issued.met);
        (issued.hosted, meeting)
    };
    let activity = Activity::new(kind, number, 0, 0);
    let unused = std::iter::repeat(0);
    meeting.show(std::iter::once(kind as u64).chain(words.iter().copied()).chain(unused));
    wait(comm, members, activity, &meeting, Step::Shows)?;
    let all: Vec<_> = members.ranks.iter().map(|&peer| (peer, meeting.shown::<WORDS>(peer))).collect();
    meeting.come(Step::HasRead);
    wait(comm, members, activity, &meeting, Step::HasRead)?;
    activity.publish(me, Phase::Done);
    let mut shown = Vec::with_capacity(all.len());
    for (peer, words) in all {
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

fn wait(comm: &Comm, members: &Members, activity: Activity, meeting: &Meeting<Ranks<'_>>, step: Step) -> Outcome {
    let segment = comm.segment()?;
    let mut watch = None;
    let look = || {
        let new = || Watch::of_host(comm, segment, activity).among(&members.ranks).since(members.epoch);
        watch.get_or_insert_with(new).check(|peer| meeting.missing(peer, step))
    };
    meeting.wait(step, look).map_err(|stop| match stop {
        Stop::Dead(peer) => died(comm, peer, &activity),
        Stop::Aborted | Stop::Cancelled => {
            Failure::internal(format!("rank {}: aborted while waiting in {}", comm.rank, activity.kind.name()))
        }
    })
}
