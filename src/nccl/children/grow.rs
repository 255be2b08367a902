//! Growing communicators: all ranks come, and others that were invited.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use super::regroup::{Bring, grown, regroup, shares_nothing};
use super::split::settle;
use crate::error::{Error, Result};
use crate::nccl::agree::regroup::Plan;
use crate::nccl::enqueue::submit;
use crate::nccl::life::divide::Wish;
use crate::nccl::raw::check::check;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::state::growth::Open;
use crate::nccl::state::helper::Helper;
use crate::nccl::state::inner::{Family, Inner};
use crate::sys;
use crate::version::{self, Version};

/// The first version in which communicators grow.
pub(crate) const FIRST: Version = Version::new(2, 29, 2);

/// What those need that are to come.
pub(crate) struct Invited {
    pub(crate) id: UniqueId,
    /// What the grown communicator goes by in the processes.
    pub(crate) key: UniqueId,
    pub(crate) size: usize,
    /// That of the grown communicator, where ranks compare.
    pub(crate) family: Option<Arc<Family>>,
    /// As those have it that invite.
    pub(crate) config: Config,
    pub(crate) timeout: Duration,
}

/// Checks how many ranks are to come; how many there are then.
fn size_of(operation: &'static str, inner: &Inner, more: usize) -> Result<usize> {
    let most = c_int::MAX as usize - inner.size;
    if (1..=most).contains(&more) {
        return Ok(inner.size + more);
    }
    Err(Error::argument(operation, "more", format_args!("1 to {most}"), more))
}

/// Waits until `members` have done what was enqueued, for who is going to invite. An invitation by which nobody grows stays open, and nothing
/// else can be made of them.
pub(crate) fn approach(operation: &'static str, members: &[&Arc<Inner>]) -> Result<()> {
    submit::outside_of_groups(operation)?;
    outside_of_host_functions(operation)?;
    version::needs(operation, FIRST)?;
    settle(operation, members)
}

/// Wraps `ncclCommGetUniqueId`: invites `more` ranks, in the name of all.
pub(crate) fn invite(operation: &'static str, inner: &Inner, more: usize) -> Result<Invited> {
    submit::outside_of_groups(operation)?;
    outside_of_host_functions(operation)?;
    version::needs(operation, FIRST)?;
    let size = size_of(operation, inner, more)?;
    if std::env::var_os("NCCL_COMM_ID").is_some() {
        let reason = "NCCL_COMM_ID is set, with which NCCL makes no other ids".to_owned();
        return Err(Error::InvalidUsage { operation, reason });
    }
    let (guard, handle) = inner.enter(operation)?;
    shares_nothing(operation, inner, &guard)?;
    let mut failed = false;
    let open = inner.household.growth.invite(operation, || {
        let mut id = sys::ncclUniqueId { internal: [0; UniqueId::BYTES] };
        let asked = inner.inside(operation, || {
            // SAFETY: a live communicator during a visit, and a place for the id.
            check("ncclCommGetUniqueId", unsafe { sys::ncclCommGetUniqueId(handle, &mut id) })
        });
        asked.and_then(|asked| asked.inspect_err(|_| failed = true))?;
        Ok(Open { rank: inner.rank, id: UniqueId::from_raw(&id), more })
    });
    let (child, part) = grown(more, guard.times(&Plan::Grow(more)));
    let key = inner.household.lineage.key(&child);
    let family = inner.family.as_ref().map(|family| family.rest(child, size, part));
    drop(guard);
    // NCCL may have told some of the ranks.
    let open = open.map_err(|error| if failed { submit::failed(&[inner], operation, error) } else { error })?;
    let (config, timeout) = (inner.household.config(), inner.timeout());
    Ok(Invited { id: open.id, key, size, family, config, timeout })
}

/// Waits until `inner` has done what was enqueued, and checks whether it can grow by so many, as far as that is known before the other
/// ranks come.
pub(crate) fn ready(operation: &'static str, inner: &Arc<Inner>, more: usize) -> Result<()> {
    approach(operation, &[inner])?;
    inner.refusal(operation).map_or(Ok(()), Err)?;
    size_of(operation, inner, more)?;
    inner.household.growth.refuse(operation)?;
    shares_nothing(operation, inner, &inner.enter(operation)?.0)
}

/// Makes a communicator of all ranks of that of `members`, which one thread drives, and of `more` that come by an invitation. `helper` is
/// the thread of a single member, if there is one already.
pub(crate) fn grow(
    operation: &'static str,
    members: &[&Arc<Inner>],
    more: usize,
    mut helper: Option<Helper>,
) -> Result<Vec<Arc<Inner>>> {
    version::needs(operation, FIRST)?;
    let mut brings = Vec::with_capacity(members.len());
    for inner in members {
        inner.refusal(operation).map_or(Ok(()), Err)?;
        let size = size_of(operation, inner, more)? as c_int;
        shares_nothing(operation, inner, &inner.enter(operation)?.0)?;
        let own = inner.household.growth.get().filter(|open| open.rank == inner.rank);
        if let Some(open) = own.filter(|open| open.more != more) {
            return Err(Error::argument(operation, "more", format_args!("{}, as were invited", open.more), more));
        }
        let wish = Wish::Grow { size, id: own.map(|open| open.id) };
        brings.push(Bring { wish, place: None, joins: true, heir: None, helper: helper.take() });
    }
    let grown = regroup(operation, members, &Plan::Grow(more), brings)?;
    Ok(grown.into_iter().flatten().collect())
}
