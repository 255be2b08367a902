//! Teams: which there are, who is in them, and how their members meet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fault::Fault;
use crate::lock::{Mutex, MutexGuard};
use crate::meet::futex::Bell;
use crate::meet::meeting::{Board, Meeting, Step};
use crate::meet::segment::Segment;
use crate::meet::watch::{Deed as _, Phase, Stop, Watch};
use crate::nvshmem::basics::{Failed, Kind, Outcome, variable_number, wrong};
use crate::nvshmem::state::boot::{Activity, Boot, MAX_TEAMS, WORDS, own_part, tell_of_death};
use crate::settings::settings;
use crate::sys::{NVSHMEM_TEAM_INVALID, NVSHMEMX_ERROR_INTERNAL, nvshmem_team_config_t};
use crate::{fault, report};

/// Those that are there from the start: the world, those who share memory, a node, those of the same number on their nodes, two that
/// the library needs for itself, and those who share multicast memory.
pub(crate) const PREDEFINED: usize = 7;
/// The two that are no program's.
const INTERNAL: [usize; 2] = [4, 5];

/// A team.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) group: Group,
    pub(crate) config: nvshmem_team_config_t,
}

impl Team {
    pub(crate) fn size(&self) -> usize {
        self.group.members.len()
    }

    pub(crate) fn number(&self) -> usize {
        self.group.slot
    }
}

/// All teams that this PE is in.
#[derive(Debug)]
pub(crate) struct Teams {
    all: Mutex<Vec<Option<Arc<Team>>>>,
    /// How many the library has made of each, where switches work; under a number that no team has, those that it has not ended.
    copies: Mutex<BTreeMap<usize, usize>>,
}

impl Teams {
    /// At most so many at once.
    pub(crate) fn new(most: usize) -> Self {
        Self { all: Mutex::new(vec![None; most]), copies: Mutex::default() }
    }

    /// The team behind a handle.
    pub(crate) fn get(&self, handle: i32) -> Outcome<Arc<Team>> {
        let all = self.all.lock();
        let team = usize::try_from(handle).ok().filter(|number| !INTERNAL.contains(number));
        team.and_then(|number| all.get(number).cloned().flatten()).ok_or_else(|| {
            wrong(if handle == NVSHMEM_TEAM_INVALID {
                "the team is NVSHMEM_TEAM_INVALID, expected one that this PE is in".to_owned()
            } else {
                format!("{handle} is no team of this PE: it was destroyed, or this PE was never in it")
            })
        })
    }

    /// Puts a team in its place.
    pub(crate) fn put(&self, team: Team) -> Arc<Team> {
        let team = Arc::new(team);
        self.all.lock()[team.number()] = Some(team.clone());
        team
    }

    /// Makes the teams that go with one for which switches work: one for each block. Whether there is room for them.
    pub(crate) fn multiply(&self, slot: usize) -> bool {
        if settings().nvshmem < 3_05_00 {
            return true;
        }
        let all = self.all.lock();
        let mut copies = self.copies.lock();
        let more = variable_number("NVSHMEM_MAX_CTAS").unwrap_or(16).max(1) as usize - 1;
        copies.insert(slot, more);
        all.iter().flatten().count() + copies.values().sum::<usize>() < all.len()
    }

    /// Takes a team away.
    pub(crate) fn remove(&self, number: usize) -> Option<Arc<Team>> {
        let mut all = self.all.lock();
        let mut copies = self.copies.lock();
        if let Some(left) = copies.remove(&number).filter(|_| settings().nvshmem < 3_08_00) {
            *copies.entry(MAX_TEAMS).or_default() += left;
        }
        all.get_mut(number)?.take()
    }

    /// A bit for each number that no team of this PE has.
    pub(crate) fn free(&self) -> [u64; 2] {
        let all = self.all.lock();
        let mut bits = [0; 2];
        if all.iter().flatten().count() + self.copies.lock().values().sum::<usize>() >= all.len() {
            return bits;
        }
        let free = all.iter().enumerate().filter(|(number, team)| *number >= PREDEFINED && team.is_none());
        free.for_each(|(number, _)| bits[number / 64] |= 1 << (number % 64));
        bits
    }
}

