//! The end of communicators in an abort, together with the other ranks of this process.
//!
//! Each gets ready on its own thread. Sharers are then freed on one of these.

use std::cmp::Reverse;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::interrupt::Interruption;
use super::{freeing, interrupt, release};
use crate::cuda;
use crate::deadline::{Deadline, backoff};
use crate::nccl::state::inner::Inner;
use crate::nccl::state::together::{Pass, Together};

/// How long those in whom nobody is wait for the others before they are stopped: who is inside may wait for them.
const SOON: Duration = Duration::from_millis(300);

/// Has `inner`, whose gate is shut, be taken down. All that end together are told so before the first is stopped: that may wait for a
/// device, and so for those of others, whose flags are not raised yet.
pub(super) fn doom(inner: &Arc<Inner>) {
    inner.household.together().doom(Arc::clone(inner));
}

/// Takes down `inner`, which was doomed, on its own thread, where each of those comes that it ends together with.
pub(crate) fn take_down(inner: &Arc<Inner>) {
    let together = inner.household.together();
    for other in together.wake() {
        other.clone().helper().run(move || take_down(&other));
    }
    let (revoked, pass) = get_ready(inner, together);
    match pass {
        Pass::All(mut condemned) => {
            let _ending = together.ending();
            // Last what the others were split off from: with the last rank of that, NCCL lets go of all before it waits for one.
            condemned.sort_unstable_by_key(|inner| Reverse(inner.id));
            free(&condemned, revoked);
        }
        Pass::Alone => free(slice::from_ref(inner), revoked),
        Pass::Taken | Pass::Wait => {}
    }
}

/// Waits until nobody is inside any of those that end together, and all were revoked if one has to be; whether `inner` was, and what it
/// may do.
fn get_ready(inner: &Arc<Inner>, together: &Together<Inner>) -> (bool, Pass<Inner>) {
    let (interruption, soon) = (Interruption::of(inner), Deadline::after(SOON));
    let have_all_revoked = || {
        if interrupt::IS_POSSIBLE {
            together.have_all_revoked(inner)
        }
    };
    // One that was revoked before has stopped, and cannot be revoked again.
    let (mut clear, mut revoked, mut must) = (false, inner.has_stopped(), false);
    if revoked {
        together.set_revoked(inner);
    }
    let mut round = 0;
    loop {
        let others = (!clear && inner.is_left()).then(|| freeing::Others::of(slice::from_ref(inner)));
        // Another rank may be locked for a moment, also by a thread that ends it. Nothing is freed without knowing who holds that up.
        if let Some(others) = others.filter(|others| others.are_known() || soon.expired()) {
            must = release::follows_registrations(inner);
            // The last sharer of each rank is freed when those of the others are: one thread cannot do that, one after the other.
            let all = together.are_shared() || release::loses_windows(inner);
            if must || all || others.may_hold_up() {
                have_all_revoked();
            }
            together.set_clear(inner);
            clear = true;
        }
        let blocks = interruption.is_due();
        if blocks {
            have_all_revoked();
        }
        // A call inside another sharer of this rank would be woken as well.
        let alone = || soon.expired() || together.are_clear(|other| other.order == inner.order);
        let is_due = blocks || (clear && (must || together.revokes(inner)) && alone());
        if interrupt::IS_POSSIBLE && is_due && !revoked {
            let _turn = inner.shared_lock().map(|lock| lock.turn());
            // Launches that NCCL knows nothing of it would not wait for. The flags of the abort stop those. Until then they use memory
            // of the other ranks, which a revoke would free.
            if blocks || inner.household.members().iter().all(|member| have_left(member)) {
                // Where it fails, an abort raises the flags again.
                let _ = interrupt::revoke(inner);
            }
            revoked = true;
            together.set_revoked(inner);
        }
        match together.pass(inner) {
            // Nothing could be stopped meanwhile.
            Pass::Wait if clear && !interrupt::IS_POSSIBLE && !together.are_shared() => return (false, Pass::Alone),
            Pass::Wait if clear && soon.expired() => have_all_revoked(),
            Pass::Wait => {}
            pass => return (revoked, pass),
        }
        backoff(round);
        round += 1;
    }
}

/// Whether nothing of `inner` is on its device that only the flags of an abort stop, which stay.
fn have_left(inner: &Inner) -> bool {
    inner.graphs.have_left().unwrap_or(true)
}

/// Aborts `condemned`, in which nobody is, and which were revoked or not.
fn free(condemned: &[Arc<Inner>], revoked: bool) {
    let stopped = revoked && condemned.iter().all(|inner| have_left(inner));
    if revoked && !stopped {
        // What is registered goes all the same: NCCL would look for it where it has freed that.
        condemned.iter().filter(|inner| release::follows_registrations(inner)).for_each(release::take_off_registered);
    }
    let revoked = stopped;
    if revoked {
        // The devices have left all of them.
        let registered = |inner: &&Arc<Inner>| release::loses_windows(inner) || release::follows_registrations(inner);
        condemned.iter().filter(registered).for_each(release::take_off_registered);
        // To free them waits for others that go on there.
        freeing::wait_for_devices(condemned, || condemned.iter().for_each(|inner| inner.set_stopped()));
    }
    let all = || {
        for inner in condemned {
            // Streams go on a thread of their device.
            let _ = cuda::settle(inner.device);
            release::abort_one(inner);
        }
    };
    if revoked { freeing::undisturbed(condemned, all) } else { all() }
}

#[cfg(all(test, gpucomm_emulator))]
#[path = "together_tests.rs"]
mod tests;
