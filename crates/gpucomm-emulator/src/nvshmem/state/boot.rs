//! The bootstrap: PEs find each other, before any of them has a device, and what they keep in their segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use std::time::Duration;

use crate::meet::register;
use crate::meet::register::Clash;
use crate::meet::segment::{Id, Life, MAX_RANKS, Plan, Segment};
use crate::meet::watch::{Deed, Party, Phase, Waits, Watch};
use crate::nvshmem::basics::{Kind, Outcome, refused, wrong};
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
        register::claim(&segment, me, count).map_err(|clash| {
            wrong(match clash {
                Clash::Size(theirs) => format!("PE {me} says {count} PEs, another one {theirs}: they wait for ever"),
                Clash::Twice => format!("there are two PEs {me}, expected one of each number: they wait for ever"),
            })
        })?;
        let boot = Arc::new(Self { me, size: count, segment, waits: Waits::default(), operations: AtomicU64::new(0) });
        register::announce(&boot.segment, me);
        boot.wait_for_all();
        register::complete(&boot.segment);
        Ok(boot)
    }

    fn wait_for_all(&self) {
        let activity = Activity { kind: Kind::Bootstrap, team: 0, number: 1, bytes: 0 };
        let mut watch = Watch::new(self, &self.segment, activity, None);
        let absent = |peer: usize| self.segment.rank(peer).life() == Life::Absent;
        // PEs wait for each other for ever, whatever becomes of one.
        let _ = register::wait_for_all(&self.segment, self.size, || {
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

/// What a PE does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    pub(crate) kind: Kind,
    pub(crate) team: u32,
    /// Which one of the team, from 1.
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

impl Deed for Activity {
    fn numbers(&self) -> (u8, u32, [u64; 2]) {
        (self.kind as u8, self.team, [self.number, self.bytes])
    }

    fn from_numbers(code: u8, peer: u32, [number, bytes]: [u64; 2]) -> Option<Self> {
        Some(Self { kind: Kind::from_code(u64::from(code))?, team: peer, number, bytes })
    }

    fn describe(&self) -> String {
        let Self { kind, team, number, bytes } = self;
        match kind {
            Kind::Bootstrap | Kind::Init | Kind::Finalize => kind.name().to_owned(),
            Kind::WaitUntil => format!("wait_until on a stream, for a value at {bytes:#x}"),
            Kind::TeamInit => format!("team_init by the id {number:#x}"),
            _ if *bytes == 0 => format!("{} of team {team} (its call #{number})", kind.name()),
            _ => format!("{} of {bytes} bytes, of team {team} (its call #{number})", kind.name()),
        }
    }

    fn idle(life: Life) -> Option<&'static str> {
        match life {
            Life::Absent => Some("has not come to the start"),
            Life::Destroyed => Some("has finalized"),
            Life::Aborted => Some("has given up"),
            Life::Dead => Some("is dead"),
            Life::Joined => None,
        }
    }
}

/// The most teams that there can be at once.
pub(crate) const MAX_TEAMS: usize = 128;

/// What a member of a team shows when they meet.
pub(crate) const WORDS: usize = 11;

/// What a PE shows that makes a team by an id.
pub(crate) const JOIN_WORDS: usize = 5;

/// The plan of the segments of PEs.
#[derive(Debug)]
pub(crate) struct Nvshmem;

// SAFETY: all parts are atomics, of which every value is valid. The name is used here only.
unsafe impl Plan for Nvshmem {
    const NAME: [u8; 8] = *b"gpushmem";
    type Common = AtomicU32;
    type Own = Own;
    type Between = AtomicU32;
}

/// What a PE shows.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Own {
    /// Its device, as the machine numbers them.
    pub(crate) device: AtomicI32,
    /// How much of it is its own, in thousandths of a percent; 0 where nobody said.
    pub(crate) share: AtomicU32,
    /// Where its heap begins.
    pub(crate) heap: [AtomicU64; 4],
    /// It makes a team by an id: see `calls::teams`.
    pub(crate) join: [AtomicU64; JOIN_WORDS],
    /// How far it is in each team.
    pub(crate) slots: [Slot; MAX_TEAMS],
}

/// How far a PE is in a team.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    /// Which team, and how often it has come and gone.
    pub(crate) told: AtomicU64,
    pub(crate) words: [AtomicU64; WORDS],
}

/// What a PE shows in a segment.
pub(crate) fn own_part(segment: &Segment, pe: usize) -> &Own {
    segment.own_of::<Nvshmem>(pe)
}
