//! Ranks of a clique that meet outside of the sequence of their collectives, to make a communicator
//! of some of them: the other ranks do not come, or it is not known how far each rank had come
//! before it was stopped.
//!
//! A rank publishes its plan. It goes on when all ranks that the plan needs have come with the same
//! plan and were all promised that they may enter NCCL, as at a [meeting](super::meeting).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ballot::Verdict;
use super::operation::{GROW, RESUME};
use super::signature::Signature;
use super::split::{self, Choice, Terms};
use crate::lock::{Mutex, MutexGuard};

/// What ranks do together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// All divide themselves in parts.
    Split,
    /// All but these, in order, go on without them, in a communicator of this configuration;
    /// `None`: of that which they have.
    Without(Arc<[usize]>, Option<Arc<Terms>>),
    /// All go on, that are suspended.
    #[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
    Resume,
    /// All go on together with so many others.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    Grow(usize),
}

impl Plan {
    /// The other ranks that it takes, of `size`.
    pub(crate) fn others(&self, rank: usize, size: usize) -> impl Iterator<Item = usize> {
        (0..size).filter(move |&other| other != rank && self.takes(other))
    }

    /// Whether it takes `rank`.
    pub(super) fn takes(&self, rank: usize) -> bool {
        match self {
            Self::Split | Self::Resume | Self::Grow(_) => true,
            Self::Without(excluded, _) => !excluded.contains(&rank),
        }
    }

    /// What is counted as one sequence: that of the same ranks, whatever their configuration.
    pub(crate) fn sequence(&self) -> Self {
        match self {
            Self::Without(excluded, _) => Self::Without(Arc::clone(excluded), None),
            other => other.clone(),
        }
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Split => "a split".to_owned(),
            Self::Resume => "a resume".to_owned(),
            Self::Grow(more) => format!("a grow by {more}"),
            Self::Without(excluded, _) => format!("a shrink without {excluded:?}"),
        }
    }

    /// The signature of a step to which all ranks come after the same number of collectives. `None` for a split or a shrink.
    pub(crate) fn signature(&self) -> Option<Signature> {
        match self {
            Self::Split | Self::Without(..) => None,
            Self::Resume => Some(Signature([u64::from(RESUME), 0, 0, 0, 0, 0])),
            Self::Grow(more) => Some(Signature([u64::from(GROW), *more as u64, 0, 0, 0, 0])),
        }
    }

    /// The same, for an error that sets it against `other`.
    pub(crate) fn against(&self, other: &Self) -> String {
        match (self, other) {
            (Self::Without(excluded, own), Self::Without(others, theirs)) if excluded == others => {
                format!("{}, with {}", self.describe(), split::against(own.as_deref(), theirs.as_deref()))
            }
            _ => self.describe(),
        }
    }
}

/// The ranks that a rank waits for.
///
/// A rank that gives up is no longer there. It is remembered here, so that an error does not say
/// that it never came.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    missing: Vec<usize>,
    /// The ranks that have been there at some time.
    came: BTreeSet<usize>,
}

impl Awaited {
    /// Notes which ranks are missing now, of these that the plan takes.
    pub(crate) fn look(&mut self, others: impl IntoIterator<Item = usize>, missing: Vec<usize>) {
        self.came.extend(others.into_iter().filter(|other| !missing.contains(other)));
        self.missing = missing;
    }

    pub(crate) fn missing(&self) -> &[usize] {
        &self.missing
    }

    /// Which ranks are missing, and which of them have given up, in words.
    pub(crate) fn describe(&self, plan: &Plan) -> String {
        let plan = plan.describe();
        let (gave_up, never): (Vec<usize>, Vec<usize>) =
            self.missing.iter().partition(|&rank| self.came.contains(rank));
        let never = match never.as_slice() {
            [] => None,
            [one] => Some(format!("rank {one} has not come to {plan}")),
            all => Some(format!("ranks {all:?} have not come to {plan}")),
        };
        let gave_up = match gave_up.as_slice() {
            [] => None,
            [one] => Some(format!("rank {one} came to {plan} and has given up")),
            all => Some(format!("ranks {all:?} came to {plan} and have given up")),
        };
        match (never, gave_up) {
            (None, None) => format!("a rank is still being stopped, in {plan}"),
            (never, gave_up) => never.into_iter().chain(gave_up).collect::<Vec<_>>().join("; "),
        }
    }
}

/// What a rank asks for in a split.
pub(crate) type Place = Option<Choice>;

/// Ranks of one part of a split, among these that go on together, that do not ask for the same
/// configuration.
pub(crate) fn dispute(party: &[(usize, Place)]) -> Option<Verdict> {
    split::dispute(party.iter().filter_map(|(rank, place)| Some((*rank, place.as_ref()?))))
}

/// What a rank that has come does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It waits for these.
    Wait(Vec<usize>),
    /// This rank has come with another plan, which takes the one that asks: neither goes on.
    Differs(usize, Plan),
    /// It goes on: all that do, with their places.
    Go(Vec<(usize, Place)>),
}

#[derive(Debug, Default)]
struct RankState {
    /// What it has come with, while it waits.
    waits: Option<(Plan, Place)>,
    /// Those with whom it was promised to go on.
    free: Option<Vec<(usize, Place)>>,
}

/// Who has come with what.
#[derive(Debug)]
pub(crate) struct Regroup(Mutex<Box<[RankState]>>);

impl Regroup {
    pub(crate) fn new(size: usize) -> Self {
        Self(Mutex::new((0..size).map(|_| RankState::default()).collect()))
    }