/// The lowest number in all of these.
pub(crate) fn lowest(bits: impl IntoIterator<Item = [u64; 2]>) -> Option<usize> {
    let common = bits.into_iter().fold([u64::MAX; 2], |[a, b], [c, d]| [a & c, b & d]);
    let at = |word: usize| (common[word] != 0).then(|| 64 * word + common[word].trailing_zeros() as usize);
    at(0).or_else(|| at(1))
}

/// The members of a team. They meet each time they do something together, on the board of the team, which a later team of the same
/// number uses again.
#[derive(Debug)]
pub(crate) struct Group {
    /// The number of the team.
    pub(crate) slot: usize,
    /// Tells it from earlier teams of that number.
    tag: u32,
    /// Of this PE in the team.
    pub(crate) me: usize,
    /// By their numbers in the world.
    pub(crate) members: Vec<usize>,
    /// How often they have met.
    met: Mutex<u32>,
}

/// The board of a team: one slot of each member.
#[derive(Debug)]
struct Slots<'a> {
    segment: &'a Segment,
    slot: usize,
}

impl Board for Slots<'_> {
    const REUSED: bool = true;

    fn words(&self, member: usize) -> &[AtomicU64] {
        &own_part(self.segment, member).slots[self.slot].words
    }

    fn told(&self, from: usize, _: usize) -> &AtomicU64 {
        &own_part(self.segment, from).slots[self.slot].told
    }

    fn news(&self) -> &Bell {
        &self.segment.head().news
    }
}

/// What a member shows.
pub(crate) type Shown = [u64; WORDS];

/// A meeting, as long as its members are at it.
pub(crate) struct Turn<'a> {
    group: &'a Group,
    boot: &'a Boot,
    activity: Activity,
    meeting: Meeting<Slots<'a>>,
    cancelled: Option<&'a dyn Fn() -> bool>,
    /// What the members show, in their order.
    pub(crate) shown: Vec<Shown>,
    _met: MutexGuard<'a, u32>,
}

impl Group {
    pub(crate) fn new(slot: usize, tag: u32, me: usize, members: Vec<usize>) -> Self {
        Self { slot, tag, me, members, met: Mutex::new(0) }
    }

    fn wait(
        &self,
        boot: &Boot,
        meeting: &Meeting<Slots<'_>>,
        step: Step,
        activity: Activity,
        cancelled: Option<&dyn Fn() -> bool>,
    ) -> Result<(), Failed> {
        let mut watch = None;
        let look = || {
            let new = || Watch::new(boot, &boot.segment, activity, cancelled).among(&self.members);
            let missing = |pe: usize| meeting.missing(pe, step);
            let stop = watch.get_or_insert_with(new).check(missing);
            if stop.is_none() {
                // In this order: who has come may leave, and its process end, between the two looks.
                let dead = |&&pe: &&usize| boot.segment.rank(pe).dead() && missing(pe);
                self.members.iter().filter(dead).for_each(|&pe| tell_of_death(boot, pe, &activity));
            }
            stop
        };
        meeting.wait(step, look).map_err(|stop| stopped(boot, stop, &activity))
    }

