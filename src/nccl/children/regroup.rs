//! Makes communicators of others outside of the sequence of their collectives: without some ranks,
//! which may be dead, or of a revoked one.

use std::ffi::c_int;
use std::sync::Arc;

use smallvec::SmallVec;

use super::child_config::ChildConfig;
use super::split::{Ask, wait_idle};
#[cfg(nccl_ge_2_28_7)]
use super::split::{asked_of_nccl, wanted};
use super::{across_processes, failed};
use crate::cuda::restoring;
use crate::deadline::backoff;
use crate::error::{Error, Result};
use crate::nccl::enqueue::connect::Promised;
use crate::nccl::enqueue::{connect, in_group};
use crate::nccl::flight::files::Trouble;
use crate::nccl::lifecycle::abort::start_abort;
use crate::nccl::lifecycle::peer_listener::PeerListener;
use crate::nccl::lifecycle::start_child::{Part, Place, Wish, divide};
use crate::nccl::local_ranks::lineage::Child;
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::helper::Helper;
use crate::nccl::rank::inner::{Inner, LOCAL_RANKS};
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::environment;
use crate::nccl::validate::ballot::Verdict;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::regroup::{self, Awaited, Plan, Step};
use crate::nccl::validate::split::Choice;
use crate::nccl::wait::begin_call::begin_calls_to_divide;
use crate::nccl::wait::comparison::Comparison;
use crate::nccl::wait::left_ranks;
use crate::shared_deadline::SharedDeadline;

/// What one rank asks for.
pub(super) struct Bring {
    pub(super) wish: Wish,
    /// The part that it asks for, in a split.
    pub(super) place: regroup::Place,
    /// Whether it will be in a child.
    pub(super) joins: bool,
    /// The configuration of that communicator.
    pub(super) config: Option<ChildConfig>,
    /// The thread of the child, if there is one already.
    pub(super) helper: Option<Helper>,
}

impl Bring {
    /// What a rank asks for in a split.
    pub(super) fn of(ask: &Ask) -> Self {
        let config = ask.config.clone();
        Self { wish: ask.wish(), place: ask.choice(), joins: ask.color.is_some(), config, helper: None }
    }
}

/// Makes a communicator of all ranks of that of `members`, which one thread drives, except
/// `excluded`. Returns the child of each.
pub(crate) fn shrink(
    operation: &'static str,
    members: &[&Arc<Inner>],
    excluded: &[usize],
    config: Option<&Config>,
) -> Result<Vec<Option<Arc<Inner>>>> {
    let mut sorted = excluded.to_vec();
    sorted.sort_unstable();
    for inner in members {
        check_excluded(operation, inner, &sorted)?;
    }
    let config_of = |inner: &&Arc<Inner>| {
        config.map(|config| ChildConfig::of(operation, inner, config, inner.name.shrunk())).transpose()
    };
    let configs = members.iter().map(config_of).collect::<Result<Vec<_>>>()?;
    let terms = configs.iter().flatten().next().map(|config| Arc::clone(&config.terms));
    let brings = configs.into_iter().map(|config| {
        let excluded = sorted.iter().map(|&rank| rank as c_int).collect();
        Bring { wish: Wish::Shrink { excluded }, place: None, joins: true, config, helper: None }
    });
    regroup(operation, members, &Plan::Without(sorted.as_slice().into(), terms), brings.collect())
}

/// Refuses lists that NCCL refuses or misunderstands, and shrinks that share resources, which this
/// crate does not support.
fn check_excluded(operation: &'static str, inner: &Inner, excluded: &[usize]) -> Result<()> {
    let wrong = |expected: String, got: String| Err(Error::argument(operation, "without", expected, got));
    if excluded.is_empty() {
        return wrong("at least one rank".to_owned(), "none".to_owned());
    }
    for &rank in excluded {
        inner.check_rank(operation, "without", rank)?;
    }
    if let Some(twice) = excluded.windows(2).find(|two| two[0] == two[1]) {
        return wrong("each rank once".to_owned(), format!("rank {} twice", twice[0]));
    }
    if excluded.contains(&inner.rank) {
        return wrong(
            "other ranks, as those that are left out do not call this".to_owned(),
            format!("{}, this rank", inner.rank),
        );
    }
    if inner.is_active() && environment::shrinks_share(inner.local_ranks.shrinks_share()) {
        let reason = format!(
            "shrinkShare is set for communicator {}: revoke it before, which NCCL shares nothing with",
            inner.name
        );
        return Err(Error::InvalidUsage { operation, reason });
    }
    Ok(())
}

