//! Groups that are not launched: NCCL says how long they may take.
//!
//! A simulation launches nothing, but it has effects. NCCL connects what the collectives need that is not connected yet, for which all ranks have to come, and
//! looks at what is registered; then it forgets the tasks. So ranks agree on what they simulate, as on what they do, and meet where it
//! is the first of its kind. No memory is used, no stream, and no number of an operation.

use smallvec::SmallVec;

use super::connect;
use super::group_parts;
use super::members::{Member, in_one_order, place};
use super::submit;
use super::{launch, link};
use crate::cuda::restoring;
use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::calls::kind::Kind;
use crate::nccl::lifecycle::failed_call;
use crate::nccl::rank::gate::LockedAll;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::check::check;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::validate::connects::Connects;
use crate::nccl::validate::launch::group::before_group;
use crate::nccl::validate::operation;
use crate::nccl::wait::begin_call;
use crate::sys;
use crate::version::{Version, running_nccl};

/// The first version that keeps broadcasts where it keeps messages, until it knows whether they come from one root: only those it takes out.
const KEEPS_BROADCASTS: Version = Version::new(2, 29, 2);

/// How long `calls` may take as one group, in microseconds, as far as NCCL says so.
pub(crate) fn simulate(operation: &'static str, calls: &mut [Call<'_>]) -> Result<Option<f32>> {
    // Where there are calls, their streams say so as well.
    outside_of_host_functions(operation)?;
    calls.iter_mut().for_each(|call| call.head = operation::simulated(call.head));
    #[cfg(nccl_ge_2_31)]
    super::group_config::check_group(calls)?;
    let inners = submit::inners_of(calls);
    check_all(operation, calls, &inners)?;
    calls.iter().try_for_each(|call| call.stream.ready(call.operation))?;
    let estimated = {
        let mut locked = LockedAll::new();
        for inner in &inners {
            inner.begin_call_with(&mut locked, operation)?;
        }
        let members = inners.iter().zip(locked.values());
        let mut members: SmallVec<[_; 4]> =
            members.map(|(inner, guarded)| Member { inner, guarded, handle: inner.handle().raw() }).collect();
        restoring(|| {
            let _promised = match before_group(calls, &inners, operation)? {
                Connects::Ranks => {
                    launch::write_down_early(calls, &members);
                    // As where a group goes in parts: messages of others are connected ahead, for which there is no room here.
                    let (besides, promised) = connect::meet(calls, &inners, operation, true, &mut |parts| {
                        link::connect(parts, &mut members, operation)
                    })?;
                    submit::connect_ahead(calls, &mut members, &besides)?;
                    promised
                }
                Connects::Nothing => connect::Promised::default(),
            };
            estimate(operation, calls, &members)
        })
    };
    // The locks have been given back.
    estimated.map_err(|error| failed_call::end(&inners, operation, error))
}

/// Refuses what NCCL does not simulate: it would keep it, or do it.
fn check_all(operation: &'static str, calls: &[Call<'_>], inners: &[&Inner]) -> Result<()> {
    let refused = |reason: String| Err(Error::InvalidUsage { operation, reason });
    if let Some(call) = calls.iter().find(|call| call.kind.message().is_some() || call.kind.is_exchange()) {
        let name = operation::name(call.head);
        return refused(format!(
            "{name} is made of messages: NCCL estimates none, and would keep them for the next group"
        ));
    }
    if let Some(alone) = inners.iter().find(|inner| inner.size == 1) {
        return refused(format!("rank {} is alone: NCCL copies within the call, and estimates nothing", alone.rank));
    }
    if let Some(call) = from_several_roots(calls).filter(|_| running_nccl().map_or(true, |it| it >= KEEPS_BROADCASTS)) {
        let name = call.operation;
        return refused(format!(
            "{name} is one of broadcasts from several roots, or made of such: NCCL estimates none, and would keep them for the next group"
        ));
    }
    if group_parts::is_shared(inners) {
        return refused("communicators that share their resources start one after the other, not as one group".into());
    }
    inners.iter().try_for_each(|inner| submit::check_number(calls, inner))
}

/// One of broadcasts from several roots in one communicator of more than one rank: all_gather_v is made of such, and some an all_gather.
fn from_several_roots<'c, 'a>(calls: &'c [Call<'a>]) -> Option<&'c Call<'a>> {
    let mut roots: SmallVec<[(u64, usize); 4]> = SmallVec::new();
    calls.iter().filter(|call| call.count > 0).find(|call| match call.kind {
        Kind::AllGather => call.operations() > 1,
        Kind::Broadcast { root } => {
            let known = roots.iter().find(|(comm, _)| *comm == call.comm.id).map(|(_, root)| *root);
            if known.is_none() {
                roots.push((call.comm.id, root));
            }
            known.is_some_and(|known| known != root)
        }
        _ => false,
    })
}

fn estimate(operation: &'static str, calls: &[Call<'_>], members: &[Member<'_, '_>]) -> Result<Option<f32>> {
    let mut ordered: SmallVec<[_; 8]> = calls.iter().filter(|call| call.count > 0).collect();
    in_one_order(&mut ordered, members, |call| call.comm.id);
    let mut info = std::mem::MaybeUninit::uninit();
    // SAFETY: the shim writes the whole struct.
    let mut info = unsafe {
        sys::gpucommNcclSimInfoInit(info.as_mut_ptr());
        info.assume_init()
    };
    let nothing = info.estimatedTime;
    begin_call::begin_visits(members.iter().map(|member| member.inner), operation)?;
    // SAFETY: ended below, whatever happens in between: nothing there panics or returns.
    let mut result = check("ncclGroupStart", unsafe { sys::ncclGroupStart() });
    if result.is_ok() {
        for call in ordered {
            call.stream.make_current();
            // SAFETY: the handle is live during a visit. Nothing is launched, so no memory is read or written; it lives, and lies where
            // the ranks have agreed that it does.
            let code = unsafe { call.make(members[place(call.comm.id, members)].handle) };
            result = result.and(check(call.function(), code));
        }
        // SAFETY: this thread has opened the group above, of communicators that block; the struct was initialised. After an error NCCL
        // simulates nothing.
        result = result.and(check("ncclGroupSimulateEnd", unsafe { sys::ncclGroupSimulateEnd(&raw mut info) }));
    }
    members.iter().for_each(|member| member.inner.end_visit());
    result.map(|()| Some(info.estimatedTime).filter(|time| *time != nothing && *time >= 0.0))
}