    /// Comes, with words for the others, and waits for all of them. Whatever they meet for, they must agree about `activity.kind`.
    pub(crate) fn meet<'a>(
        &'a self,
        boot: &'a Boot,
        activity: Activity,
        words: &[u64],
        cancelled: Option<&'a dyn Fn() -> bool>,
    ) -> Result<Turn<'a>, Failed> {
        if !matches!(activity.kind, Kind::Init | Kind::Finalize) {
            let number = boot.operations.fetch_add(1, Ordering::Relaxed) + 1;
            suffer_fault(boot, number, &activity, cancelled);
        }
        let mut met = match self.met.try_lock() {
            Some(met) => met,
            None => {
                report::violation(format!(
                    "PE {}: {} while another call of team {} is under way, expected one after the other",
                    boot.me,
                    activity.kind.name(),
                    self.slot
                ));
                self.met.lock()
            }
        };
        *met += 1;
        let number = *met;
        let activity = Activity { team: self.slot as u32, number: u64::from(number), ..activity };
        let board = Slots { segment: &boot.segment, slot: self.slot };
        let meeting = Meeting::of_group(board, boot.me, &self.members, self.tag, number);
        // The first meeting has none before it: slots may tell of a team that is no more.
        if number > 1 {
            self.wait(boot, &meeting, Step::Before, activity, cancelled)?;
        }
        let unused = std::iter::repeat(0);
        meeting.show(std::iter::once(activity.kind as u64).chain(words.iter().copied()).chain(unused));
        self.wait(boot, &meeting, Step::Shows, activity, cancelled)?;
        let shown = self.members.iter().map(|&pe| meeting.shown(pe)).collect();
        let turn = Turn { group: self, boot, activity, meeting, cancelled, shown, _met: met };
        turn.agree()?;
        Ok(turn)
    }
}

impl Turn<'_> {
    /// Whether all have called the same.
    fn agree(&self) -> Result<(), Failed> {
        let mine = self.activity.kind;
        let other = self.shown.iter().position(|words| words[0] != mine as u64);
        other.map_or(Ok(()), |other| {
            let theirs = Kind::from_code(self.shown[other][0]).map_or("nothing", Kind::name);
            Err(wrong(format!(
                "PE {} calls {}, and PE {} {theirs}, as call #{} of team {}: expected the same on all",
                self.boot.me,
                mine.name(),
                self.group.members[other],
                self.activity.number,
                self.group.slot
            )))
        })
    }

    /// Whether all show the same as word number `at`, which is the `what` of the call.
    pub(crate) fn same(&self, at: usize, what: &str) -> Result<(), Failed> {
        let mine = self.shown[self.group.me][at];
        let other = self.shown.iter().position(|words| words[at] != mine);
        other.map_or(Ok(()), |other| {
            Err(wrong(format!(
                "{}: the {what} is {mine} on PE {}, and {} on PE {}: expected the same on all",
                self.activity.kind.name(),
                self.boot.me,
                self.shown[other][at],
                self.group.members[other]
            )))
        })
    }

    /// Waits until all members have done what they met for.
    pub(crate) fn end(self) -> Result<(), Failed> {
        self.meeting.come(Step::HasRead);
        self.group.wait(self.boot, &self.meeting, Step::HasRead, self.activity, self.cancelled)
    }
}

impl Drop for Turn<'_> {
    /// Nobody waits for who has left.
    fn drop(&mut self) {
        self.meeting.come(Step::HasRead);
        self.activity.publish(self.boot.segment.rank(self.boot.me), Phase::Done);
    }
}

fn stopped(boot: &Boot, stop: Stop, activity: &Activity) -> Failed {
    match stop {
        Stop::Dead(peer) => {
            wrong(format!("PE {peer} has ended, and PE {} waits for it in {}", boot.me, activity.describe()))
        }
        // The device is lost: what waits on its streams ends with it.
        Stop::Aborted | Stop::Cancelled => Failed(NVSHMEMX_ERROR_INTERNAL),
    }
}

/// The exit status of a process that dies so.
const DEATH: i32 = 99;

/// Lets the fault happen that is due in front of operation `number` of this PE, if one is.
pub(crate) fn suffer_fault(boot: &Boot, number: u64, activity: &Activity, cancelled: Option<&dyn Fn() -> bool>) {
    let Some(fault) = fault::at(boot.me, number) else { return };
    let what = activity.describe();
    report::line(format!("injected by {}: {fault:?}, PE {} at operation #{number}, {what}", fault::VARIABLE, boot.me));
    match fault {
        Fault::Late(delay) => std::thread::sleep(delay),
        // SAFETY: ends the process at once, as a crash would, without running anything of it.
        Fault::Die => unsafe { libc::_exit(DEATH) },
        Fault::Hang => {
            while !cancelled.is_some_and(|cancelled| cancelled()) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // NVSHMEM has none.
        Fault::AsyncError => {}
    }
}
