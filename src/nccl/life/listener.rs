//! Listening how a checked communicator ends in other processes, and telling them how it does here: on a thread of its own, as who has gone
//! on to wait for a device, or inside NCCL, hears of nothing. A rank that has died tells nobody: the store is asked for it.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::abort::start_abort;
use crate::error::{Error, Result};
use crate::nccl::agree::checked::Checked;
use crate::nccl::agree::told::End;
use crate::nccl::state::helper::cannot_start;
use crate::nccl::state::inner::Inner;
use crate::nccl::state::standing::State;
use crate::nccl::wait::needed;

/// How long one look into the store takes, and so how late the others may hear of an end here.
const LOOK: Duration = Duration::from_millis(50);

/// How long it is until the next look, after several that have failed.
const PAUSE: Duration = Duration::from_millis(400);

/// How often the store is asked who has died.
const ASKS: Duration = Duration::from_millis(200);

/// How often the thread looks again after it has found that a rank has died: who waits for what that has done is through by then.
const REST: u32 = 10;

/// What the thread listens for; the last part is dropped when it has let go of the others.
type Heard = (Weak<Inner>, Arc<Checked>, Sender<()>);

/// The thread, before it is known what is compared.
#[derive(Debug, Clone)]
pub(crate) struct Listening(Sender<Heard>);

impl Listening {
    /// Starts the thread, before there is a communicator. Until there is one, it holds nothing of the exchange.
    pub(crate) fn start(operation: &'static str) -> Result<Self> {
        let (sender, receiver) = mpsc::channel::<Heard>();
        let run = move || {
            if let Ok((inner, checked, heard)) = receiver.recv() {
                listen(&inner, &checked);
                drop((checked, heard));
            }
        };
        let started = thread::Builder::new().name("gpucomm-checked".into()).spawn(run);
        started.map_err(|error| cannot_start(operation, &error))?;
        Ok(Self(sender))
    }
}

/// The thread, and what a communicator compares that is about to be made.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    checked: Arc<Checked>,
    listening: Listening,
}

impl Listener {
    /// The thread, for a communicator that compares this.
    pub(crate) fn of(listening: Listening, checked: Checked) -> Self {
        Self { checked: Arc::new(checked), listening }
    }

    /// Starts the thread.
    pub(crate) fn start(operation: &'static str, checked: Checked) -> Result<Self> {
        Ok(Self::of(Listening::start(operation)?, checked))
    }

    /// The same for a child in which these ranks are, in their order there, where it is `part`.
    pub(crate) fn of_child(operation: &'static str, parent: &Checked, ranks: &[usize], part: &str) -> Result<Self> {
        Self::start(operation, parent.child(operation, ranks, part.to_owned())?)
    }

    /// Has `inner` compare, before it does anything.
    pub(crate) fn listen(self, inner: &Arc<Inner>) {
        let _ = inner.checked.set(Arc::clone(&self.checked));
        let heard = self.checked.is_heard();
        let _ = self.listening.0.send((Arc::downgrade(inner), self.checked, heard));
    }
}

/// Listens until the communicator has ended, here or elsewhere.
fn listen(inner: &Weak<Inner>, checked: &Checked) {
    let (mut pause, mut deaths) = (LOOK, Deaths::default());
    while let Some(true) = inner.upgrade().map(|inner| go_on(&inner, checked)) {
        match checked.ended(LOOK) {
            Ok(None) => pause = LOOK,
            Ok(Some(end)) => {
                if let Some(inner) = inner.upgrade() {
                    start_abort(&inner.relatives(), &end.error("wait"));
                }
                return;
            }
            // Nobody serves this rank any more. Whoever waits for the rank that did still has to be told.
            Err(Error::Gone { .. }) => thread::sleep(LOOK),
            Err(_) => {
                thread::sleep(pause);
                pause = (2 * pause).min(PAUSE);
            }
        }
        deaths.look(inner, checked);
    }
}

/// What is known of ranks that have ended.
#[derive(Default)]
struct Deaths {
    asked: Option<Instant>,
    /// Those that have closed before, or have died.
    known: Vec<usize>,
    /// Those that have died, and how often the thread has looked since.
    dead: Vec<((usize, String), u32)>,
    /// The visit to NCCL that goes on since one is known, and for how many looks.
    inside: (u64, u32),
}

impl Deaths {
    fn look(&mut self, inner: &Weak<Inner>, checked: &Checked) {
        if self.asked.is_none_or(|asked| asked.elapsed() >= ASKS) {
            while let Some(dead) = checked.departed(&mut self.known, LOOK) {
                self.dead.push((dead, 0));
            }
            self.asked = Some(Instant::now());
        }
        for (dead, looks) in &mut self.dead {
            *looks = looks.saturating_add(1);
            if *looks == REST {
                // Whoever waits for the device ends it, and who comes to a round sees it there. Who waits inside NCCL does neither.
                checked.set_dead(dead.clone());
            }
        }
        if self.dead.is_empty() {
            return;
        }
        let Some(inner) = inner.upgrade() else { return };
        let visit = inner.visit();
        self.inside = (visit, if self.inside.0 == visit { self.inside.1.saturating_add(1) } else { 0 });
        if visit % 2 == 1
            && self.inside.1 >= REST
            && let Some(error) = checked.in_vain(|rank| needed::inside(&inner, checked, rank, visit))
        {
            start_abort(&inner.relatives(), &error);
        }
    }
}

/// Whether there is something to listen for; where there is not, the others are told why.
fn go_on(inner: &Inner, checked: &Checked) -> bool {
    match inner.state() {
        State::Active | State::Suspended => true,
        // Each rank revokes for itself, and ends or goes on then.
        State::Revoked | State::Closing | State::Closed => false,
        State::Aborting | State::Aborted => {
            if let Some(cause) = inner.cause() {
                checked.end(End::of(inner.rank, cause));
            }
            false
        }
    }
}
