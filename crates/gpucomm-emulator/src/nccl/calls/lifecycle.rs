//! How a communicator is suspended, and how it ends: finalized, destroyed or aborted.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::cuda::core::{capture, device};
use crate::lock::Mutex;
use crate::meet::segment::{Life, Segment};
use crate::nccl::basics::error::{Failure, Outcome, cuda, heed_captures};
use crate::nccl::basics::graphs::Graphs;
use crate::nccl::basics::kind::Kind;
use crate::nccl::basics::variables;
use crate::nccl::calls::group;
use crate::nccl::calls::group::Job;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::resources::{Manner, Mixing};
use crate::nccl::state::shared::Shared;
use crate::nccl::wait::host;
use crate::nccl::wait::host::Members;
use crate::patience::Patience;
use crate::report;
use crate::sys::{NCCL_SUSPEND_MEM, ncclComm_t, ncclResult_t};

/// How long the threads of a rank that is revoked take to end.
const THREADS_END: Duration = Duration::from_millis(500);

/// How long an abort waits for what is running to notice it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The wait of an end for what NCCL has on its streams. Where a capture forbids it, NCCL says so in its log, and frees what kernels use.
fn wait_blindly(comm: &Comm, function: &'static str) {
    if capture::check().is_err() && comm.has_work() {
        report::violation(format!(
            "{}: rank {} still has work on its streams, which NCCL cannot wait for beside a stream capture, and does not look whether it could",
            function, comm.rank
        ));
    }
}

