//! Starts communicators that are made from others, by `ncclCommSplit`, `ncclCommShrink` or
//! `ncclCommGrow`, with a deadline.
//!
//! Such a call blocks and cannot be stopped. So it runs on the thread of a child while the caller
//! waits. All that time it is a visit to the parents, which NCCL uses.
//!
//! If the caller waits no longer, it aborts the parents, which makes the call return. (There are
//! two exceptions. NCCL wakes no thread inside a revoked parent: if a peer hangs, the thread stays
//! inside for ever. And a grow, up to 2.30.7 at least, does not look at its parent: a rank that
//! waits for a new one is inside until that comes.) The caller leaves the rest to the thread: it
//! ends the visit, and aborts the children if there are any after all. It does so after the parents
//! have ended: a parent keeps a pointer into a child whose start has failed, and uses it in its own
//! abort. A parent that shares its resources with the child does not, and ends after the child.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;
use std::{slice, thread};

use super::abort::start_abort;
use super::peer_listener::PeerListener;
use super::start::{LOOK, admit, nothing};
use crate::deadline::Deadline;
use crate::error::{Cause, Error, Result};
use crate::name::Name;
use crate::nccl::rank::gate::Lock;
use crate::nccl::rank::helper::Helper;
use crate::nccl::rank::inner::{Inner, LocalRanks, Parts, next_id};
use crate::nccl::raw::check::check;
use crate::nccl::raw::group::grouped;
use crate::nccl::raw::handle::Handle;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::wait::begin_call::begin_visits;
use crate::nccl::wait::explanation;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// What one rank asks NCCL for.
#[derive(Debug, Clone)]
pub(crate) enum Wish {
    /// To be in the part of this color, in the order of the keys.
    Split { color: c_int, key: c_int },
    /// To go on without these ranks.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    Shrink { excluded: Vec<c_int> },
    /// To be among so many ranks. The rank that has invited the new ones passes the id.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    Grow { size: c_int, id: Option<UniqueId> },
}

impl Wish {
    fn function(&self) -> &'static str {
        match self {
            Self::Split { .. } => "ncclCommSplit",
            Self::Shrink { .. } => "ncclCommShrink",
            Self::Grow { .. } => "ncclCommGrow",
        }
    }
}

/// How long a call that NCCL does not leave after a revoke may take from then on.
const REVOKED: Duration = Duration::from_secs(1);

/// One rank of a communicator that asks for a child.
pub(crate) struct Part {
    pub(crate) parent: Arc<Inner>,
    pub(crate) helper: Helper,
    pub(crate) wish: Wish,
    /// `None` for a rank that will be in no part.
    pub(crate) child: Option<Place>,
    /// The configuration of the child, which its `local_ranks` keep; `None`: that of the parent.
    pub(crate) config: Option<Arc<Config>>,
}

/// The ranks that a child belongs to.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) local_ranks: Arc<LocalRanks>,
    /// The name of the child.
    pub(crate) name: Name,
    /// What the ranks of other processes say, if the communicator is checked.
    pub(crate) listener: Option<PeerListener>,
}

/// A child that NCCL has made.
#[derive(Clone, Copy)]
struct Born {
    handle: Handle,
    rank: usize,
    size: usize,
}

/// Wraps `ncclCommSplit`, `ncclCommShrink` or `ncclCommGrow`, in one group for all `parts`, whose
/// parents are locked.
///
/// # Errors
/// The outer error is of the parents, which cannot be used any more. The inner one is of a child
/// that has ended already.
pub(crate) fn divide(operation: &'static str, parts: Vec<Part>) -> Result<Result<Vec<Option<Arc<Inner>>>>> {
    let mut helpers = Vec::with_capacity(parts.len());
    let mut asked = Vec::with_capacity(parts.len());
    for Part { parent, helper, wish, child, config } in parts {
        helpers.push(helper);
        asked.push(Asked { parent, wish, child, config, handle: Handle(ptr::null_mut()) });
    }
    let parents: Vec<_> = asked.iter().map(|one| Arc::clone(&one.parent)).collect();
    let places: Vec<_> = asked.iter().map(|one| one.child.clone()).collect();
    // NCCL hears of no revoke within a grow.
    let is_deaf = asked.iter().any(|one| matches!(one.wish, Wish::Grow { .. }));
    let division = Division(asked);
    begin_visits(parents.iter().map(|parent| &**parent), operation)?;
    let (sender, receiver) = mpsc::sync_channel(0);
    if let Some(helper) = helpers.first() {
        helper.run(move || division.run(&sender));
    }
    let born = wait(operation, &parents, is_deaf, &receiver)?;
    let deadline = deadline_of(&parents);
    let mut children = Vec::with_capacity(parents.len());
    let mut admitted = Ok(());
    for ((parent, helper), (place, born)) in parents.iter().zip(helpers).zip(places.into_iter().zip(born)) {
        let child = place.zip(born).map(|(place, born)| child_of(parent, helper, place, born));
        if let Some(child) = &child {
            let found = admit(operation, slice::from_ref(child), &child.local_ranks, &deadline);
            admitted = admitted.and(found);
        }
        children.push(child);
    }
    Ok(match admitted {
        Ok(()) => Ok(children),
        Err(error) => {
            start_abort(&children.into_iter().flatten().collect::<Vec<_>>(), &error);
            Err(error)
        }
    })
}

