//! How ranks find each other.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::group::{self, Job};
use crate::cuda::core::device;
use crate::meet::register;
use crate::meet::register::Clash;
use crate::meet::segment::{Id, Segment};
use crate::meet::segment::{Life, MAX_RANKS};
use crate::meet::watch::{Deed, Phase, Stop};
use crate::nccl::basics::config::{self, Config};
use crate::nccl::basics::encryption;
use crate::nccl::basics::error::{Failure, Outcome, cuda, heed_captures};
use crate::nccl::basics::kind::Kind;
use crate::nccl::basics::unique_id;
use crate::nccl::basics::variables;
use crate::nccl::requests::order;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::resources::Resources;
use crate::nccl::state::shared::{Nccl, Shared};
use crate::nccl::wait::activity::{Activity, Watch};
use crate::nccl::wait::host::{self, Members};
use crate::sys::{ncclComm_t, ncclResult_t, ncclUniqueId};
use crate::{fault, report, settings};

/// Where a call puts the handle it makes.
#[derive(Clone, Copy)]
pub(super) struct Out(*mut ncclComm_t);

// SAFETY: the caller of the C function keeps the place valid until the call, or the group it is part of, has ended, or for
// a non-blocking communicator until it has settled. That is NCCL's rule too.
unsafe impl Send for Out {}

impl Out {
    /// The place of the caller, empty so far; an error for null.
    pub(super) fn at(out: *mut ncclComm_t) -> Outcome<Self> {
        if out.is_null() {
            return Err(Failure::argument("the place for the communicator is null"));
        }
        let out = Self(out);
        out.put(std::ptr::null_mut());
        Ok(out)
    }

    pub(super) fn put(self, handle: ncclComm_t) {
        // SAFETY: checked not to be null; see above for how long it is valid.
        unsafe { *self.0 = handle };
    }
}

/// `ncclCommInitRankConfig`, and `ncclCommInitRankScalable`: ranks meet by the first id, and come by all of them.
///
/// # Safety
/// `out` is null or valid for a write until the call has ended or settled.
pub(crate) unsafe fn init_rank(
    function: &'static str,
    out: *mut ncclComm_t,
    size: i32,
    ids: &[ncclUniqueId],
    rank: i32,
    config: Option<Config>,
) -> Outcome<ncclResult_t> {
    let out = Out::at(out)?;
    if let Some(wrong) = settings::wrong() {
        return Err(Failure::usage(wrong.to_string_lossy()));
    }
    if group::has_operations() {
        let text = "init inside a group that holds operations: was an earlier group never ended?";
        report::violation(text);
        return Err(Failure::usage(text));
    }
    if group::depth() > 0 && group::leaked() {
        report::violation("init inside a group that an ncclCommDestroy of a failed communicator left open");
    }
    encryption::check()?;
    // What fails here fails the group that it is part of, which starts nobody then.
    group::call(|| {
        let count = usize::try_from(size).ok().filter(|size| (1..=MAX_RANKS).contains(size));
        let Some(count) = count else {
            return Err(Failure::argument(format!("the number of ranks is {size}, expected 1 to {MAX_RANKS}")));
        };
        let Some(rank) = usize::try_from(rank).ok().filter(|&rank| rank < count) else {
            return Err(Failure::argument(format!("the rank is {rank}, expected 0 to {}", count - 1)));
        };
        let ordinal = device::current_device();
        // The first call of CUDA that NCCL makes, to have it started, frees nothing.
        device::start(ordinal).map_err(|error| cuda("cudaFree", error))?;
        let config = config.unwrap_or_default().overridden();
        let comm = Comm::new(rank, count, ordinal, config, Resources::default());
        registry::insert(&comm);
        // The handle is there before the ranks have met, so that a non-blocking start can be watched and aborted.
        out.put(registry::handle(&comm));
        let job = comm.clone();
        let ids: Vec<Id> = ids.iter().map(unique_id::read).collect();
        let run = Box::new(move || {
            let outcome = heed_captures(function).and_then(|()| join(&job, &ids));
            job.settle(&outcome);
            // One that has failed keeps its handle, by which it is to be aborted.
            outcome
        });
        group::add_job(Job { comm: comm.clone(), name: "ncclCommInitRank", run })
    })
}

