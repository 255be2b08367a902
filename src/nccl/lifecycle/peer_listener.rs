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
use crate::name::Name;
use crate::nccl::rank::helper::cannot_start;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::state::CommState;
use crate::nccl::validate::notes::Ending;
use crate::nccl::validate::over_exchange::this_rank::OverExchange;
use crate::nccl::wait::needed;

/// How long one look into the store takes, and so how late the others may learn that the
/// communicator has ended here.
const LOOK: Duration = Duration::from_millis(50);

/// The longest pause between two looks that fail.
const PAUSE: Duration = Duration::from_millis(400);

/// How often the store is asked which ranks have died.
const ASKS: Duration = Duration::from_millis(200);

/// How often the thread looks again after a rank has died, before it ends anything: by then, work
/// that does not need that rank is done.
const REST: u32 = 5;

/// What the thread listens for. The thread drops the sender after it has let go of the others.
type Request = (Weak<Inner>, Arc<OverExchange>, Sender<()>);

/// The thread, before it is known which communicator it listens for.
#[derive(Debug, Clone)]
pub(crate) struct ListenerThread(Sender<Request>);

impl ListenerThread {
    /// Starts the thread, before there is a communicator. Until there is one, it uses nothing of
    /// the exchange.
    pub(crate) fn start(operation: &'static str) -> Result<Self> {
        let (sender, receiver) = mpsc::channel::<Request>();
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

/// The thread, and what a communicator compares that is about to be started.
#[derive(Debug, Clone)]
pub(crate) struct PeerListener {
    checked: Arc<OverExchange>,
    thread: ListenerThread,
}

impl PeerListener {
    /// The thread, for a communicator that compares over `checked`.
    pub(crate) fn new(thread: ListenerThread, checked: OverExchange) -> Self {
        Self { checked: Arc::new(checked), thread }
    }

    /// Starts the thread.
    pub(crate) fn start(operation: &'static str, checked: OverExchange) -> Result<Self> {
        Ok(Self::new(ListenerThread::start(operation)?, checked))
    }

    /// Starts the thread for a part of these ranks, which are listed in their order in the part.
    pub(crate) fn of_part(
        operation: &'static str,
        parent: &OverExchange,
        ranks: &[usize],
        name: &Name,
    ) -> Result<Self> {
        Self::start(operation, parent.child(operation, ranks, name.clone())?)
    }

    /// Listens for `inner`, before it does anything.
    pub(crate) fn listen(self, inner: &Arc<Inner>) {
        inner.validation.set_over_exchange(Arc::clone(&self.checked));
        let heard = self.checked.is_heard();
        let _ = self.thread.0.send((Arc::downgrade(inner), self.checked, heard));
    }
}

/// Listens until the communicator has ended, here or in another process.
fn listen(inner: &Weak<Inner>, checked: &OverExchange) {
    let (mut pause, mut deaths) = (LOOK, Deaths::default());
    while let Some(true) = inner.upgrade().map(|inner| go_on(&inner, checked)) {
        let asked = Instant::now();
        match checked.ended(LOOK) {
            Ok(None) => {
                pause = LOOK;
                // A server ends the waits of all ranks when one of them has gone.
                if asked.elapsed() < LOOK {
                    deaths.asked = None;
                }
            }
            Ok(Some(end)) => {
                // A rank that has revoked the communicator too goes on: one that ends it early must not end the children that a slower
                // one still makes of it.
                if let Some(inner) = inner.upgrade().filter(|inner| !inner.was_revoked()) {
                    abort_clique(&inner, &end.error("wait", checked.rank()));
                }
                return;
            }
            // Nobody serves this rank any more. Threads that wait for the rank that did must still
            // learn that it has died.
            Err(Error::Departed { .. }) => thread::sleep(LOOK),
            Err(_) => {
                thread::sleep(pause);
                pause = (2 * pause).min(PAUSE);
            }
        }
        // Others are made of a revoked communicator without the dead.
        if inner.upgrade().is_some_and(|inner| !inner.is_revoked()) {
            deaths.look(inner, checked);
        }
    }
}

/// The ranks of other processes that have ended.
#[derive(Default)]
struct Deaths {
    asked: Option<Instant>,
    /// Those that had closed before, or have died.
    known: Vec<usize>,
    /// Those that have died, and how often the thread has looked since.
    dead: Vec<((usize, String), u32)>,
    /// The visit to NCCL that goes on since the first death, and for how many looks.
    inside: (u64, u32),
}

impl Deaths {
    fn look(&mut self, inner: &Weak<Inner>, checked: &OverExchange) {
        if self.asked.is_none_or(|asked| asked.elapsed() >= ASKS) {
            while let Some(dead) = checked.departed(&mut self.known, LOOK) {
                self.dead.push((dead, 0));
            }
            self.asked = Some(Instant::now());
        }
        for (dead, looks) in &mut self.dead {
            *looks = looks.saturating_add(1);
            if *looks == REST {
                // Threads that wait for the device, or come to a round, then find it there. Those
                // that wait inside NCCL do neither.
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
            && let Some(error) = checked.death(|rank| needed::inside(&inner, checked, rank, visit))
        {
            abort_clique(&inner, &error);
        }
    }
}

/// Whether the communicator may still end elsewhere. If it was aborted here, tells the others why.
fn go_on(inner: &Inner, checked: &OverExchange) -> bool {
    match inner.state() {
        CommState::Active | CommState::Suspended | CommState::Revoked => true,
        CommState::Closing | CommState::Closed => false,
        CommState::Aborting | CommState::Aborted => {
            if let Some(cause) = inner.cause() {
                checked.tell_end(&Ending::of(inner.rank, cause), cause);
            }
            false
        }
    }
}