/// The deadline of the call that is under way on `parents`.
pub(crate) fn deadline_of(parents: &[Arc<Inner>]) -> Deadline {
    SharedDeadline::within(parents.iter().map(|parent| parent.timeout()).min().unwrap_or_default())
}

/// Waits for a call inside `parents` that another thread makes, and ends their visits if it returns
/// in time. Aborts them if it does not, or if NCCL hears of no revoke within the call (`is_deaf`) and it
/// does not return soon after one.
pub(crate) fn wait<T>(
    operation: &'static str,
    parents: &[Arc<Inner>],
    is_deaf: bool,
    split: &Receiver<Result<T>>,
) -> Result<T> {
    let deadline = deadline_of(parents);
    let mut revoked: Option<Deadline> = None;
    loop {
        let ended = match split.recv_timeout(deadline.remaining().min(LOOK)) {
            Ok(born) => {
                parents.iter().for_each(|parent| parent.end_visit());
                return born;
            }
            Err(RecvTimeoutError::Disconnected) => Some(nothing(operation)),
            Err(RecvTimeoutError::Timeout) => parents
                .iter()
                .find_map(|parent| parent.stayed_inside(operation).or_else(|| parent.ended_error(operation))),
        };
        let refusal = parents.iter().filter(|_| is_deaf).find_map(|parent| parent.refusal(operation));
        if let Some(error) = refusal.filter(|_| revoked.get_or_insert(Deadline::after(REVOKED)).expired()) {
            let reason = format!("NCCL has not left a call that does not end with a revoke: {error}");
            let reason = Cause::because(reason, error.clone());
            start_abort(&Inner::cliques_of(parents), &Error::Aborted { operation, reason });
            return Err(error);
        }
        let late = || {
            let inside: Vec<_> =
                parents.iter().map(|parent| explanation::stays_inside(parent, parent.visit())).collect();
            let late = deadline.error(operation, inside.join("; "));
            if let [parent] = parents { late.waited_by(parent.rank) } else { late }
        };
        if let Some(error) = ended.or_else(|| deadline.expired().then(late)) {
            // Before the locks are given back: no thread begins a visit beside the one that goes
            // on.
            start_abort(&Inner::cliques_of(parents), &error);
            return Err(error);
        }
    }
}

/// A child of `parent`, with all that it inherits.
fn child_of(parent: &Inner, helper: Helper, place: Place, born: Born) -> Arc<Inner> {
    let Place { local_ranks, name, listener } = place;
    let config = local_ranks.config();
    let lock = match local_ranks.is_within(&parent.local_ranks) {
        true => parent.shared_lock().cloned(),
        // It lives on without its parent, and shares with its own parts only.
        false => parent.shared_lock().map(|_| Lock::new(next_id())),
    };
    let Born { handle, rank, size } = born;
    let child = Inner::new(Parts {
        handle,
        name,
        rank,
        size,
        device: parent.device,
        local_ranks,
        helper,
        timeout: parent.timeout(),
        force_windows: parent.force_windows || config.forces_windows(),
        lock,
    });
    listener.into_iter().for_each(|listener| listener.listen(&child));
    child
}

/// What one rank asks NCCL for, and the child that NCCL has made until somebody takes it.
struct Asked {
    parent: Arc<Inner>,
    wish: Wish,
    child: Option<Place>,
    config: Option<Arc<Config>>,
    handle: Handle,
}

/// A call that is under way. Aborts the children that nobody takes.
struct Division(Vec<Asked>);

impl Division {
    /// Makes the call, and reports to the caller. The thread may stay here for ever.
    fn run(mut self, caller: &SyncSender<Result<Vec<Option<Born>>>>) {
        let born = self.call();
        let is_made = born.is_ok();
        match caller.send(born) {
            // The caller has them.
            Ok(()) if is_made => self.0.clear(),
            Ok(()) => {}
            // It waits no longer. It has aborted the parents before it gave back their locks, and
            // leaves the visits to this thread.
            Err(_) => self.0.iter().for_each(|one| one.parent.end_visit()),
        }
    }