/// Splits a revoked communicator, as [`split`](super::split::split) does an active one.
#[cfg(nccl_ge_2_28_7)]
pub(crate) fn split_revoked(
    operation: &'static str,
    members: &[&Arc<Inner>],
    asks: &[Ask],
) -> Result<Vec<Option<Arc<Inner>>>> {
    let asked = asked_of_nccl(operation, members, asks)?;
    let children = regroup(operation, members, &Plan::Split, asked.iter().map(Bring::of).collect())?;
    Ok(wanted(children, asks))
}

/// Makes communicators of `members`, which one thread drives, as `plan` says. Returns the child of
/// each.
pub(super) fn regroup(
    operation: &'static str,
    members: &[&Arc<Inner>],
    plan: &Plan,
    mut brings: Vec<Bring>,
) -> Result<Vec<Option<Arc<Inner>>>> {
    in_group::outside_of_groups(operation)?;
    outside_of_host_functions(operation)?;
    let _call = SharedDeadline::begin();
    // Everything that may fail here comes before the other ranks rely on this one.
    let helpers = members.iter().zip(&mut brings).map(|(inner, bring)| match bring.helper.take() {
        Some(helper) => Ok(helper),
        None => Helper::start(operation, inner.device),
    });
    let helpers = helpers.collect::<Result<Vec<_>>>()?;
    let grows = matches!(plan, Plan::Grow(_));
    if !grows {
        members.iter().try_for_each(|inner| inner.local_ranks.growth.refuse(operation))?;
    }
    let active: Vec<_> = members.iter().copied().filter(|inner| inner.is_active()).collect();
    // A revoke ends the wait of a call that began before it. A revoked communicator does not grow.
    let are_active = grows || active.len() == members.len();
    wait_idle(operation, &active)?;
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let made = restoring(|| -> Result<_, Failure> {
        let mut locked = begin_calls_to_divide(&refs, operation, are_active).map_err(Failure::late_to_divide)?;
        if grows {
            refs.iter().zip(&locked).try_for_each(|(inner, guard)| shares_nothing(operation, inner, guard))?;
        }
        let places: Vec<_> = brings.iter().map(|bring| bring.place.clone()).collect();
        let (promised, parties) = meet(operation, &refs, plan, &places, are_active)?;
        if let Some(verdict) = parties.iter().find_map(|party| regroup::dispute(party)) {
            return Err(verdict.error(operation).into());
        }
        if let Plan::Grow(more) = plan {
            members.iter().try_for_each(|inner| is_invited(operation, inner, *more))?;
            members.iter().for_each(|inner| inner.local_ranks.growth.begin());
        }
        let parts = members.iter().zip(&mut locked).zip(helpers).zip(brings.into_iter().zip(parties));
        let parts = parts.map(|(((inner, guard), helper), (bring, party))| {
            let times = guard.regroup(plan);
            let child = bring.joins.then(|| place_of(operation, inner, (plan, times), &bring, &party));
            let child = child.transpose()?;
            ChildConfig::keep(bring.config.as_ref(), child.as_ref());
            let config = bring.config.map(|config| config.config);
            Ok(Part { parent: Arc::clone(inner), helper, wish: bring.wish, child, config })
        });
        let parts = parts.collect::<Result<Vec<Part>>>()?;
        let apart: Vec<_> =
            parts.iter().filter_map(|part| Some(Arc::clone(&part.child.as_ref()?.local_ranks))).collect();
        spare(&refs, plan);
        let divided = divide(operation, parts);
        drop(promised);
        spare(&refs, &Plan::Split);
        if let Err(error) | Ok(Err(error)) = &divided {
            // Ranks of this process for which the call succeeds wait for these.
            apart.iter().for_each(|local_ranks| {
                let _ = start_abort(&local_ranks.mark_failed(error), error);
            });
        }
        if grows && matches!(divided, Ok(Ok(_))) {
            members.iter().for_each(|inner| inner.local_ranks.growth.close(inner.rank));
        }
        Ok(divided)
    });
    match made {
        // Nothing has begun: the others may still come, or this one again, perhaps with another
        // plan.
        Err(Failure::Retryable(error)) => {
            Trouble::of(refs.iter().map(|inner| (*inner, &error))).write();
            Err(error)
        }
        Err(Failure::Fatal(error)) | Ok(Err(error)) => Err(failed(&refs, operation, are_active, error)),
        Ok(Ok(made)) => made,
    }
}

