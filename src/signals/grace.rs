//! Communicators that end some time after a signal, whatever their threads do.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::came::name;
use super::termination::Termination;
use crate::error::{Error, Result};
use crate::nccl::{Aborter, abort_all};

/// How often the thread looks whether the time has come.
const LOOK: Duration = Duration::from_millis(20);

/// Aborts communicators a time after a signal, until it is dropped: made by [`Termination::abort_after`].
#[derive(Debug)]
#[must_use = "dropping it calls the abort off"]
pub struct Grace {
    /// The thread notices when it is gone.
    _alive: Sender<()>,
}

impl Termination {
    /// Has a thread abort `comms`, all at the same time and in their order, when one of the signals has come and `grace` has passed since: a rank
    /// that waits for a peer which does not come gets through, with [`Error::Aborted`], and its program ends by itself, with a message, before it is killed.
    ///
    /// They are given as `&Communicator` or as [`Aborter`], and not kept alive: what is closed in time is not aborted. As with every
    /// [abort](Aborter::abort), ranks of other processes are not told; each process has its own signal, and its own `Grace`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gpucomm::signals::Termination;
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Error, Stream};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?[..2])?;
    /// # let comm = clique.rank(0);
    /// let termination = Termination::new()?;
    /// let grace = termination.abort_after(Duration::from_millis(100), [comm])?;
    /// # assert!(std::process::Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status().expect("kill").success());
    /// // Rank 1 has not sent, and does not.
    /// let stream = Stream::new(comm.device())?;
    /// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 1)?;
    /// let received = comm.recv(&mut x, 1, &stream).and_then(|_| stream.synchronize());
    /// assert!(matches!(received, Err(Error::Aborted { .. })));
    /// drop(grace);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] where no thread can be started.
    pub fn abort_after<A: Into<Aborter>>(&self, grace: Duration, comms: impl IntoIterator<Item = A>) -> Result<Grace> {
        let aborters: Vec<Aborter> = comms.into_iter().map(Into::into).collect();
        let termination = self.clone();
        let (alive, gone) = channel();
        let wait = move || {
            while termination.elapsed().is_none_or(|elapsed| elapsed < grace) {
                if gone.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
            let signal = termination.signal().map_or_else(|| "a signal".to_owned(), name);
            let reason = format!("{signal} came, and {grace:?} have passed since");
            abort_all(aborters, &reason);
        };
        let thread = thread::Builder::new().name("gpucomm-grace".into()).spawn(wait);
        thread.map(|_| Grace { _alive: alive }).map_err(|error| Error::InvalidUsage {
            operation: "abort_after",
            reason: format!("a thread that waits for the signal cannot be started: {error}"),
        })
    }
}
