//! A start that is under way, on a thread of its own: asked how it stands, waited for, or given up.
//!
//! Who gives it up leaves the thread behind: a start that blocks cannot be stopped. Should the other ranks come after all, that aborts
//! what it then has.

use std::ptr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::abort::start_abort;
use super::made::{Made, nothing};
use super::scope::{self, Scope};
use super::watchdog;
use crate::cuda::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::flight::files::Trouble;
use crate::nccl::raw::check::lost;
use crate::nccl::raw::handle::Handle;
use crate::nccl::raw::warnings::{self, said};
use crate::nccl::state::gate::Lock;
use crate::nccl::state::helper::Helper;
use crate::nccl::state::household::Household;
use crate::nccl::state::inner::{Family, Inner, Parts, next_id};

/// How often a start looks whether the program that it is part of has failed.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How long a start goes on when a rank has ended.
pub(super) const REST: Duration = Duration::from_millis(500);

/// The start of some ranks of a communicator.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(super) operation: &'static str,
    pub(super) size: usize,
    /// The first of the ranks, where others are made elsewhere.
    pub(super) first: Option<usize>,
    /// Those that are started here, and their devices.
    pub(super) ranks: Vec<(usize, Device)>,
    /// One for each rank.
    pub(super) helpers: Vec<Helper>,
    pub(super) household: Arc<Household<Inner>>,
    pub(super) family: Option<Arc<Family>>,
    pub(super) shares: bool,
    pub(super) timeout: Duration,
    pub(super) force_windows: bool,
    /// The program that it is part of.
    pub(super) scope: Option<Arc<Scope>>,
    pub(super) deadline: Deadline,
    /// Whoever does not take what comes has it aborted.
    pub(super) receiver: Receiver<Result<Made>>,
}

impl UnderWay {
    /// Waits for it, until its deadline.
    pub(crate) fn wait(mut self) -> Result<Vec<Arc<Inner>>> {
        loop {
            if let Some(end) = self.ask_within(self.deadline.remaining().min(LOOK)) {
                return end;
            }
        }
    }

    /// The same, unless `gone` says that a rank will not come, which is asked now and then, and does not wait.
    pub(crate) fn wait_unless(mut self, gone: impl Fn() -> Option<Error>) -> Result<Vec<Arc<Inner>>> {
        let mut lost = None;
        loop {
            if let Some(end) = self.ask_within(self.deadline.remaining().min(LOOK)) {
                return end;
            }
            lost = lost.or_else(|| Some((Deadline::after(REST), gone()?)));
            // One that has come, and has ended since, is no reason to fail.
            if let Some((_, error)) = lost.take_if(|(rest, _)| rest.expired()) {
                Trouble::starting(&self.household.lineage, &self.ranks, self.size, &error).write();
                return Err(error);
            }
        }
    }

    /// What it has come to; `None` while it goes on. Then nothing more comes of it. Never waits.
    pub(crate) fn ask(&mut self) -> Option<Result<Vec<Arc<Inner>>>> {
        self.ask_within(Duration::ZERO)
    }

    fn ask_within(&mut self, patience: Duration) -> Option<Result<Vec<Arc<Inner>>>> {
        let operation = self.operation;
        match self.receiver.recv_timeout(patience) {
            Ok(made) => return Some(made.map_err(|error| self.lost(error)).and_then(|made| self.finish(made))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Some(Err(nothing(operation))),
        }
        if let Some(reason) = self.scope.as_ref().and_then(|scope| scope.failure()) {
            return Some(Err(Error::Aborted { operation, reason }));
        }
        if self.deadline.expired() {
            let said = said(Handle(ptr::null_mut())).map(|said| format!("; {said}")).unwrap_or_default();
            let late = self.deadline.error(operation, format!("{}{said}", self.absent()));
            Trouble::starting(&self.household.lineage, &self.ranks, self.size, &late).write();
            return Some(Err(late));
        }
        None
    }

    fn lost(&self, error: Error) -> Error {
        lost(&error, self.ranks.iter().map(|(_, device)| *device)).unwrap_or(error)
    }

    /// Who has not come, in words.
    fn absent(&self) -> String {
        let size = self.size;
        match self.first {
            Some(rank) => format!("not all of the {size} ranks have come to rank {rank}"),
            None => format!("not all of the {size} ranks have come"),
        }
    }

    /// All have come.
    fn finish(&mut self, made: Made) -> Result<Vec<Arc<Inner>>> {
        let (handles, ranks) = made.take();
        let &mut Self { size, shares, timeout, force_windows, .. } = self;
        let members: Vec<_> = std::mem::take(&mut self.helpers)
            .into_iter()
            .zip(handles.into_iter().zip(ranks))
            .map(|(helper, (handle, (rank, device)))| {
                let (family, household) = (self.family.clone(), Arc::clone(&self.household));
                let lock = shares.then(|| Lock::new(next_id()));
                let parts =
                    Parts { handle, rank, size, device, family, household, helper, timeout, force_windows, lock };
                Inner::new(parts)
            })
            .collect();
        if let Some(family) = &self.family {
            members.iter().for_each(|inner| family.join(inner.rank, inner));
        }
        welcome_in(self.scope.take(), self.operation, &members, &self.household)?;
        Ok(members)
    }
}

/// Has `members`, which have started, looked after, and end with those that they belong to.
///
/// # Errors
/// Why they have to end at once; they are aborted then.
pub(crate) fn welcome(operation: &'static str, members: &[Arc<Inner>], household: &Household<Inner>) -> Result<()> {
    welcome_in(scope::current(), operation, members, household)
}

/// The same, for a program that may run on another thread.
fn welcome_in(
    scope: Option<Arc<Scope>>,
    operation: &'static str,
    members: &[Arc<Inner>],
    household: &Household<Inner>,
) -> Result<()> {
    warnings::all_went_well();
    watchdog::look_after(members);
    members.iter().for_each(|inner| inner.trace_start());
    household.lie_on(members.iter().map(|inner| inner.device));
    if let Some(cause) = household.admit(members) {
        start_abort(members, &cause);
        return Err(members.first().and_then(|inner| inner.refusal(operation)).unwrap_or(cause));
    }
    if let Some(scope) = scope {
        scope.adopt(members);
        if let Some(reason) = scope.failure() {
            let error = Error::Aborted { operation, reason };
            start_abort(members, &error);
            return Err(error);
        }
    }
    Ok(())
}