    fn states(&self) -> MutexGuard<'_, Box<[RankState]>> {
        self.0.lock()
    }

    /// `rank` comes with a plan that takes it. Where it is the last, all that it takes go on, if
    /// `promise` says so.
    pub(crate) fn come(&self, rank: usize, plan: &Plan, place: Place, promise: impl Fn(&[usize]) -> bool) {
        let mut states = self.states();
        if states[rank].free.is_some() {
            return;
        }
        states[rank].waits = Some((plan.clone(), place));
        let with = |state: &RankState| {
            state.waits.as_ref().filter(|(theirs, _)| theirs == plan).map(|(_, place)| place.clone())
        };
        let party: Option<Vec<_>> =
            (0..states.len()).filter(|&one| plan.takes(one)).map(|one| Some((one, with(&states[one])?))).collect();
        let Some(party) = party else { return };
        if promise(&party.iter().map(|(one, _)| *one).collect::<Vec<_>>()) {
            for &(one, _) in &party {
                states[one].waits = None;
                states[one].free = Some(party.clone());
            }
        }
    }

    /// What `rank` does next, which has come.
    pub(crate) fn step(&self, rank: usize) -> Step {
        let mut states = self.states();
        if let Some(party) = states[rank].free.take() {
            return Step::Go(party);
        }
        let Some((plan, _)) = states[rank].waits.clone() else { return Step::Wait(Vec::new()) };
        let mut missing = Vec::new();
        for other in plan.others(rank, states.len()) {
            match &states[other].waits {
                Some((theirs, _)) if *theirs == plan => {}
                Some((theirs, _)) if theirs.takes(rank) => return Step::Differs(other, theirs.clone()),
                // It may come to this afterwards.
                _ => missing.push(other),
            }
        }
        Step::Wait(missing)
    }

    /// `ranks` wait no longer; false, and nothing, where one of them was promised to go on, which
    /// others rely on.
    #[must_use]
    pub(crate) fn leave(&self, ranks: &[usize]) -> bool {
        let mut states = self.states();
        if ranks.iter().any(|&rank| states[rank].free.is_some()) {
            return false;
        }
        ranks.iter().for_each(|&rank| states[rank].waits = None);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without<const N: usize>(ranks: [usize; N]) -> Plan {
        Plan::Without(ranks.into(), None)
    }

    fn part(color: usize) -> Choice {
        Choice { color, key: 0, terms: None }
    }

    #[test]
    fn those_that_are_left_go_on_together() {
        let regroup = Regroup::new(4);
        let plan = without([2]);
        regroup.come(0, &plan, None, |_| true);
        regroup.come(3, &plan, None, |_| true);
        assert_eq!(regroup.step(0), Step::Wait(vec![1]));
        regroup.come(1, &plan, None, |party| party == [0, 1, 3]);
        for rank in [0, 1, 3] {
            assert_eq!(regroup.step(rank), Step::Go(vec![(0, None), (1, None), (3, None)]));
            assert!(regroup.leave(&[rank]));
        }
    }

    #[test]
    fn who_wants_something_else_is_found() {
        let regroup = Regroup::new(3);
        regroup.come(0, &without([2]), None, |_| true);
        regroup.come(1, &Plan::Split, Some(part(0)), |_| true);
        assert_eq!(regroup.step(0), Step::Differs(1, Plan::Split));
        assert_eq!(regroup.step(1), Step::Differs(0, without([2])));
        assert!(regroup.leave(&[0]));
        assert_eq!(regroup.step(1), Step::Wait(vec![0, 2]));
    }

    #[test]
    fn who_does_something_else_before_is_waited_for() {
        let regroup = Regroup::new(3);
        regroup.come(0, &without([2]), None, |_| true);
        regroup.come(1, &without([0]), None, |_| true);
        assert_eq!([0, 1].map(|rank| regroup.step(rank)), [Step::Wait(vec![1]), Step::Wait(vec![2])]);
        regroup.come(2, &without([0]), None, |_| true);
        assert_eq!(regroup.step(1), Step::Go(vec![(1, None), (2, None)]));
        regroup.come(1, &without([2]), None, |_| true);
        assert_eq!(regroup.step(0), Step::Go(vec![(0, None), (1, None)]));
    }

    #[test]
    fn a_rank_that_has_given_up_is_not_said_to_have_never_come() {
        let mut awaited = Awaited::default();
        assert_eq!(awaited.describe(&Plan::Split), "a rank is still being stopped, in a split");
        awaited.look([1, 2], vec![1, 2]);
        assert_eq!(awaited.describe(&Plan::Split), "ranks [1, 2] have not come to a split");
        awaited.look([1, 2], vec![2]);
        awaited.look([1, 2], vec![1, 2]);
        let said = "rank 2 has not come to a split; rank 1 came to a split and has given up";
        assert_eq!(awaited.describe(&Plan::Split), said);
    }

    #[test]
    fn no_promise_nobody_goes() {
        let regroup = Regroup::new(2);
        regroup.come(0, &Plan::Split, Some(part(1)), |_| true);
        regroup.come(1, &Plan::Split, None, |_| false);
        assert_eq!([0, 1].map(|rank| regroup.step(rank)), [Step::Wait(vec![]), Step::Wait(vec![])]);
        // One of them tries again.
        regroup.come(1, &Plan::Split, None, |_| true);
        assert!(!regroup.leave(&[0]));
        assert_eq!(regroup.step(1), Step::Go(vec![(0, Some(part(1))), (1, None)]));
    }
}