    fn call(&mut self) -> Result<Vec<Option<Born>>> {
        let function = self.0.first().map_or("ncclGroupEnd", |one| one.wish.function());
        grouped(function, || self.0.iter_mut().try_for_each(Asked::ask))?;
        self.0.iter().map(|one| one.child.as_ref().map(|place| one.born(place)).transpose()).collect()
    }
}

impl Asked {
    /// Makes the call for one rank, within the group of this thread.
    fn ask(&mut self) -> Result<()> {
        let (raw, Handle(place)) = (self.parent.handle().raw(), &mut self.handle);
        // Without a configuration it has that of the parent. The local ranks keep the texts of
        // either.
        let mut raw_config = self.config.as_ref().map(|config| config.to_raw());
        let config = raw_config.as_mut().map_or(ptr::null_mut(), |config| &raw mut *config);
        let code = match &mut self.wish {
            // SAFETY: the parent is live during its visit, which ends after this, and locked until
            // then or aborted: nobody else uses it. There is a place for the handle, which is
            // written before the group ends. NCCL copies the configuration within the call, but for
            // texts that live as long as the child. The ranks agree: in a clique they have
            // compared, and who made a communicator across processes has promised it.
            Wish::Split { color, key } => unsafe { sys::ncclCommSplit(raw, *color, *key, place, config) },
            #[cfg(nccl_ge_2_27)]
            Wish::Shrink { excluded } => {
                let (list, count) = (excluded.as_mut_ptr(), excluded.len() as c_int);
                // SAFETY: as above. NCCL sorts the list, which is ours, and copies it; it names
                // other ranks of the parent, each once.
                unsafe { sys::ncclCommShrink(raw, list, count, place, config, sys::NCCL_SHRINK_DEFAULT as c_int) }
            }
            #[cfg(nccl_ge_2_29)]
            Wish::Grow { size, id } => {
                let id = id.map(|id| id.to_raw());
                let id = id.as_ref().map_or(ptr::null(), ptr::from_ref);
                // SAFETY: as above. NCCL copies the id within the call. No communicator was made of
                // the parent since the id was asked for: the rank that has it refuses that. The
                // other ranks have promised to grow it by as many.
                unsafe { sys::ncclCommGrow(raw, *size, id, -1, place, config) }
            }
            #[cfg(not(nccl_ge_2_29))]
            Wish::Grow { .. } => sys::ncclResult_t::ncclInvalidUsage,
            #[cfg(not(nccl_ge_2_27))]
            Wish::Shrink { .. } => sys::ncclResult_t::ncclInvalidUsage,
        };
        check(self.wish.function(), code).map_err(|error| error.of_rank(self.parent.rank))
    }

    /// The child that NCCL has made.
    fn born(&self, place: &Place) -> Result<Born> {
        let raw = self.handle.raw();
        if raw.is_null() {
            return Err(nothing(self.wish.function()));
        }
        let (mut rank, mut size) = (0, 0);
        // SAFETY: a communicator that was just made, which nobody else has, and a place for the
        // answer.
        check("ncclCommUserRank", unsafe { sys::ncclCommUserRank(raw, &mut rank) })?;
        // SAFETY: as above.
        check("ncclCommCount", unsafe { sys::ncclCommCount(raw, &mut size) })?;
        let (rank, size) = (rank as usize, size as usize);
        match place.local_ranks.in_process().map(|in_process| in_process.size()).filter(|&expected| expected != size) {
            Some(expected) => Err(Error::argument(self.wish.function(), "size of a child", expected, size)),
            None => Ok(Born { handle: self.handle, rank, size }),
        }
    }
}

impl Drop for Division {
    fn drop(&mut self) {
        let left: Vec<_> = self.0.iter().filter(|one| !one.handle.raw().is_null()).collect();
        for Asked { parent, child, .. } in &left {
            // A call that failed, or came too late, has aborted the parent. Parents that share are
            // not freed before this child is. Others keep a pointer into it until they are.
            let teardown =
                child.as_ref().map(|place| place.local_ranks.teardown()).filter(|teardown| teardown.is_shared());
            while !parent.has_ended() && !teardown.is_some_and(|teardown| teardown.are_ready()) {
                thread::sleep(LOOK);
            }
        }
        // At the same time: if they are the last of their ranks, each waits for the others.
        let _ = grouped("ncclGroupEnd", || {
            for one in &left {
                // SAFETY: nobody else has it, and its parent does not need it any more. No thread is
                // inside a communicator that shares its resources, and none revokes or frees one: all
                // are ready, and wait for this child.
                let _ = unsafe { sys::ncclCommAbort(one.handle.raw()) };
            }
            Ok(())
        });
        self.0.iter().filter_map(|one| one.child.as_ref()).for_each(|place| place.local_ranks.withdraw());
    }
}
