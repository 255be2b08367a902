//! Making communicators of others outside of the sequence of their collectives: of some of the ranks, while nobody knows of the rest, or of
//! what was revoked.

use std::sync::Arc;

use smallvec::SmallVec;

use super::elsewhere;
use super::failed::failed;
use super::heir::Heir;
use super::split::{Ask, settle};
use crate::cuda::restoring;
use crate::deadline::backoff;
use crate::error::{Error, Result};
use crate::nccl::agree::choice::Choice;
use crate::nccl::agree::not_agreed::NotAgreed;
use crate::nccl::agree::regroup::{self, Plan, Step};
use crate::nccl::enqueue::connect::Promised;
use crate::nccl::enqueue::{connect, submit};
use crate::nccl::flight::files::Trouble;
use crate::nccl::life::abort::start_abort;
use crate::nccl::life::divide::{Part, Place, Wish, divide};
use crate::nccl::life::listener::Listener;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::state::children::Child;
use crate::nccl::state::guarded::Guarded;
use crate::nccl::state::helper::Helper;
use crate::nccl::state::household::Household;
use crate::nccl::state::inner::{Family, HOUSEHOLDS, Inner};
use crate::nccl::wait::call::Call;
use crate::nccl::wait::comparison::Comparison;
use crate::nccl::wait::departure;
use crate::nccl::wait::entry::enter_all_to_divide;

/// What one rank brings.
pub(super) struct Bring {
    pub(super) wish: Wish,
    /// What it asks for, where it will be in a part.
    pub(super) place: regroup::Place,
    /// Whether it will be in a communicator.
    pub(super) joins: bool,
    /// What that is configured with.
    pub(super) heir: Option<Heir>,
    /// Its thread, where there is one already.
    pub(super) helper: Option<Helper>,
}

impl Bring {
    /// What a rank asks for in a split.
    pub(super) fn of(ask: &Ask) -> Self {
        Self { wish: ask.wish(), place: ask.choice(), joins: ask.color.is_some(), heir: ask.heir.clone(), helper: None }
    }
}

/// Makes communicators of `members`, which one thread drives, as `plan` says. What each of them is in then.
pub(super) fn regroup(
    operation: &'static str,
    members: &[&Arc<Inner>],
    plan: &Plan,
    mut brings: Vec<Bring>,
) -> Result<Vec<Option<Arc<Inner>>>> {
    submit::outside_of_groups(operation)?;
    outside_of_host_functions(operation)?;
    let _call = Call::begin();
    // All that may be missing here, before the other ranks rely on this one.
    let helpers = members.iter().zip(&mut brings).map(|(inner, bring)| match bring.helper.take() {
        Some(helper) => Ok(helper),
        None => Helper::start(operation, inner.device),
    });
    let helpers = helpers.collect::<Result<Vec<_>>>()?;
    let grows = matches!(plan, Plan::Grow(_));
    if !grows {
        members.iter().try_for_each(|inner| inner.household.growth.refuse(operation))?;
    }
    let active: Vec<_> = members.iter().copied().filter(|inner| inner.is_active()).collect();
    settle(operation, &active)?;
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let made = restoring(|| -> Result<_, NotAgreed> {
        let mut entered = enter_all_to_divide(&refs, operation).map_err(NotAgreed::late)?;
        if grows {
            refs.iter().zip(&entered).try_for_each(|(inner, guard)| shares_nothing(operation, inner, guard))?;
        }
        let places: Vec<_> = brings.iter().map(|bring| bring.place.clone()).collect();
        let (promised, parties) = meet(operation, &refs, plan, &places)?;
        if let Some(verdict) = parties.iter().find_map(|party| regroup::dispute(party)) {
            return Err(verdict.error(operation).into());
        }
        if let Plan::Grow(more) = plan {
            members.iter().try_for_each(|inner| is_invited(operation, inner, *more))?;
        }
        let parts = members.iter().zip(&mut entered).zip(helpers).zip(brings.into_iter().zip(parties));
        let parts = parts.map(|(((inner, guard), helper), (bring, party))| {
            let times = guard.regroup(plan);
            let child = bring.joins.then(|| place_of(operation, inner, (plan, times), bring.place.as_ref(), &party));
            let child = child.transpose()?;
            Heir::keep(bring.heir.as_ref(), child.as_ref());
            let config = bring.heir.map(|heir| heir.config);
            Ok(Part { parent: Arc::clone(inner), helper, wish: bring.wish, child, config })
        });
        let parts = parts.collect::<Result<Vec<Part>>>()?;
        let apart: Vec<_> = parts.iter().filter_map(|part| Some(Arc::clone(&part.child.as_ref()?.household))).collect();
        spare(&refs, plan);
        let divided = divide(operation, parts);
        drop(promised);
        spare(&refs, &Plan::Split);
        if let Err(error) | Ok(Err(error)) = &divided {
            // Those of this process for which it went well wait for these.
            apart.iter().for_each(|household| {
                let _ = start_abort(&household.fail(error), error);
            });
        }
        if grows && matches!(divided, Ok(Ok(_))) {
            members.iter().for_each(|inner| inner.household.growth.close(inner.rank));
        }
        Ok(divided)
    });
    match made {
        // Nothing has begun: others may come still, or this one again, perhaps with another plan.
        Err(NotAgreed::Nothing(error)) => {
            Trouble::of(refs.iter().map(|inner| (*inner, &error))).write();
            Err(error)
        }
        Err(NotAgreed::InPart(error)) | Ok(Err(error)) => Err(failed(&refs, operation, error)),
        Ok(Ok(made)) => made,
    }
}

