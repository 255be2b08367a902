//! Shrinking communicators: all ranks but some come, and go on without those.

use std::ffi::c_int;
use std::sync::Arc;

use super::heir::Heir;
use super::regroup::{Bring, regroup};
#[cfg(nccl_ge_2_28_7)]
use super::split::{Ask, asked_of_nccl, wanted};
use crate::error::{Error, Result};
use crate::nccl::agree::regroup::Plan;
use crate::nccl::life::divide::Wish;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::environment;
use crate::nccl::state::inner::Inner;

/// Makes a communicator of all ranks of that of `members`, which one thread drives, but `excluded`; what each of them is in then.
pub(crate) fn shrink(
    operation: &'static str,
    members: &[&Arc<Inner>],
    excluded: &[usize],
    config: Option<&Config>,
) -> Result<Vec<Option<Arc<Inner>>>> {
    let mut sorted = excluded.to_vec();
    sorted.sort_unstable();
    for inner in members {
        check(operation, inner, &sorted)?;
    }
    let heir = |inner: &&Arc<Inner>| config.map(|config| Heir::of(operation, inner, config)).transpose();
    let heirs = members.iter().map(heir).collect::<Result<Vec<_>>>()?;
    let terms = heirs.iter().flatten().next().map(|heir| Arc::clone(&heir.terms));
    let brings = heirs.into_iter().map(|heir| {
        let excluded = sorted.iter().map(|&rank| rank as c_int).collect();
        Bring { wish: Wish::Shrink { excluded }, place: None, joins: true, heir, helper: None }
    });
    regroup(operation, members, &Plan::Without(sorted.as_slice().into(), terms), brings.collect())
}

/// Refuses what NCCL refuses or takes for something else, and what this crate does not answer for.
fn check(operation: &'static str, inner: &Inner, excluded: &[usize]) -> Result<()> {
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
    if inner.is_active() && environment::shrinks_share(inner.household.shrinks_share()) {
        let reason =
            "shrinkShare is set for this communicator: revoke it before, which NCCL shares nothing with".to_owned();
        return Err(Error::InvalidUsage { operation, reason });
    }
    Ok(())
}

/// Splits what was revoked, as [`split`](super::split::split) does what is active.
#[cfg(nccl_ge_2_28_7)]
pub(crate) fn split(operation: &'static str, members: &[&Arc<Inner>], asks: &[Ask]) -> Result<Vec<Option<Arc<Inner>>>> {
    let asked = asked_of_nccl(operation, members, asks)?;
    let children = regroup(operation, members, &Plan::Split, asked.iter().map(Bring::of).collect())?;
    Ok(wanted(children, asks))
}
