//! Communicators of some of the ranks of another: its parts, and what is left of it without some.

use std::sync::Arc;

use super::group::{self, Job};
use super::init::{Out, join};
use crate::lock::lock;
use crate::meet::register;
use crate::meet::segment::Id;
use crate::nccl::basics::config::Config;
use crate::nccl::basics::error::{Failure, Outcome, heed_captures};
use crate::nccl::basics::kind::Kind;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::resources::Resources;
use crate::nccl::state::shared::Nccl;
use crate::nccl::wait::host::{self, Members};
use crate::sys::{NCCL_SHRINK_ABORT, NCCL_SPLIT_NOCOLOR, ncclComm_t, ncclResult_t};

/// `ncclCommSplit`.
///
/// # Safety
/// `out` is null or valid for a write until the call has ended or settled.
pub(crate) unsafe fn split(
    parent: &Arc<Comm>,
    color: i32,
    key: i32,
    out: *mut ncclComm_t,
    config: Option<Config>,
) -> Outcome<ncclResult_t> {
    group::call(|| {
        let epoch = parent.ensure_dividable()?;
        let out = Out::at(out)?;
        if color < 0 && color != NCCL_SPLIT_NOCOLOR {
            return Err(Failure::argument(format!("the color is {color}, expected 0 or more, or NCCL_SPLIT_NOCOLOR")));
        }
        let all = Members::all(parent, epoch);
        let shares = parent.config.split_share;
        {
            let mut issued = lock(&parent.issued);
            issued.children += 1;
            if color != NCCL_SPLIT_NOCOLOR {
                issued.shares = shares && !parent.is_revoked();
            }
        }
        let division = Division { function: "ncclCommSplit", shares, out, config };
        let job = parent.clone();
        let run = Box::new(move || {
            let find = || find_part(&job, &all, (color, key));
            if color == NCCL_SPLIT_NOCOLOR {
                return find().map(drop).map_err(|failure| {
                    let rank = job.rank;
                    let text = format!(
                        "rank {rank} asked for no part: NCCL writes where a communicator would be: {}",
                        failure.text
                    );
                    Failure::new(failure.code, text).reported()
                });
            }
            division.make(&job, find)
        });
        group::add_job(Job { comm: parent.clone(), name: "ncclCommSplit", run })
    })
}

/// `ncclCommShrink`: `excluded` is sorted.
///
/// # Safety
/// `out` is null or valid for a write until the call has ended or settled.
pub(crate) unsafe fn shrink(
    parent: &Arc<Comm>,
    excluded: &[i32],
    out: *mut ncclComm_t,
    config: Option<Config>,
    flags: i32,
) -> Outcome<ncclResult_t> {
    group::call(|| {
        let aborts = flags & NCCL_SHRINK_ABORT as i32 != 0;
        if aborts {
            parent.interrupt();
        }
        let out = Out::at(out)?;
        let own = parent.rank as i32;
        if excluded.is_empty() || excluded.contains(&own) {
            let text = format!("rank {own} leaves out {excluded:?}, expected some ranks, and not itself");
            return Err(Failure::argument(text));
        }
        let known = |rank: &i32| usize::try_from(*rank).is_ok_and(|rank| rank < parent.size);
        if !excluded.iter().all(known) || excluded.windows(2).any(|two| two[0] == two[1]) {
            let text = format!("rank {own} of {} leaves out {excluded:?}: NCCL counts wrong", parent.size);
            return Err(Failure::argument(text).reported());
        }
        // NCCL does not count these among the children: some ranks make none.
        let epoch = parent.ensure_dividable()?;
        let ranks = (0..parent.size).filter(|&rank| !excluded.contains(&(rank as i32))).collect();
        let rest = Members { ranks, epoch };
        let shares = parent.config.shrink_share && !aborts;
        lock(&parent.issued).shares = shares && !parent.is_revoked();
        let division = Division { function: "ncclCommShrink", shares, out, config };
        let excluded: Box<[i32]> = excluded.into();
        let job = parent.clone();
        let run = Box::new(move || division.make(&job, || find_rest(&job, &rest, &excluded)));
        group::add_job(Job { comm: parent.clone(), name: "ncclCommShrink", run })
    })
}