/// Refuses what NCCL gets wrong: from a split that shares until the next one that does not, it takes what a communicator has for what
/// comes of it for something that shares as well, and gives it the threads by which the ranks of the old one reach each other.
pub(super) fn shares_nothing(operation: &'static str, inner: &Inner, guard: &Guarded) -> Result<()> {
    if guard.splits == 0 || inner.household.sharers().is_none() {
        return Ok(());
    }
    let reason =
        "it shares its resources with what was split off from it, and NCCL has what it grows to use those as well"
            .to_owned();
    Err(Error::InvalidUsage { operation, reason })
}

/// Whether one of the ranks that have come has invited as many, as far as that is known here.
fn is_invited(operation: &'static str, inner: &Inner, more: usize) -> Result<()> {
    let invited = inner.household.growth.get().map(|open| open.more);
    if inner.family.is_none() || invited == Some(more) {
        return Ok(());
    }
    let expected =
        invited.map_or_else(|| "an invitation before".to_owned(), |invited| format!("{invited}, as were invited"));
    Err(Error::argument(operation, "more", expected, more))
}

/// What becomes of a communicator that grows, and which part that is, in words.
pub(super) fn grown(more: usize, times: u64) -> (Child, String) {
    let child = Child::Grown(more, times);
    let part = child.describe();
    (child, part)
}

/// All that go on together, in their order in what they come from, with their places.
pub(super) type Party = Vec<(usize, regroup::Place)>;

