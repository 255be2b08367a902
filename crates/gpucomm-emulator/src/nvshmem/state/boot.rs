//! The bootstrap: PEs find each other, before any of them has a device.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::deed::Activity;
use super::plan::Nvshmem;
use crate::meet::join::{self, Clash};
use crate::meet::layout::{Life, MAX_RANKS};
use crate::meet::register;
use crate::meet::segment::{Id, Segment};
use crate::meet::waits::Waits;
use crate::meet::watch::{Deed as _, Party, Phase, Watch};
use crate::nvshmem::basics::entry::{Outcome, refused, wrong};
use crate::nvshmem::basics::kind::Kind;
use crate::report;
use crate::settings::{DeadPeer, settings};
use crate::sys::{NVSHMEMX_ERROR_INTERNAL, NVSHMEMX_ERROR_INVALID_VALUE};

/// A PE among others.
#[derive(Debug)]
pub(crate) struct Boot {
    pub(crate) me: usize,
    pub(crate) size: usize,
    pub(crate) segment: Arc<Segment>,
    pub(crate) waits: Waits,
    /// How often it has met others since it has started.
    pub(crate) operations: AtomicU64,
}

impl Boot {
    /// PE `me` of `size` meets the others in the segment that `id` leads to.
    pub(crate) fn meet(me: i32, size: i32, id: Id) -> Outcome<Arc<Self>> {
        let invalid = |text: String| refused(NVSHMEMX_ERROR_INVALID_VALUE, text);
        let count = usize::try_from(size).ok().filter(|size| (1..=MAX_RANKS).contains(size));
        let Some(count) = count else {
            return Err(invalid(format!("the number of PEs is {size}, expected 1 to {MAX_RANKS}")));
        };
        let Some(me) = usize::try_from(me).ok().filter(|&me| me < count) else {
            return Err(invalid(format!("the PE is {me}, expected 0 to {}", count - 1)));
        };
        let segment = register::open::<Nvshmem>(id)
            .map_err(|trouble| refused(NVSHMEMX_ERROR_INTERNAL, format!("the bootstrap fails: {trouble:?}")))?;
        join::claim(&segment, me, count).map_err(|clash| {
            wrong(match clash {
                Clash::Size(theirs) => format!("PE {me} says {count} PEs, another one {theirs}: they wait for ever"),
                Clash::Twice => format!("there are two PEs {me}, expected one of each number: they wait for ever"),
            })
        })?;
        let boot = Arc::new(Self { me, size: count, segment, waits: Waits::default(), operations: AtomicU64::new(0) });
        join::announce(&boot.segment, me);
        boot.wait_for_all();
        register::complete(&boot.segment);
        Ok(boot)
    }

    fn wait_for_all(&self) {
        let activity = Activity { kind: Kind::Bootstrap, team: 0, number: 1, bytes: 0 };
        let mut watch = Watch::new(self, &self.segment, activity, None);
        let absent = |peer: usize| self.segment.rank(peer).life() == Life::Absent;
        // PEs wait for each other for ever, whatever becomes of one.
        let _ = join::wait_for_all(&self.segment, self.size, || {
            watch.check(absent);
            None::<()>
        });
        activity.publish(self.segment.rank(self.me), Phase::Done);
    }

    /// This PE is no more.
    pub(crate) fn leave(&self) {
        self.segment.rank(self.me).set_life(Life::Destroyed);
        self.segment.head().news.ring();
    }

    /// Something has been written into the memory of `pe`, for which it may wait.
    pub(crate) fn ring(&self, pe: usize) {
        self.segment.rank(pe).bell.ring();
    }
}

impl Party for Boot {
    type Deed = Activity;

    const NAME: &'static str = "NVSHMEM's PEs";

    fn rank(&self) -> usize {
        self.me
    }

    fn size(&self) -> usize {
        self.size
    }

    fn epoch(&self) -> u32 {
        0
    }

    fn is_stopped(&self, _: u32) -> bool {
        false
    }

    fn patience(&self) -> Option<Duration> {
        settings().deadlock
    }

    fn waits(&self) -> &Waits {
        &self.waits
    }

    fn tell_of_death(&self, peer: usize, deed: &Activity) {
        debug_assert_eq!(settings().dead_peer, DeadPeer::Told);
        tell_of_death(self, peer, deed);
    }
}

/// Says that a PE is waited for that will never come.
pub(crate) fn tell_of_death(boot: &Boot, peer: usize, activity: &Activity) {
    report::line(format!(
        "PE {peer} has ended, and PE {} waits for it in {}, as it does with NVSHMEM: for ever",
        boot.me,
        activity.describe()
    ));
}