/// Refuses to grow a communicator that was split and shares its resources. NCCL has a bug there: it
/// has the grown one share as well, and gives it the threads by which the ranks of the old one
/// reach each other.
pub(super) fn shares_nothing(operation: &'static str, inner: &Inner, guard: &Guarded) -> Result<()> {
    if guard.splits == 0 || !inner.shares_resources() {
        return Ok(());
    }
    let reason =
        "it shares its resources with what was split off from it, and NCCL has what it grows to use those as well"
            .to_owned();
    Err(Error::InvalidUsage { operation, reason })
}

/// Returns an error if no rank of the clique has invited as many.
fn is_invited(operation: &'static str, inner: &Inner, more: usize) -> Result<()> {
    let invited = inner.local_ranks.growth.get().map(|open| open.more);
    if inner.validation.in_process().is_none() || invited == Some(more) {
        return Ok(());
    }
    let expected =
        invited.map_or_else(|| "an invitation before".to_owned(), |invited| format!("{invited}, as were invited"));
    Err(Error::argument(operation, "more", expected, more))
}

/// The ranks that are in one child, in the order of the parent, with what they ask for.
pub(super) type Party = Vec<(usize, regroup::Place)>;

/// A rank of a clique that waits for the others.
struct Waiting<'a> {
    /// Its position among the members.
    at: usize,
    inner: &'a Inner,
    in_process: &'a InProcess,
    awaited: Awaited,
    comparison: Comparison,
}