/// Waits until all have come that `plan` takes. The locks of `members` are held.
pub(super) fn meet<'a>(
    operation: &'static str,
    members: &[&'a Inner],
    plan: &Plan,
    places: &[regroup::Place],
) -> Result<(Promised<'a>, Vec<Party>), NotAgreed> {
    let mut promised = Promised::default();
    let mut waiting: SmallVec<[(usize, &'a Inner, &Family, Comparison); 4]> = SmallVec::new();
    let mut parties = vec![Party::new(); members.len()];
    for (at, &inner) in members.iter().enumerate() {
        match &inner.family {
            Some(family) => {
                family.ledger.presence().drive(inner.rank);
                come(family, inner, plan, &places[at]);
                waiting.push((at, inner, family, Comparison::default()));
            }
            None => match inner.checked.get() {
                Some(checked) => {
                    parties[at] = elsewhere::meet(operation, inner, checked, (plan, &places[at]), &mut promised)?;
                }
                // Ranks that do not compare meet in NCCL.
                None if inner.promise_division() => promised.add(inner),
                None => return Err(inner.dead(operation).into()),
            },
        }
    }
    let deadline = Call::deadline(members.iter().map(|inner| inner.timeout()).min().unwrap_or_default());
    let mut round = 0;
    loop {
        let mut trouble = None;
        waiting.retain(|(at, inner, family, comparison)| match family.regroup.step(inner.rank) {
            Step::Go(party) => {
                promised.add(inner);
                parties[*at] = party;
                false
            }
            Step::Differs(peer, theirs) => {
                let (rank, got) = (inner.rank, plan.against(&theirs));
                let expected = theirs.against(plan);
                trouble = Some(Error::Disagreement { operation, rank, peer, expected, got });
                true
            }
            Step::Wait(missing) => {
                if missing.is_empty() && round > 0 {
                    // All are here, and one could not be promised to go on: that may have been stopping still.
                    come(family, inner, plan, &places[*at]);
                }
                let dead = || inner.unfit(operation);
                let left = || departure::at_regroup(inner, operation, &missing, &plan.describe());
                let absent = || format!("rank {}: {}", inner.rank, plan.absent(&missing));
                comparison.waits(inner, absent);
                let late = || deadline.error(operation, absent());
                trouble = trouble.take().or_else(dead).or_else(left).or_else(|| deadline.expired().then(late));
                true
            }
        });
        if waiting.is_empty() {
            return Ok((promised, parties));
        }
        if let Some(error) = trouble {
            // Who was promised to go on meanwhile does so: others rely on it.
            let ranks: SmallVec<[usize; 4]> = waiting.iter().map(|(_, inner, ..)| inner.rank).collect();
            if waiting.first().is_none_or(|(_, _, family, _)| family.regroup.leave(&ranks)) {
                let failed = |error, one: &mut (_, _, _, Comparison)| one.3.failed(error);
                return Err(NotAgreed::late(waiting.iter_mut().fold(error, failed)));
            }
        }
        backoff(round);
        round += 1;
    }
}

/// `inner` comes with `plan`.
fn come(family: &Family, inner: &Inner, plan: &Plan, place: &regroup::Place) {
    let promise = |ranks: &[usize]| connect::promise(family, ranks, Inner::promise_division);
    family.regroup.come(inner.rank, plan, place.clone(), promise);
}

/// What NCCL does for `members` goes on without the ranks that `plan` leaves out: nobody waits for them, dead or not.
fn spare(members: &[&Inner], plan: &Plan) {
    let spared = match plan {
        Plan::Without(excluded, _) => Arc::clone(excluded),
        Plan::Split | Plan::Resume | Plan::Grow(_) => Arc::default(),
    };
    members.iter().filter_map(|inner| inner.checked.get()).for_each(|checked| checked.spare(Arc::clone(&spared)));
}

/// Where the child of `inner` belongs.
fn place_of(
    operation: &'static str,
    inner: &Inner,
    (plan, times): (&Plan, u64),
    place: Option<&Choice>,
    party: &Party,
) -> Result<Place> {
    if let Plan::Grow(more) = plan {
        let (child, part) = grown(*more, times);
        let household = HOUSEHOLDS.grown_from(&inner.household, &inner.household.lineage.key(&child));
        let family = inner.family.as_ref().map(|family| family.rest(child, inner.size + more, part));
        // Who comes is in no exchange with these.
        return Ok(Place { household, family, listener: None });
    }
    let color = |place: Option<&Choice>| place.map(|choice| choice.color);
    let child = match plan {
        Plan::Without(excluded, _) => Child::Rest(Arc::clone(excluded), times),
        Plan::Split | Plan::Resume | Plan::Grow(_) => Child::RevokedPart(times, color(place).unwrap_or(0)),
    };
    // It goes on when what it comes from ends, of which others may be dead.
    let household: Arc<Household<Inner>> = HOUSEHOLDS.part_from(&inner.household, child.clone());
    let with = party.iter().filter(|(_, theirs)| *plan != Plan::Split || color(theirs.as_ref()) == color(place));
    let part = household.part().unwrap_or_default();
    let listener = inner.checked.get().map(|checked| {
        let mut ranks: Vec<_> =
            with.clone().map(|(rank, theirs)| (theirs.as_ref().map_or(0, |choice| choice.key), *rank)).collect();
        ranks.sort_unstable();
        let ranks: Vec<_> = ranks.into_iter().map(|(_, rank)| rank).collect();
        Listener::start(operation, checked.rest(operation, &ranks, part.clone())?)
    });
    let family = inner.family.as_ref().map(|family| family.rest(child, with.count(), part));
    Ok(Place { household, family, listener: listener.transpose()? })
}

/// Whether others were told that these come, which they rely on.
#[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
pub(super) fn is_told(members: &[&Arc<Inner>]) -> bool {
    members.iter().any(|inner| inner.checked.get().is_some())
}
