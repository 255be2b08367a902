//! Communicators that are made of others: split, shrunk and grown.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cuda::core::device;
use crate::meet::futex::SLICE;
use crate::meet::register;
use crate::meet::segment::{Id, MAX_RANKS};
use crate::nccl::basics::config::Config;
use crate::nccl::basics::error::{Failure, Outcome, cuda, heed_captures};
use crate::nccl::basics::kind::Kind;
use crate::nccl::basics::variables;
use crate::nccl::calls::group;
use crate::nccl::calls::group::Job;
use crate::nccl::calls::init::{Out, join};
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::resources::Resources;
use crate::nccl::state::shared::{Letter, Nccl, Shared};
use crate::nccl::wait::activity::{Activity, Watch};
use crate::nccl::wait::host;
use crate::nccl::wait::host::Members;
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
            let mut issued = parent.issued.lock();
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
        parent.issued.lock().shares = shares && !parent.is_revoked();
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

// Communicators with more ranks than another: those of that, and some that come by an id.
//
// As in NCCL 2.30.7: who asks for the id sends it to the first and the last rank of the communicator, which read it inside their calls; the
// others meet these over the communicator.

/// `ncclCommGetUniqueId`.
pub(crate) fn growth_id(comm: &Comm) -> Outcome<Id> {
    comm.ensure_usable()?;
    if variables::value("NCCL_COMM_ID").is_some() {
        return Err(Failure::usage("ncclCommGetUniqueId while NCCL_COMM_ID is set"));
    }
    let id = register::create::<Nccl>()?;
    if comm.size > 1 {
        let segment = comm.segment()?;
        let [a, b, c, d] = id.words();
        let words = [comm.issued.lock().children + 1, a, b, c, d];
        for letter in &segment.common().letters {
            if letter.is_there.load(Ordering::Acquire) != 0 {
                return Err(Failure::unnoticed(format!(
                    "rank {} asks for an id though an earlier one was not used: NCCL's ranks take the wrong one",
                    comm.rank
                )));
            }
            letter.words.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
            letter.is_there.store(1, Ordering::Release);
        }
        segment.head().news.ring();
    }
    Ok(id)
}

/// Waits for the letter to this rank, inside the call.
fn read(parent: &Comm, epoch: u32, letter: &Letter) -> Outcome<(u64, Id)> {
    let segment = parent.segment()?;
    let number = parent.issued.lock().hosted + 1;
    let mut watch = Watch::of_host(parent, segment, Activity::new(Kind::Grow, number, 0, 0)).since(epoch);
    loop {
        let heard = segment.head().news.read();
        if letter.is_there.load(Ordering::Acquire) != 0 {
            let [child, a, b, c, d] = std::array::from_fn(|at| letter.words[at].load(Ordering::Relaxed));
            letter.is_there.store(0, Ordering::Release);
            return Ok((child, Id::from_words([a, b, c, d])));
        }
        match watch.check(|_| false) {
            None => segment.head().news.sleep(heard, SLICE),
            Some(_) => {
                return Err(Failure::internal(format!("rank {}: aborted while waiting in CommGrow", parent.rank)));
            }
        }
    }
}

/// What a child is to have.
fn size_of(size: i32) -> Outcome<usize> {
    let count = usize::try_from(size).ok().filter(|size| (1..=MAX_RANKS).contains(size));
    count.ok_or_else(|| Failure::argument(format!("the number of ranks is {size}, expected 1 to {MAX_RANKS}")))
}

/// `ncclCommGrow`, of a rank that there is.
///
/// # Safety
/// `out` is null or valid for a write until the call has ended or settled.
pub(crate) unsafe fn grow_existing(
    parent: &Arc<Comm>,
    size: i32,
    id: Option<Id>,
    rank: i32,
    out: *mut ncclComm_t,
    config: Option<Config>,
) -> Outcome<ncclResult_t> {
    let size = size_of(size)?;
    if size <= parent.size {
        return Err(Failure::argument(format!("{size} ranks are no more than the {} that there are", parent.size)));
    }
    let out = Out::at(out)?;
    group::call(|| {
        let epoch = parent.ensure_usable()?;
        if rank != -1 {
            return Err(Failure::argument(format!("rank {} names itself {rank}, expected -1", parent.rank)));
        }
        if parent.issued.lock().shares {
            return Err(Failure::unnoticed(format!(
                "rank {} grows though it has split off what shares its resources: NCCL has the new communicator use the threads of the old",
                parent.rank
            )));
        }
        let child = {
            let mut issued = parent.issued.lock();
            issued.children += 1;
            issued.children
        };
        let letters = &parent.segment()?.common().letters;
        let known = match parent.rank {
            0 if parent.size == 1 => {
                let missing = || Failure::unnoticed("a single rank grows without an id: NCCL waits for ever");
                Some((child, id.ok_or_else(missing)?))
            }
            0 => Some(read(parent, epoch, &letters[0])?),
            last if last + 1 == parent.size => Some(read(parent, epoch, &letters[1])?),
            _ => None,
        };
        if let Some((theirs, _)) = known.filter(|(theirs, _)| *theirs != child) {
            let text = format!("the id is for child {theirs} of the communicator, expected {child}");
            return Err(Failure::argument(text));
        }
        let config = config.unwrap_or(parent.config).overridden();
        let child = Comm::new(parent.rank, size, parent.device, config, Resources::default());
        // The handle is there before the ranks have met. It is the new communicator that blocks or does not, and that tells how the call
        // comes on, or has failed.
        registry::insert(&child);
        out.put(registry::handle(&child));
        group::stay_inside(parent)?;
        let (parent, job) = (parent.clone(), child.clone());
        let run = Box::new(move || {
            let words = known.map_or([0; 4], |(_, id)| id.words());
            let outcome =
                host::exchange(&parent, &Members::all(&parent, epoch), Kind::Grow, &words).and_then(|shown| {
                    let [a, b, c, d, ..] = shown[0];
                    heed_captures("ncclCommGrow")?;
                    let id = Id::from_words([a, b, c, d]);
                    // An abort of the parent does not end this, as that of a split or a shrink: NCCL keeps no pointer to its flag.
                    join(&job, &[id])
                });
            job.settle(&outcome);
            outcome
        });
        group::add_job(Job { comm: child, name: "ncclCommGrow", run })
    })
}

/// `ncclCommGrow`, of a new rank.
///
/// # Safety
/// `out` is null or valid for a write until the call has ended or settled.
pub(crate) unsafe fn grow_newcomer(
    size: i32,
    id: Option<Id>,
    rank: i32,
    out: *mut ncclComm_t,
    config: Option<Config>,
) -> Outcome<ncclResult_t> {
    let size = size_of(size)?;
    let out = Out::at(out)?;
    group::call(|| {
        let Some(rank) = usize::try_from(rank).ok().filter(|&rank| rank < size) else {
            return Err(Failure::argument(format!("the rank is {rank}, expected 0 to {}", size - 1)));
        };
        let id = id.ok_or_else(|| Failure::argument("a new rank comes without an id"))?;
        let ordinal = device::current_device();
        device::start(ordinal).map_err(|error| cuda("cudaFree", error))?;
        let child = Comm::new(rank, size, ordinal, config.unwrap_or_default().overridden(), Resources::default());
        registry::insert(&child);
        out.put(registry::handle(&child));
        let job = child.clone();
        let run = Box::new(move || {
            let outcome = heed_captures("ncclCommGrow").and_then(|()| join(&job, &[id]));
            job.settle(&outcome);
            outcome
        });
        group::add_job(Job { comm: child, name: "ncclCommGrow", run })
    })
}