/// Meets the other ranks in the segment that the first of `ids` leads to.
pub(super) fn join(comm: &Comm, ids: &[Id]) -> Outcome {
    if fault::on_start(comm.rank) {
        return Err(Failure::system(format!("rank {}: its start fails, as {} says", comm.rank, fault::VARIABLE)));
    }
    comm.resources.memory.take(comm.device, comm.size)?;
    let Some((&first, others)) = ids.split_first() else { return Err(Failure::argument("there is no id")) };
    let segment = register::open::<Nccl>(first)?;
    let others = others.iter().map(|id| register::open::<Nccl>(*id)).collect::<Result<Vec<_>, _>>()?;
    register::claim(&segment, comm.rank, comm.size).map_err(|clash| {
        let text = match clash {
            Clash::Size(theirs) => format!("rank {} says {} ranks, another rank {theirs}", comm.rank, comm.size),
            Clash::Twice => format!("rank {} has joined twice", comm.rank),
        };
        refuse(&segment, comm, &text)
    })?;
    let device = device::device(comm.device).map_err(|error| cuda("the device", error))?;
    if variables::switch("NCCL_SET_STACK_SIZE") == Some(true) {
        device::make_local_memory(device, order::MOST_LOCAL_MEMORY);
    }
    segment.own(comm.rank).device.store(device.number(), Ordering::Relaxed);
    let _ = comm.segment.set(segment.clone());
    register::announce(&segment, comm.rank);

    wait_for_all(comm, &segment)?;
    register::complete(&segment);
    // Who has come may have died since: as NCCL's do, all hear of all.
    let alike = comm.config.alike.map(i64::from).map(i64::cast_unsigned);
    let words: Vec<u64> = std::iter::once(digest(ids)).chain(alike).collect();
    let shown = host::exchange(comm, &Members::all(comm, 0), Kind::Init, &words)?;
    if let Some(peer) = shown.iter().position(|words| words[0] != digest(ids)) {
        return Err(Failure::unnoticed(format!(
            "rank {} and rank {peer} have other ids, or in another order: NCCL's ranks would wait for each other at different ones",
            comm.rank
        )));
    }
    let fields = config::ALIKE.iter().enumerate();
    let mut differences =
        fields.flat_map(|(at, name)| shown.iter().enumerate().map(move |(peer, words)| (at, name, peer, words)));
    if let Some((at, name, peer, words)) = differences.find(|(at, _, _, words)| words[1 + at] != alike[*at]) {
        return Err(Failure::unnoticed(format!(
            "rank {} is configured with {name} {}, and rank {peer} with {}: NCCL compares nothing, and each connects other channels",
            comm.rank,
            alike[at].cast_signed(),
            words[1 + at].cast_signed()
        )));
    }
    for other in others {
        if register::claim_place(&other, comm.rank).is_err() {
            return Err(Failure::unnoticed(format!("rank {} has joined twice, by one of several ids", comm.rank)));
        }
        register::complete(&other);
    }
    refuse_shared_devices(comm.size, &segment)?;
    if let Some(delay) = fault::on_end_of_start(comm.rank) {
        linger(comm, delay)?;
    }
    comm.start();
    Ok(())
}

/// Stays inside, though all have met, unless it is aborted.
fn linger(comm: &Comm, delay: Duration) -> Outcome {
    report::line(format!("injected by {}: the start of rank {} ends {delay:?} late", fault::VARIABLE, comm.rank));
    let until = Instant::now() + delay;
    while Instant::now() < until {
        if comm.resources.abort.is_set() {
            return Err(Failure::system(format!("rank {}: its start was aborted", comm.rank)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A number for ids in their order.
fn digest(ids: &[Id]) -> u64 {
    let mut hasher = DefaultHasher::new();
    ids.iter().for_each(|id| id.words().hash(&mut hasher));
    hasher.finish()
}

/// Refuses two ranks of one device of the machine, whatever ordinals it has in their processes.
fn refuse_shared_devices(size: usize, segment: &Segment) -> Outcome {
    if config::ranks_share_devices() {
        return Ok(());
    }
    let device = |rank: usize| segment.own(rank).device.load(Ordering::Relaxed);
    let pairs = (0..size).flat_map(|peer| (0..peer).map(move |other| (other, peer)));
    pairs.into_iter().find(|&(other, peer)| device(other) == device(peer)).map_or(Ok(()), |(other, peer)| {
        let bus = device::bus_id(device(peer));
        Err(Failure::usage(format!(
            "Duplicate GPU detected: rank {other} and rank {peer} are both on the one at {bus}"
        )))
    })
}

/// Makes init fail for every rank that waits in it.
fn refuse(segment: &Segment, comm: &Comm, text: &str) -> Failure {
    let head = segment.head();
    let complete = head.joined.load(Ordering::Acquire) == head.size.load(Ordering::Acquire);
    if !complete {
        head.refused_about[0].store(comm.rank as i32, Ordering::Relaxed);
        head.refused.store(ncclResult_t::ncclInvalidArgument.0, Ordering::Release);
        head.news.ring();
    }
    Failure::unnoticed(text)
}

fn wait_for_all(comm: &Comm, segment: &Segment) -> Outcome {
    let head = segment.head();
    let activity = Activity::new(Kind::Init, 1, 0, 0);
    let mut watch = Watch::of_host(comm, segment, activity).since(0);
    register::wait_for_all(segment, comm.size, || {
        let refused = head.refused.load(Ordering::Acquire);
        if refused != 0 {
            let about = head.refused_about[0].load(Ordering::Relaxed);
            let text = format!("the start of rank {about} contradicts that of another rank (its number, or the size)");
            return Some(Failure::new(ncclResult_t(refused), text));
        }
        match watch.check(|peer| segment.rank(peer).life() == Life::Absent)? {
            Stop::Dead(peer) => Some(Failure::remote(format!("rank {peer} died before all ranks had come"))),
            Stop::Aborted | Stop::Cancelled => {
                Some(Failure::internal(format!("rank {}: aborted while waiting for other ranks", comm.rank)))
            }
        }
    })?;
    activity.publish(segment.rank(comm.rank), Phase::Done);
    Ok(())
}