/// Waits until all ranks have come that `plan` needs. The locks of `members` are held. A revoke ends the wait if they
/// were all active when the call began.
pub(super) fn meet<'a>(
    operation: &'static str,
    members: &[&'a Inner],
    plan: &Plan,
    places: &[regroup::Place],
    are_active: bool,
) -> Result<(Promised<'a>, Vec<Party>), Failure> {
    let mut promised = Promised::default();
    let mut waiting: SmallVec<[Waiting<'a>; 4]> = SmallVec::new();
    let mut parties = vec![Party::new(); members.len()];
    for (at, &inner) in members.iter().enumerate() {
        match inner.validation.in_process() {
            Some(in_process) => {
                in_process.signatures.presence().drive(inner.rank);
                come(in_process, inner, plan, &places[at]);
                let (awaited, comparison) = Default::default();
                waiting.push(Waiting { at, inner, in_process, awaited, comparison });
            }
            None => match inner.validation.over_exchange() {
                Some(checked) => {
                    parties[at] = across_processes::meet(
                        operation,
                        inner,
                        checked,
                        (plan, &places[at]),
                        are_active,
                        &mut promised,
                    )?;
                }
                // Ranks that do not compare meet in NCCL.
                None if inner.promise_division() => promised.add(inner),
                None => return Err(inner.dead(operation).into()),
            },
        }
    }
    let deadline = SharedDeadline::within(members.iter().map(|inner| inner.timeout()).min().unwrap_or_default());
    let mut round = 0;
    loop {
        let mut trouble = None;
        waiting.retain(|Waiting { at, inner, in_process, awaited, comparison }| {
            match in_process.regroup.step(inner.rank) {
                Step::Go(party) => {
                    promised.add(inner);
                    parties[*at] = party;
                    false
                }
                Step::Differs(peer, theirs) => {
                    let verdict = Verdict::new(inner.rank, peer, theirs.against(plan), plan.against(&theirs));
                    trouble = Some(verdict.error(operation));
                    true
                }
                Step::Wait(missing) => {
                    if missing.is_empty() && round > 0 {
                        // All are here, but one could not be promised to go on: it may have been
                        // stopping.
                        come(in_process, inner, plan, &places[*at]);
                    }
                    awaited.look(plan.others(inner.rank, inner.size), missing);
                    let dead = || inner.ended_error(operation);
                    let revoked = || are_active.then(|| inner.refusal(operation)).flatten();
                    let left = || left_ranks::at_regroup(inner, operation, awaited.missing(), &plan.describe());
                    let absent = || format!("{}: {}", inner.in_words(), awaited.describe(plan));
                    comparison.waits(inner, absent);
                    let late = || deadline.error(operation, absent()).waited_by(inner.rank);
                    trouble = trouble
                        .take()
                        .or_else(dead)
                        .or_else(revoked)
                        .or_else(left)
                        .or_else(|| deadline.expired().then(late));
                    true
                }
            }
        });
        if waiting.is_empty() {
            return Ok((promised, parties));
        }
        if let Some(error) = trouble {
            // A rank that was promised to go on meanwhile does so: others rely on it.
            let ranks: SmallVec<[usize; 4]> = waiting.iter().map(|one| one.inner.rank).collect();
            if waiting.first().is_none_or(|one| one.in_process.regroup.leave(&ranks)) {
                let failed = |error, one: &mut Waiting<'_>| one.comparison.failed(error);
                return Err(Failure::late_to_divide(waiting.iter_mut().fold(error, failed)));
            }
        }
        backoff(round);
        round += 1;
    }
}

/// `inner` comes with `plan`.
fn come(in_process: &InProcess, inner: &Inner, plan: &Plan, place: &regroup::Place) {
    let promise = |ranks: &[usize]| connect::promise(inner, ranks, Inner::promise_division);
    in_process.regroup.come(inner.rank, plan, place.clone(), promise);
}

/// Notes that NCCL's work for `members` goes on without the ranks that `plan` leaves out. Nobody
/// waits for these ranks, dead or not.
fn spare(members: &[&Inner], plan: &Plan) {
    let spared = match plan {
        Plan::Without(excluded, _) => Arc::clone(excluded),
        Plan::Split | Plan::Resume | Plan::Grow(_) => Arc::default(),
    };
    members
        .iter()
        .filter_map(|inner| inner.validation.over_exchange())
        .for_each(|checked| checked.spare(Arc::clone(&spared)));
}

/// The ranks that the child of `inner` belongs to.
fn place_of(
    operation: &'static str,
    inner: &Inner,
    (plan, times): (&Plan, u64),
    bring: &Bring,
    party: &Party,
) -> Result<Place> {
    let place = bring.place.as_ref();
    let color = |place: Option<&Choice>| place.map(|choice| choice.color);
    let name = bring.config.as_ref().map(|config| config.name.clone()).unwrap_or_else(|| match plan {
        Plan::Without(..) => inner.name.shrunk(),
        Plan::Grow(_) => inner.name.grown(),
        Plan::Split | Plan::Resume => inner.name.part(color(place).unwrap_or(0)),
    });
    if let Plan::Grow(more) = plan {
        let child = Child::Grown(*more, times);
        let local_ranks = LOCAL_RANKS.join_grown(&inner.local_ranks, &inner.local_ranks.lineage.key(&child));
        if let Some(parent) = inner.validation.in_process() {
            local_ranks.set_in_process(|| parent.of_rest(inner.size + more, name.clone()));
        }
        // The new ranks are in no exchange with these.
        return Ok(Place { local_ranks, name, listener: None });
    }
    let child = match plan {
        Plan::Without(excluded, _) => Child::Rest(Arc::clone(excluded), times),
        Plan::Split | Plan::Resume | Plan::Grow(_) => Child::RevokedPart(times, color(place).unwrap_or(0)),
    };
    let with = party.iter().filter(|(_, theirs)| *plan != Plan::Split || color(theirs.as_ref()) == color(place));
    let listener = inner.validation.over_exchange().map(|checked| {
        let mut ranks: Vec<_> =
            with.clone().map(|(rank, theirs)| (theirs.as_ref().map_or(0, |choice| choice.key), *rank)).collect();
        ranks.sort_unstable();
        let ranks: Vec<_> = ranks.into_iter().map(|(_, rank)| rank).collect();
        PeerListener::start(operation, checked.rest(operation, &ranks, name.clone())?)
    });
    let listener = listener.transpose()?;
    // It lives on when the parent ends, of which ranks may be dead.
    let local_ranks = LOCAL_RANKS.join_apart(&inner.local_ranks, child);
    if let Some(parent) = inner.validation.in_process() {
        local_ranks.set_in_process(|| parent.of_rest(with.count(), name.clone()));
    }
    Ok(Place { local_ranks, name, listener })
}

/// Whether ranks of other processes know that these come, and rely on it.
#[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
pub(super) fn is_told(members: &[&Arc<Inner>]) -> bool {
    members.iter().any(|inner| inner.validation.over_exchange().is_some())
}
