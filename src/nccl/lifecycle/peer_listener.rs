//! Tells the ranks of a checked communicator in different processes about failures.
//!
//! Each rank has a thread that tells the others why the communicator has ended here, and aborts it
//! if it has ended elsewhere. A thread that waits for a device, or inside NCCL, could not. A rank
//! that has died tells nothing: the thread asks the store for dead ranks.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::abort::abort_clique;
use crate::error::{Error, Result};
use crate::nccl::agree::checked::Checked;
use crate::nccl::agree::told::End;
use crate::nccl::rank::helper::cannot_start;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::state::State;

/// How long one look into the store takes, and so how late the others may learn that the
/// communicator has ended here.
const LOOK: Duration = Duration::from_millis(50);

/// The longest pause between two looks that fail.
const PAUSE: Duration = Duration::from_millis(400);

/// How often the store is asked which ranks have died.
const ASKS: Duration = Duration::from_millis(200);

/// How often the thread looks again after a rank has died, before it ends anything: by then, work
/// that does not need that rank is done.
const REST: u32 = 10;

/// The thread, and what a communicator compares that is about to be started.
#[derive(Debug, Clone)]
pub(crate) struct PeerListener {
    checked: Arc<Checked>,
    sender: Sender<(Weak<Inner>, Arc<Checked>)>,
}

impl PeerListener {
    /// Starts the thread, before there is a communicator. Until there is one, it uses nothing of
    /// the exchange.
    pub(crate) fn start(operation: &'static str, checked: Checked) -> Result<Self> {
        let (sender, receiver) = mpsc::channel::<(Weak<Inner>, Arc<Checked>)>();
        let heard = checked.is_heard();
        let run = move || {
            if let Ok((inner, checked)) = receiver.recv() {
                listen(&inner, &checked);
            }
            drop(heard);
        };
        let started = thread::Builder::new().name("gpucomm-checked".into()).spawn(run);
        started.map_err(|error| cannot_start(operation, &error))?;
        Ok(Self { checked: Arc::new(checked), sender })
    }

    /// Starts the thread for a part of these ranks, which are listed in their order in the part.
    pub(crate) fn of_part(operation: &'static str, parent: &Checked, ranks: &[usize], part: &str) -> Result<Self> {
        Self::start(operation, parent.child(operation, ranks, part.to_owned())?)
    }

    /// Listens for `inner`, before it does anything.
    pub(crate) fn listen(self, inner: &Arc<Inner>) {
        let _ = inner.checked.set(Arc::clone(&self.checked));
        let _ = self.sender.send((Arc::downgrade(inner), self.checked));
    }
}

/// Listens until the communicator has ended, here or in another process.
fn listen(inner: &Weak<Inner>, checked: &Checked) {
    let (mut pause, mut deaths) = (LOOK, Deaths::default());
    while let Some(true) = inner.upgrade().map(|inner| go_on(&inner, checked)) {
        match checked.ended(LOOK) {
            Ok(None) => {
                pause = LOOK;
                deaths.look(inner, checked);
            }
            Ok(Some(end)) => {
                if let Some(inner) = inner.upgrade() {
                    abort_clique(&inner, &end.error("wait"));
                }
                return;
            }
            // Nobody serves this rank any more. Its next operation says so.
            Err(Error::Gone { .. }) => return,
            Err(_) => {
                thread::sleep(pause);
                pause = (2 * pause).min(PAUSE);
            }
        }
    }
}

/// The ranks of other processes that have ended.
#[derive(Default)]
struct Deaths {
    asked: Option<Instant>,
    /// Those that had closed before.
    closed: Vec<usize>,
    /// The first that has died, and how often the thread has looked since.
    dead: Option<((usize, String), u32)>,
    /// The visit to NCCL that goes on since then, and for how many looks.
    inside: (u64, u32),
}

impl Deaths {
    fn look(&mut self, inner: &Weak<Inner>, checked: &Checked) {
        let Some((dead, looks)) = &mut self.dead else {
            if self.asked.is_none_or(|asked| asked.elapsed() >= ASKS) {
                self.dead = checked.departed(&mut self.closed, LOOK).map(|dead| (dead, 0));
                self.asked = Some(Instant::now());
            }
            return;
        };
        *looks = looks.saturating_add(1);
        if *looks < REST {
            return;
        }
        // Threads that wait for the device, or come to a round, then find it there. Those that wait
        // inside NCCL do neither.
        checked.set_dead(dead.clone());
        let Some(inner) = inner.upgrade() else { return };
        let visit = inner.visit();
        self.inside = (visit, if self.inside.0 == visit { self.inside.1.saturating_add(1) } else { 0 });
        if visit % 2 == 1
            && self.inside.1 >= REST
            && let Some(error) = checked.in_vain()
        {
            abort_clique(&inner, &error);
        }
    }
}

/// Whether the communicator may still end elsewhere. If it was aborted here, tells the others why.
fn go_on(inner: &Inner, checked: &Checked) -> bool {
    match inner.state() {
        State::Active | State::Suspended => true,
        // Each rank revokes for itself.
        State::Revoked | State::Closing | State::Closed => false,
        State::Aborting | State::Aborted => {
            if let Some(cause) = inner.cause() {
                checked.end(End::of(inner.rank, cause));
            }
            false
        }
    }
}