/// Waits until no graph has what `left` counts, however long that takes: so does NCCL, also in an abort.
fn outlast_graphs(comm: &Comm, left: impl Fn(&Segment) -> u32) {
    let (call, mut patience) = (report::call(), Patience::new());
    let left = || comm.segment().map_or(0, |segment| left(segment));
    while left() > 0 {
        patience.check(|| {
            let graphs = format!("graphs that are not destroyed have {} of its batches", left());
            format!("{call} of rank {}: {graphs}, and it", comm.rank)
        });
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The end of a rank: the last one of this process frees what all of them have, and waits for the graphs of all of them.
fn part(comm: &Arc<Comm>, life: Life) {
    comm.part(life);
    let me = std::process::id();
    let is_here = |segment: &Segment, rank: usize| segment.rank(rank).pid.load(Ordering::Acquire) == me;
    let is_last = |segment: &Segment| {
        !(0..comm.size).any(|rank| is_here(segment, rank) && segment.rank(rank).life() == Life::Joined)
    };
    let nonce = comm.segment().map_or(0, |segment| segment.nonce());
    let (rank, graphs, mixing) = (comm.rank, comm.config.graphs, Arc::clone(&comm.resources.mixing));
    let revoked = comm.is_revoked();
    PARTED.lock().push(Parted { nonce, rank, graphs, mixing, revoked });
    let left = |segment: &Segment, rank: usize| segment.own(rank).graphs.load(Ordering::Acquire);
    // NCCL waits for graphs in the first half of an end, which it leaves out for ranks that were revoked.
    let was_revoked =
        |rank: usize| PARTED.lock().iter().any(|one| (one.nonce, one.rank, one.revoked) == (nonce, rank, true));
    outlast_graphs(comm, |segment| {
        if !is_last(segment) {
            return 0;
        }
        let here = (0..comm.size).filter(|&rank| is_here(segment, rank) && !was_revoked(rank));
        here.map(|rank| left(segment, rank)).sum()
    });
    if let Some(segment) = comm.segment().ok().filter(|segment| is_last(segment)) {
        for rank in
            (0..comm.size).filter(|&rank| is_here(segment, rank) && was_revoked(rank) && left(segment, rank) > 0)
        {
            report::violation(format!(
                "rank {rank} was revoked, and is freed while graphs that are not destroyed have {} of its batches: when they are, NCCL \
                 writes into the communicator",
                left(segment, rank)
            ));
        }
    }
    if comm.segment().map_or(true, |segment| is_last(segment)) {
        let parted: Vec<_> = {
            let mut all = PARTED.lock();
            let (parted, others) = std::mem::take(&mut *all).into_iter().partition(|parted| parted.nonce == nonce);
            *all = others;
            parted
        };
        parted.iter().for_each(|parted| parted.mixing.free(parted.graphs, parted.rank));
    }
    reclaim(comm);
}

/// A rank that has ended, and is freed with the last one of its communicator in this process.
struct Parted {
    nonce: u64,
    rank: usize,
    graphs: Graphs,
    mixing: Arc<Mixing>,
    revoked: bool,
}

static PARTED: Mutex<Vec<Parted>> = Mutex::new(Vec::new());

/// `ncclCommFinalize`: waits until everything that was launched is done, and no graph has anything of it.
pub(crate) fn finalize(comm: &Arc<Comm>) -> Outcome<ncclResult_t> {
    group::call(|| {
        comm.ensure_settled()?;
        comm.begin_finalize().inspect_err(|failure| comm.refuse(failure))?;
        let job = comm.clone();
        let run = Box::new(move || {
            wait_blindly(&job, "ncclCommFinalize");
            job.drain()?;
            outlast_graphs(&job, |segment| segment.own(job.rank).graphs.load(Ordering::Acquire));
            job.let_go();
            Ok(())
        });
        group::add_job(Job { comm: comm.clone(), name: "ncclCommFinalize", run })
    })
}

/// `ncclCommDestroy`.
///
/// Where NCCL returns early it leaves the thread one group deeper than before. So does this, and says so.
pub(crate) fn destroy(handle: ncclComm_t) -> Outcome<ncclResult_t> {
    let refuse = |failure: Failure| {
        report::violation(format!(
            "ncclCommDestroy returned early and left the thread inside a group, so that its next calls are never launched; \
             a communicator that has failed must be aborted ({})",
            failure.text
        ));
        group::leak()?;
        Err(failure)
    };
    let (comm, _inside) = match registry::enter(handle, Manner::End) {
        Ok(found) => found,
        Err(failure) if registry::stale(handle) => return refuse(failure),
        Err(failure) => return Err(failure),
    };
    if let Err(failure) = comm.ensure_settled() {
        return refuse(failure);
    }
    if registry::remove(handle).is_none() {
        return Err(Failure::unnoticed("the communicator is being destroyed by another thread"));
    }
    group::call(|| {
        let job = comm.clone();
        let run = Box::new(move || {
            wait_blindly(&job, "ncclCommDestroy");
            let outcome = if job.resources.abort.is_set() || job.is_revoked() { Ok(()) } else { job.drain() };
            part(&job, Life::Destroyed);
            outcome
        });
        group::add_end(Job { comm: comm.clone(), name: "ncclCommDestroy", run })
    })?;
    Ok(ncclResult_t::ncclSuccess)
}

/// `ncclCommAbort`: ends every wait of the communicator at once, and what it still had to do at the end of the group.
pub(crate) fn abort(handle: ncclComm_t) -> Outcome<ncclResult_t> {
    let (_, _inside) = registry::enter(handle, Manner::End)?;
    let Some(comm) = registry::remove(handle) else {
        return Err(Failure::unnoticed("the communicator is being destroyed by another thread"));
    };
    comm.resources.abort.set();
    group::call(|| {
        let job = comm.clone();
        let run = Box::new(move || {
            wait_blindly(&job, "ncclCommAbort");
            let until = Instant::now() + PATIENCE;
            let busy = || job.resources.progress.running() || job.state() == ncclResult_t::ncclInProgress;
            while busy() && Instant::now() < until {
                std::thread::sleep(Duration::from_micros(100));
            }
            part(&job, Life::Aborted);
            Ok(())
        });
        group::add_end(Job { comm: comm.clone(), name: "ncclCommAbort", run })
    })?;
    Ok(ncclResult_t::ncclSuccess)
}

/// `ncclCommRevoke`: ends every wait of the communicator like an abort, waits for its streams, and frees nothing. What NCCL had marked as
/// failed, it forgets, and the stop is taken back. After that the communicator can only be divided, destroyed or aborted, and its windows
/// deregistered.
///
/// It stops the communicator in the call, and waits at the end of the group; of a communicator that does not block, on another thread.
///
/// The last of those that share their resources waits for its peers, until they have let go of this rank.
pub(crate) fn revoke(comm: &Arc<Comm>) -> Outcome<ncclResult_t> {
    group::call(|| {
        comm.begin_revoke()?;
        comm.resources.mixing.stop(comm.config.graphs, comm.rank);
        comm.resources.abort.set();
        let until = Instant::now() + PATIENCE;
        while comm.state() == ncclResult_t::ncclInProgress && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
        let job = comm.clone();
        let run = Box::new(move || {
            let progress = &job.resources.progress;
            let batches = *progress.launched.lock();
            progress.wait(batches, || false);
            // If this fails, the communicator stays stopped. Every call that asks gets the error, blocking or not.
            heed_captures("ncclCommRevoke").inspect_err(|failure| job.fail(failure))?;
            spare_mates(&job);
            // It looks once at what graphs have left, before its threads end.
            job.graph_cache.look();
            job.let_go();
            wait_for_peers(&job);
            job.end_revoke();
            Ok(())
        });
        group::add_revoke(Job { comm: comm.clone(), name: "ncclCommRevoke", run })
    })
}

/// The threads of a rank that is revoked free what it receives by, when they end: half a second later. Reports ranks of this process whose
/// graphs still write there then, as nobody has stopped them. Other processes have mapped it, and that lasts.
fn spare_mates(comm: &Comm) {
    let goes_on = |mate: &&Arc<Comm>| {
        let is_stopped = mate.is_revoked() || mate.resources.abort.is_set();
        !is_stopped && mate.resources.mixing.is_unseen(mate.config.graphs) && mate.has_work()
    };
    let begin = Instant::now();
    while let Some(mate) = registry::mates(comm).iter().find(goes_on) {
        if begin.elapsed() > THREADS_END {
            report::violation(format!(
                "rank {} is revoked while rank {}, of the same process, has a graph on its device that uses memory of the first, and is not: \
                 expected that both are",
                comm.rank, mate.rank
            ));
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

// What the last end of a communicator frees.
//
// NCCL frees all ranks of a process when the last of them is destroyed or aborted, on the thread of that call. Of each it frees pinned
// memory, which waits for the whole device of that rank: also for work of others that was enqueued there since the rank itself had ended.
// Beside a stream capture `cudaFreeHost` fails at once, and NCCL leaves the memory. Till then all of them stay connected to their peers.
//
// The last communicator that goes of those that share the resources of a rank waits for its peers, until they have let go of it.

/// Who has ended, and was not freed.
static ENDED: Mutex<Vec<Arc<Comm>>> = Mutex::new(Vec::new());

/// The wait of the last that has let go of a rank, until its peers are not connected to it any more.
pub(super) fn wait_for_peers(comm: &Comm) {
    if !comm.is_last() {
        return;
    }
    let (call, mut patience) = (report::call(), Patience::new());
    while let Some(peer) = comm.missing() {
        patience.check(|| format!("{call} of rank {}: rank {peer} is connected to it, and it", comm.rank));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// `comm` has ended: frees it and the other ranks of this process, if it is the last of them.
pub(crate) fn reclaim(comm: &Arc<Comm>) {
    let Some(segment) = comm.segment.get().filter(|_| comm.has_started()) else { return };
    let pid = std::process::id();
    let here = || (0..comm.size).filter(|&rank| segment.rank(rank).pid.load(Ordering::Acquire) == pid);
    let Some(first) = here().next() else { return };
    ENDED.lock().push(Arc::clone(comm));
    let ended = segment.own(first).ended_here.fetch_add(1, Ordering::AcqRel) + 1;
    if ended as usize != here().count() {
        return;
    }
    let is_here = |one: &mut Arc<Comm>| one.segment.get().is_some_and(|other| other.nonce() == segment.nonce());
    let freed: Vec<_> = ENDED.lock().extract_if(.., is_here).collect();
    freed.iter().for_each(|one| one.let_go());
    freed.iter().for_each(|one| wait_for_peers(one));
    freed.iter().for_each(|one| one.resources.memory.leave());
    if capture::check().is_err() {
        return;
    }
    for rank in here() {
        let number = segment.own(rank).device.load(Ordering::Relaxed);
        if let Some(device) = device::devices().iter().find(|device| device.number() == number) {
            device::wait_for_device(device);
        }
    }
}

// Communicators that give back memory for a while.
//
// As in NCCL 2.30.7: all ranks meet once before they give it back, and twice when they have it again. Nobody looks what the others asked
// for, nor whether graphs have what is given back.

/// Refuses what NCCL refuses where nobody counts memory: `NCCL_DISABLE_MEM_MANAGER`, which it reads once.
fn needs_manager(what: &str) -> Outcome {
    static DISABLED: LazyLock<bool> = LazyLock::new(|| {
        let number = |value: String| value.trim().parse::<i64>().ok();
        variables::value("NCCL_DISABLE_MEM_MANAGER").and_then(number).is_some_and(|number| number != 0)
    });
    if *DISABLED {
        Err(Failure::usage(format!("{what} is not supported: the memory manager is disabled")))
    } else {
        Ok(())
    }
}

fn check(comm: &Comm, what: &str) -> Outcome<u32> {
    needs_manager(what)?;
    if comm.resources.memory.is_shared() {
        return Err(Failure::usage(format!("{what} is not supported: rank {} shares its resources", comm.rank)));
    }
    comm.ensure_open()
}

/// `ncclCommSuspend`.
pub(crate) fn suspend(comm: &Arc<Comm>, flags: i32) -> Outcome<ncclResult_t> {
    comm.ensure_settled()?;
    group::call(|| {
        if flags.cast_unsigned() & NCCL_SUSPEND_MEM == 0 {
            // NCCL looks at no other flag.
            return Ok(());
        }
        let epoch = check(comm, "a suspend")?;
        let job = comm.clone();
        let run = Box::new(move || {
            if job.resources.memory.is_suspended() {
                return Err(Failure::usage(format!("rank {} is suspended already", job.rank)));
            }
            heed_captures("ncclCommSuspend")?;
            let failed = |error| cuda("cudaDeviceSynchronize", error);
            capture::leave(job.device).map_err(failed)?;
            device::device(job.device).map_err(failed)?.synchronize();
            host::exchange(&job, &Members::all(&job, epoch), Kind::Suspend, &[])?;
            job.resources.memory.suspend();
            Ok(())
        });
        group::add_window(Job { comm: comm.clone(), name: "ncclCommSuspend", run })
    })
}

/// `ncclCommResume`.
pub(crate) fn resume(comm: &Arc<Comm>) -> Outcome<ncclResult_t> {
    comm.ensure_settled()?;
    group::call(|| {
        let epoch = check(comm, "a resume")?;
        let job = comm.clone();
        let run = Box::new(move || {
            let memory = &job.resources.memory;
            if !memory.is_suspended() {
                return Err(Failure::usage(format!("rank {} is not suspended", job.rank)));
            }
            heed_captures("ncclCommResume")?;
            memory.resume()?;
            let all = Members::all(&job, epoch);
            host::exchange(&job, &all, Kind::Resume, &[])?;
            memory.wake();
            host::exchange(&job, &all, Kind::Resume, &[]).map(drop)
        });
        group::add_window(Job { comm: comm.clone(), name: "ncclCommResume", run })
    })
}

/// `ncclCommMemStats`.
pub(crate) fn statistic(comm: &Comm, which: u32) -> Outcome<u64> {
    comm.ensure_settled()?;
    needs_manager("ncclCommMemStats")?;
    comm.resources.memory.statistic(which)
}