/// A child that is to be made.
struct Division {
    function: &'static str,
    /// Whether it shares the resources of what it comes from.
    shares: bool,
    out: Out,
    config: Option<Config>,
}

impl Division {
    /// Has the child of `parent` meet those that it is with, which `find` says.
    fn make(self, parent: &Comm, find: impl FnOnce() -> Outcome<Part>) -> Outcome {
        // Nothing is shared with one that was revoked.
        let shares = self.shares && !parent.is_revoked();
        let resources = if shares { parent.resources.share() } else { Resources::default() };
        let config = self.config.unwrap_or(parent.config).overridden();
        let part = heed_captures(self.function).and_then(|()| find());
        let (rank, size) = part.as_ref().map_or((0, 1), |part| (part.rank, part.size));
        let child = Comm::new(rank, size, parent.device, config, resources);
        let outcome = part.and_then(|part| match shares {
            true => join(&child, &[part.id]),
            false => parent.resources.abort.with_child(&child.resources.abort, || join(&child, &[part.id])),
        });
        child.settle(&outcome);
        // One that has failed has a handle, too, by which it is to be aborted.
        registry::insert(&child);
        self.out.put(registry::handle(&child));
        outcome
    }
}

/// Where a rank belongs: its rank there, how many there are, and the segment in which they meet.
struct Part {
    rank: usize,
    size: usize,
    id: Id,
}

/// Learns every rank's color: those of the same one are together, in the order of their keys.
fn find_part(parent: &Comm, all: &Members, (color, key): (i32, i32)) -> Outcome<Part> {
    let words = [u64::from(color.cast_unsigned()), u64::from(key.cast_unsigned())];
    let shown = host::exchange(parent, all, Kind::Split, &words)?;
    let mut members: Vec<(i32, usize)> = shown
        .iter()
        .enumerate()
        .filter(|(_, words)| words[0] as u32 == color.cast_unsigned())
        .map(|(rank, words)| ((words[1] as u32).cast_signed(), rank))
        .collect();
    members.sort_unstable();
    let members: Vec<_> = members.into_iter().map(|(_, rank)| rank).collect();
    lead(parent, all, Kind::Split, &members, color != NCCL_SPLIT_NOCOLOR)
}

/// Those that are left without `excluded`, who do not come: NCCL does not compare whom they leave out.
fn find_rest(parent: &Comm, rest: &Members, excluded: &[i32]) -> Outcome<Part> {
    let digest =
        excluded.iter().fold(0, |digest: u64, &rank| digest.wrapping_mul(31) + u64::from(rank.cast_unsigned()));
    let shown = host::exchange(parent, rest, Kind::Shrink, &[digest])?;
    if let Some(at) = shown.iter().position(|words| words[0] != digest) {
        let (own, other) = (parent.rank, rest.ranks[at]);
        let text = format!("ranks disagree: rank {own} and rank {other} leave out other ranks in ncclCommShrink");
        return Err(Failure::usage(text).reported());
    }
    lead(parent, rest, Kind::Shrink, &rest.ranks, true)
}

/// The first of `members` makes a segment for them, and shows the way there; `joins` says whether this rank is one of them.
fn lead(parent: &Comm, all: &Members, kind: Kind, members: &[usize], joins: bool) -> Outcome<Part> {
    let rank = members.iter().position(|&rank| rank == parent.rank).unwrap_or(0);
    // A leader that cannot make a segment still shows something, or the others would wait for it.
    let made = if rank == 0 && joins { register::create::<Nccl>().map(Id::words) } else { Ok([0; 4]) };
    let shown = host::exchange(parent, all, kind, made.as_ref().unwrap_or(&[0; 4]))?;
    made.map_err(Failure::from)?;
    let leader = members.first().copied().unwrap_or(parent.rank);
    let at = all.ranks.iter().position(|&rank| rank == leader).unwrap_or(0);
    let [a, b, c, d, ..] = shown[at];
    Ok(Part { rank, size: members.len(), id: Id::from_words([a, b, c, d]) })
}
