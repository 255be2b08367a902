//! Suspends communicators, and resumes them: NCCL gives memory back in between. All ranks come to
//! both.
//!
//! A suspend is a point in the sequence of collectives, as an allocation is. A resume is outside of
//! it: nothing else can be done then, and if a rank does not come, nothing has happened.
//!
//! NCCL waits for the whole device, and for the other ranks, and cannot be stopped. So the call
//! runs on a thread of its own, as a split does, while the caller waits. CUDA refuses to wait for a
//! device on which a stream is being captured. So no capture begins on the devices of all ranks of
//! this process meanwhile. (No other call of NCCL 2.30.7 waits for devices: the others wait for
//! streams of their own. A resume does neither.)

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use super::failed;
use super::regroup::{is_told, meet};
use super::split::wait_idle;
use crate::cuda::{self, Device, Quiet, restoring};
use crate::error::{Error, Result};
use crate::nccl::enqueue::in_group;
use crate::nccl::flight::files::Trouble;
use crate::nccl::lifecycle::abort::start_abort;
use crate::nccl::lifecycle::start_child::{deadline_of, wait};
use crate::nccl::memory::{retire, statistics};
use crate::nccl::rank::helper::Helper;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::check::check;
use crate::nccl::raw::group::grouped;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::regroup::Plan;
use crate::nccl::validate::signature::Signature;
use crate::nccl::wait::begin_call::{begin_calls, begin_calls_to_resume, begin_visits};
use crate::shared_deadline::SharedDeadline;
use crate::sys;
use crate::version;

/// Suspends `members`, which one thread drives, with these flags, because of `reason`.
pub(crate) fn suspend(operation: &'static str, members: &[&Arc<Inner>], flags: c_int, reason: &str) -> Result<()> {
    in_group::outside_of_groups(operation)?;
    let _call = SharedDeadline::begin();
    // Before the other ranks wait for this one.
    outside_of_host_functions(operation)?;
    version::needs(operation, statistics::FIRST)?;
    members.iter().try_for_each(|inner| fits(operation, inner))?;
    let devices = devices_of(members);
    Quiet::check(operation, &devices)?;
    let helper = helper_of(operation, members)?;
    wait_idle(operation, members)?;
    // Captures that are under way end before the other ranks rely on this one.
    drop(quiet(operation, members, &devices)?);
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let mut approaching = retire::approach(members, operation)?;
    let suspended = restoring(|| {
        let mut locked = begin_calls(&refs, operation)?;
        let signature = |_| Signature::suspend(flags.unsigned_abs());
        let (_, _promised) = retire::meet(&mut approaching, &mut locked, operation, signature)?;
        let _quiet = quiet(operation, members, &devices)?;
        make(operation, members, &helper, Ask::Suspend(flags))?;
        // Before the locks are given back.
        let suspend = |inner: &&Arc<Inner>| if inner.suspend(reason) { Ok(()) } else { Err(inner.dead(operation)) };
        members.iter().try_for_each(suspend).inspect_err(|error| {
            // A revoke has come meanwhile, and NCCL has suspended them already: nothing can be made of them.
            start_abort(&Inner::cliques_of(&refs), error);
        })
    });
    suspended.map_err(|error| failed(&refs, operation, false, error))
}

/// Resumes `members`, which one thread drives. If other ranks do not come in time, they stay
/// suspended.
pub(crate) fn resume(operation: &'static str, members: &[&Arc<Inner>]) -> Result<()> {
    in_group::outside_of_groups(operation)?;
    let _call = SharedDeadline::begin();
    outside_of_host_functions(operation)?;
    let helper = helper_of(operation, members)?;
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let locked = begin_calls_to_resume(&refs, operation)?;
    let resumed = restoring(|| {
        let (_promised, _) =
            meet(operation, &refs, &Plan::Resume, &vec![None; refs.len()], false).map_err(Failure::into_error)?;
        let ranks = make(operation, members, &helper, Ask::Resume)?;
        // As a start: they are about to enqueue on devices where NCCL may free others.
        let devices: Vec<_> = ranks.iter().map(|inner| inner.device).collect();
        let entered = cuda::enter_gates(operation, &devices, &deadline_of(&ranks));
        let _entered = entered.inspect_err(|late| {
            start_abort(&Inner::cliques_of(&ranks), late);
        })?;
        members.iter().try_for_each(|inner| if inner.resume() { Ok(()) } else { Err(inner.dead(operation)) })
    });
    resumed.map_err(|error| match error {
        // Nothing has begun, or the communicator has ended.
        Error::Timeout { .. } if !is_told(members) => {
            drop(locked);
            Trouble::of(refs.iter().map(|inner| (*inner, &error))).write();
            error
        }
        error => failed(&refs, operation, false, error),
    })
}

