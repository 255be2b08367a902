//! Grows communicators: all ranks come, and new ones that were invited.

use std::ffi::c_int;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::regroup::{Bring, regroup, shares_nothing};
use super::split::wait_idle;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::nccl::enqueue::in_group;
use crate::nccl::lifecycle::failed_call;
use crate::nccl::lifecycle::start_child::Wish;
use crate::nccl::local_ranks::growth::Open;
use crate::nccl::local_ranks::lineage::Child;
use crate::nccl::rank::helper::Helper;
use crate::nccl::rank::inner::{Inner, LOCAL_RANKS, LocalRanks};
use crate::nccl::raw::check::check;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::validate::regroup::Plan;
use crate::sys;
use crate::version::{self, Version};

/// The first version in which communicators grow.
pub(crate) const FIRST: Version = Version::new(2, 29, 2);

/// What new ranks need to join.
pub(crate) struct Invited {
    pub(crate) id: UniqueId,
    /// The key of the grown communicator, which is the same in all processes.
    pub(crate) key: UniqueId,
    pub(crate) size: usize,
    /// The name of the grown communicator.
    pub(crate) name: Name,
    /// The ranks of the grown communicator, if it is a clique.
    pub(crate) clique: Option<Arc<LocalRanks>>,
    /// Tells whether the communicator that has invited can still grow.
    pub(crate) host: Host,
    /// The configuration of the ranks that invite.
    pub(crate) config: Config,
    pub(crate) timeout: Duration,
}

/// The communicator that has invited, as a new rank of this process knows it.
#[derive(Clone)]
pub(crate) struct Host {
    id: UniqueId,
    inner: Weak<Inner>,
    local_ranks: Arc<LocalRanks>,
}

impl Host {
    /// Returns why the communicator will not grow by this invitation: it has ended before it has grown, or was revoked before all ranks
    /// had come to grow it.
    pub(crate) fn cannot_grow(&self, operation: &'static str) -> Option<Error> {
        let open = self.local_ranks.growth.get().filter(|open| open.id == self.id)?;
        let dropped = || "the communicator that has invited this rank was dropped".to_owned();
        match self.inner.upgrade() {
            Some(inner) if inner.is_suspended() => None,
            Some(inner) if open.begun => inner.ended_error(operation),
            Some(inner) => inner.refusal(operation),
            None => Some(Error::Aborted { operation, reason: dropped().into() }),
        }
    }
}

/// Checks the number of new ranks. Returns the number of all ranks of the grown communicator.
fn size_of(operation: &'static str, inner: &Inner, more: usize) -> Result<usize> {
    let most = c_int::MAX as usize - inner.size;
    if (1..=most).contains(&more) {
        return Ok(inner.size + more);
    }
    Err(Error::argument(operation, "more", format_args!("1 to {most}"), more))
}

/// Waits for the work of `members`, before one of them invites. An invitation by which they do not
/// grow stays open, and nothing else can be made of them.
pub(crate) fn approach(operation: &'static str, members: &[&Arc<Inner>]) -> Result<()> {
    in_group::outside_of_groups(operation)?;
    outside_of_host_functions(operation)?;
    version::needs(operation, FIRST)?;
    wait_idle(operation, members)
}

/// Wraps `ncclCommGetUniqueId`: invites `more` ranks, on behalf of all ranks.
pub(crate) fn invite(operation: &'static str, inner: &Arc<Inner>, more: usize) -> Result<Invited> {
    in_group::outside_of_groups(operation)?;
    outside_of_host_functions(operation)?;
    version::needs(operation, FIRST)?;
    let size = size_of(operation, inner, more)?;
    if std::env::var_os("NCCL_COMM_ID").is_some() {
        let reason = "NCCL_COMM_ID is set, with which NCCL makes no other ids".to_owned();
        return Err(Error::InvalidUsage { operation, reason });
    }
    let (guard, handle) = inner.begin_call(operation)?;
    shares_nothing(operation, inner, &guard)?;
    let mut failed = false;
    let open = inner.local_ranks.growth.invite(operation, || {
        let mut id = sys::ncclUniqueId { internal: [0; UniqueId::BYTES] };
        let asked = inner.inside(operation, || {
            // SAFETY: a live communicator during a visit, and a place for the id.
            check("ncclCommGetUniqueId", unsafe { sys::ncclCommGetUniqueId(handle, &mut id) })
        });
        asked.and_then(|asked| asked.inspect_err(|_| failed = true))?;
        Ok(Open { rank: inner.rank, id: UniqueId::from_raw(&id), more, begun: false })
    });
    let child = Child::Grown(more, guard.times(&Plan::Grow(more)));
    let key = inner.local_ranks.lineage.key(&child);
    let clique = inner.validation.in_process().map(|parent| {
        let grown = LOCAL_RANKS.by_key(&key);
        grown.set_in_process(|| parent.of_rest(size, inner.name.grown()));
        grown
    });
    drop(guard);
    // NCCL may have told some of the ranks.
    let open = open.map_err(|error| if failed { failed_call::end(&[inner], operation, error) } else { error })?;
    let (config, timeout) = (inner.local_ranks.config(), inner.timeout());
    let host = Host { id: open.id, inner: Arc::downgrade(inner), local_ranks: Arc::clone(&inner.local_ranks) };
    Ok(Invited { id: open.id, key, size, name: inner.name.grown(), clique, host, config, timeout })
}

/// Waits until `inner` has done what was enqueued, and checks whether it can grow by so many ranks,
/// as far as that is known before the others come.
pub(crate) fn ready(operation: &'static str, inner: &Arc<Inner>, more: usize) -> Result<()> {
    approach(operation, &[inner])?;
    inner.refusal(operation).map_or(Ok(()), Err)?;
    size_of(operation, inner, more)?;
    inner.local_ranks.growth.refuse(operation)?;
    shares_nothing(operation, inner, &inner.begin_call(operation)?.0)
}

/// Makes a communicator of all ranks of that of `members`, which one thread drives, and of `more`
/// ranks that were invited. `helper` is the thread of a single member, if there is one already.
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
        shares_nothing(operation, inner, &inner.begin_call(operation)?.0)?;
        let own = inner.local_ranks.growth.get().filter(|open| open.rank == inner.rank);
        if let Some(open) = own.filter(|open| open.more != more) {
            return Err(Error::argument(operation, "more", format_args!("{}, as were invited", open.more), more));
        }
        let wish = Wish::Grow { size, id: own.map(|open| open.id) };
        brings.push(Bring { wish, place: None, joins: true, config: None, helper: helper.take() });
    }
    let grown = regroup(operation, members, &Plan::Grow(more), brings)?;
    Ok(grown.into_iter().flatten().collect())
}
