//! The life of a graph: it may be launched, is being launched, or has ended.

use std::sync::Arc;
use std::time::Duration;

use super::executable::Executable;
use crate::cuda::order::recording::Party;
use crate::cuda::order::stream::Stream;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};

/// The method that launches.
pub(super) const LAUNCH: &str = "Graph::launch";

/// What is launched, and why not any more. Nobody holds it during a launch, so who ends the graph does not wait for one.
pub(super) struct Life {
    state: Mutex<State>,
    party: Option<Arc<dyn Party>>,
}

struct State {
    /// Nothing while a thread launches it, and when that is over for good.
    executable: Option<Executable>,
    ended: Option<Error>,
}

impl Life {
    pub(super) fn new(executable: Executable, party: Option<Arc<dyn Party>>) -> Self {
        Self { state: Mutex::new(State { executable: Some(executable), ended: None }), party }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn left(&self, executable: Executable) -> Left {
        Left { executable: Some(executable), party: self.party.clone() }
    }

    /// Takes the executable of a dropped graph. The caller drops it, which destroys it.
    pub(super) fn take_left(&self) -> Option<Left> {
        self.take_out().map(|executable| self.left(executable))
    }

    /// Why it is launched no more.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.state().ended.as_ref().map(|cause| cause.met_by(LAUNCH))
    }

    /// Takes it out, for who has the graph alone, and makes another of it; `None` where it has ended.
    pub(super) fn take_out(&self) -> Option<Executable> {
        self.state().executable.take()
    }

    /// Puts it back.
    pub(super) fn put_back(&self, executable: Executable) {
        self.state().executable = Some(executable);
    }

    /// It is launched no more, because of `cause`, if it was not for another reason: what is to be destroyed. Where a thread is launching it,
    /// that one does.
    pub(super) fn end(&self, cause: &Error) -> Option<Left> {
        let executable = {
            let mut state = self.state();
            state.ended.get_or_insert_with(|| cause.clone());
            state.executable.take()
        };
        executable.map(|executable| self.left(executable))
    }

    /// Wraps `cudaGraphLaunch`. Threads launch it one after the other; waits no longer than `timeout` for those before.
    ///
    /// # Safety
    /// See [`Executable::launch`].
    pub(super) unsafe fn launch(&self, stream: &Stream, timeout: Duration) -> Result<()> {
        let taken = Taken { life: self, executable: self.take(timeout)? };
        // SAFETY: as the caller promises.
        taken.executable.as_ref().map_or(Ok(()), |executable| unsafe { executable.launch(stream) })
    }

    fn take(&self, timeout: Duration) -> Result<Option<Executable>> {
        let take = || {
            let mut state = self.state();
            match &state.ended {
                Some(cause) => Err(cause.met_by(LAUNCH)),
                None => Ok(state.executable.take()),
            }
        };
        if let Some(executable) = take()? {
            return Ok(Some(executable));
        }
        let deadline = Deadline::after(timeout);
        deadline.until(take)?.map(Some).ok_or_else(|| deadline.error(LAUNCH, "another thread that launches this graph"))
    }
}

/// What a thread launches, and then gives back.
struct Taken<'l> {
    life: &'l Life,
    executable: Option<Executable>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.life.state();
        if state.ended.is_none() {
            state.executable = self.executable.take();
            return;
        }
        drop(state);
        // The graph has ended meanwhile.
        drop(self.executable.take().map(|executable| self.life.left(executable)));
    }
}

/// The executable of a graph that was dropped or has ended. A drop hands it to the party of the graph,
/// which destroys it when its launches are done.
pub(super) struct Left {
    executable: Option<Executable>,
    party: Option<Arc<dyn Party>>,
}

impl Drop for Left {
    fn drop(&mut self) {
        if let (Some(party), Some(executable)) = (&self.party, self.executable.take()) {
            party.bury(Box::new(executable));
        }
    }
}