/// Refuses communicators that NCCL refuses, before other ranks wait for this one.
fn fits(operation: &'static str, inner: &Inner) -> Result<()> {
    if inner.shares_resources() {
        let reason = "it shares its resources, and NCCL gives back none of those".to_owned();
        return Err(Error::InvalidUsage { operation, reason });
    }
    statistics::of(operation, inner).map(drop)
}

/// The devices of all ranks of this process, which wait for each other inside NCCL.
fn devices_of(members: &[&Arc<Inner>]) -> Vec<Device> {
    let mut devices: Vec<_> =
        members.iter().flat_map(|inner| inner.local_ranks.ranks()).map(|inner| inner.device).collect();
    devices.extend(members.iter().map(|inner| inner.device));
    devices.sort_unstable_by_key(|device| device.ordinal());
    devices.dedup();
    devices
}

/// Waits for the captures of other threads on `devices`. As long as the result lives, no other
/// begins.
fn quiet(operation: &'static str, members: &[&Arc<Inner>], devices: &[Device]) -> Result<Quiet> {
    let timeout = members.iter().map(|inner| inner.timeout()).min().unwrap_or_default();
    let refusal = || members.iter().find_map(|inner| inner.refusal(operation));
    Quiet::keep(operation, devices, &SharedDeadline::within(timeout), refusal)
}

fn helper_of(operation: &'static str, members: &[&Arc<Inner>]) -> Result<Helper> {
    let first = members.first().ok_or_else(|| Error::argument(operation, "ranks", "one at least", 0))?;
    Helper::start(operation, first.device)
}

/// The call to make.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Suspend(c_int),
    Resume,
}

/// Wraps `ncclCommSuspend` or `ncclCommResume`, in one group for all `members`, whose locks are
/// held. Returns them.
///
/// # Errors
/// The members cannot be used any more then.
fn make(operation: &'static str, members: &[&Arc<Inner>], helper: &Helper, ask: Ask) -> Result<Vec<Arc<Inner>>> {
    begin_visits(members.iter().map(|inner| &***inner), operation)?;
    let members: Vec<_> = members.iter().copied().cloned().collect();
    let asked = Asked { members: members.clone(), ask };
    let (sender, receiver) = mpsc::sync_channel(0);
    helper.run(move || asked.run(&sender));
    wait(operation, &members, false, &receiver)?;
    Ok(members)
}

/// A call that is under way.
struct Asked {
    members: Vec<Arc<Inner>>,
    ask: Ask,
}

impl Asked {
    /// Makes the call, and reports to the caller. The thread may stay here for ever.
    fn run(self, caller: &SyncSender<Result<()>>) {
        let made = self.call();
        if caller.send(made).is_err() {
            // It waits no longer. It has aborted them before it gave back their locks, and leaves
            // the visits to this thread.
            self.members.iter().for_each(|inner| inner.end_visit());
        }
    }

    fn call(&self) -> Result<()> {
        let function = match self.ask {
            Ask::Suspend(_) => "ncclCommSuspend",
            Ask::Resume => "ncclCommResume",
        };
        let ask = |inner: &Arc<Inner>| {
            let raw = inner.handle().raw();
            let code = match self.ask {
                // SAFETY: the communicator is live during its visit, which ends after this, and
                // locked until then or aborted: nobody else uses it. Its work is done, or NCCL
                // waits for it, and nothing is launched before it is resumed.
                Ask::Suspend(flags) => unsafe { sys::ncclCommSuspend(raw, flags) },
                // SAFETY: as above; it is suspended.
                Ask::Resume => unsafe { sys::ncclCommResume(raw) },
            };
            check(function, code).map_err(|error| error.of_rank(inner.rank))
        };
        grouped(function, || self.members.iter().try_for_each(ask))
    }
}
