//! Communicators with more ranks than another: those of that, and some that come by an id.
//!
//! As in NCCL 2.30.7: who asks for the id sends it to the first and the last rank of the communicator, which read it inside their calls; the
//! others meet these over the communicator.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::group::{self, Job};
use super::init::{Out, join};
use crate::cuda::core::device;
use crate::lock::lock;
use crate::meet::futex::SLICE;
use crate::meet::layout::MAX_RANKS;
use crate::meet::register;
use crate::meet::segment::Id;
use crate::nccl::basics::config::Config;
use crate::nccl::basics::error::{Failure, Outcome, cuda, heed_captures};
use crate::nccl::basics::kind::Kind;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::resources::Resources;
use crate::nccl::state::shared::{Letter, Nccl, Shared};
use crate::nccl::wait::activity::{Activity, Watch};
use crate::nccl::wait::host::{self, Members};
use crate::sys::{ncclComm_t, ncclResult_t};

/// `ncclCommGetUniqueId`.
pub(crate) fn id(comm: &Comm) -> Outcome<Id> {
    comm.ensure_usable()?;
    if std::env::var_os("NCCL_COMM_ID").is_some() {
        return Err(Failure::usage("ncclCommGetUniqueId while NCCL_COMM_ID is set"));
    }
    let id = register::create::<Nccl>()?;
    if comm.size > 1 {
        let segment = comm.segment()?;
        let [a, b, c, d] = id.words();
        let words = [lock(&comm.issued).children + 1, a, b, c, d];
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
    let number = lock(&parent.issued).hosted + 1;
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
pub(crate) unsafe fn existing(
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
        if lock(&parent.issued).shares {
            return Err(Failure::unnoticed(format!(
                "rank {} grows though it has split off what shares its resources: NCCL has the new communicator use the threads of the old",
                parent.rank
            )));
        }
        let child = {
            let mut issued = lock(&parent.issued);
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
        let job = parent.clone();
        let run = Box::new(move || {
            let words = known.map_or([0; 4], |(_, id)| id.words());
            let shown = host::exchange(&job, &Members::all(&job, epoch), Kind::Grow, &words)?;
            let [a, b, c, d, ..] = shown[0];
            let config = config.unwrap_or(job.config).overridden();
            let child = Comm::new(job.rank, size, job.device, config, Resources::default());
            let id = Id::from_words([a, b, c, d]);
            let outcome = heed_captures("ncclCommGrow")
                .and_then(|()| job.resources.abort.with_child(&child.resources.abort, || join(&child, &[id])));
            child.settle(&outcome);
            // One that has failed has a handle, too, by which it is to be aborted.
            registry::insert(&child);
            out.put(registry::handle(&child));
            outcome
        });
        group::add_job(Job { comm: parent.clone(), name: "ncclCommGrow", run })
    })
}

/// `ncclCommGrow`, of a new rank.
///
/// # Safety
/// `out` is null or valid for a write until the call has ended or settled.
pub(crate) unsafe fn newcomer(
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
