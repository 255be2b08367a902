//! Puts, signals, and waits for signals, on their streams. Nobody meets: a matrix says how many signals each rank has given each other.
//!
//! Those of graphs have signals of their own (NCCL 2.30.3 and later): one at a time is on its way from a rank to another, and the next one is not
//! given, nor what it comes with, before a graph of that rank has waited for it. So each launch gives as many as were captured.
//!
//! NCCL launches them as it launches batches: each comes after all that was launched before on the communicator, on whatever streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::inject::stop_for_ever;
use crate::cuda::core::work::{Run, Running};
use crate::meet::futex::{SLICE, spin};
use crate::meet::segment::Segment;
use crate::meet::watch::{Deed, Phase, Stop};
use crate::memory::object::Location;
use crate::memory::usage;
use crate::memory::usage::InUse;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::Kind;
use crate::nccl::bytes::transfer::Way;
use crate::nccl::run::batch::Turn;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::shared::Shared;
use crate::nccl::wait::activity::{Activity, Watch, died};
use crate::races::Point;
use crate::races::{Actor, Touching};
use crate::report;
use crate::settings::{DeadPeer, settings};

/// What a put moves.
pub(crate) struct Copy {
    pub(crate) from: Location,
    pub(crate) to: Location,
    /// The window that this lies in, of this rank: it has the peer's memory mapped.
    pub(crate) window: usize,
    pub(crate) bytes: usize,
    pub(crate) count: usize,
    /// The memory of this rank.
    pub(crate) used: InUse,
}

/// A put, or a signal.
pub(crate) struct Give {
    pub(crate) comm: Arc<Comm>,
    /// Stopped with what began in this epoch of the communicator.
    pub(crate) epoch: u32,
    pub(crate) kind: Kind,
    pub(crate) peer: usize,
    pub(crate) copy: Option<Copy>,
    /// A graph does it.
    pub(crate) captured: bool,
    pub(crate) turn: Turn,
}

/// How far a rank is with a signal that a graph gives: there is none.
const FREE: u32 = 0;
/// It is about to be given.
const TAKEN: u32 = 1;
/// It is there.
const GIVEN: u32 = 2;

fn moves(place: &AtomicU32, from: u32, to: u32) -> bool {
    place.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

impl Give {
    fn give(&self, cancelled: &dyn Fn() -> bool) -> Outcome {
        let (comm, peer) = (&self.comm, self.peer);
        let segment = comm.segment()?;
        let count = self.copy.as_ref().map_or(0, |copy| copy.count as u64);
        let activity = Activity::new(self.kind, 0, count, peer);
        activity.publish(segment.rank(comm.rank), Phase::Waiting);
        let pair = segment.between(comm.rank, peer);
        let is_free = || moves(&pair.graph_signal, FREE, TAKEN);
        if self.captured && !wait_until(comm, self.epoch, activity, peer, &is_free, cancelled)? {
            return Ok(());
        }
        if let Some(Copy { from, to, window, bytes, .. }) = &self.copy {
            if !comm.windows.has(*window) {
                report::violation(format!(
                    "{} of rank {} writes {bytes} bytes to rank {peer} through a window that was deregistered meanwhile",
                    self.kind.name(),
                    comm.rank
                ));
            }
            let reach = |place: &Location| {
                let failed = |error| {
                    Failure::system(format!("rank {} cannot reach the window of rank {peer}: {error}", comm.rank))
                };
                usage::reach(place, *bytes).map_err(failed)
            };
            let (source, target) = (reach(from)?, reach(to)?);
            // SAFETY: both were checked to hold so many bytes; this rank keeps its own from reuse, and the window keeps that of the peer,
            // or its end is reported. They may overlap where a rank puts to itself.
            unsafe {
                if peer == comm.rank {
                    std::ptr::copy(source, target, *bytes);
                } else {
                    let way = Way::for_total(*bytes);
                    way.copy(source, target, *bytes);
                    way.finish();
                }
            }
        }
        if self.captured {
            pair.graph_signal.store(GIVEN, Ordering::Release);
        } else {
            pair.signals.fetch_add(1, Ordering::AcqRel);
        }
        segment.rank(peer).bell.ring();
        activity.publish(segment.rank(comm.rank), Phase::Done);
        Ok(())
    }
}

impl Run for Give {
    fn tell<'a>(&'a self, tell: &mut dyn FnMut(Touching<'a>)) {
        let actor = Actor { name: self.kind.name(), rank: Some(self.comm.rank), part: 0 };
        // A graph has constants for it.
        if !self.captured {
            tell(Touching { memory: &self.comm.signals.staged, by: 0, range: 0..8, writes: true, actor });
        }
        if let Some(copy) = &self.copy {
            copy.used.tell(false, Actor { part: 1, ..actor }, tell);
        }
    }

    fn place(&mut self, at: &Point) {
        mix(&self.comm, self.captured, at, self.kind);
    }

    fn run(self: Box<Self>, running: &Running) {
        let cancelled = || running.cancelled() || self.comm.is_stopped(self.epoch);
        let lost = !self.turn.come(self.kind.name(), &cancelled) || cancelled() || self.comm.stopped();
        if !lost && let Err(failure) = self.give(&cancelled) {
            fail(&self.comm, &failure, &cancelled);
        }
    }
}

fn mix(comm: &Comm, captured: bool, at: &Point, kind: Kind) {
    let what = format!("{} of rank {}", kind.name(), comm.rank);
    comm.resources.mixing.launch(comm.config.graphs, captured, at, &what);
}

/// The communicator has failed, and its kernel waits on.
fn fail(comm: &Comm, failure: &Failure, cancelled: &dyn Fn() -> bool) {
    comm.fail(failure);
    if settings().dead_peer != DeadPeer::Ends {
        stop_for_ever(comm, cancelled);
    }
}

/// Waits until `peer` has let `came` come true. `false`: this rank was stopped.
fn wait_until(
    comm: &Comm,
    epoch: u32,
    activity: Activity,
    peer: usize,
    came: &dyn Fn() -> bool,
    cancelled: &dyn Fn() -> bool,
) -> Outcome<bool> {
    let segment = comm.segment()?;
    let bell = &segment.rank(comm.rank).bell;
    let mut watch: Option<Watch<'_>> = None;
    loop {
        let heard = bell.read();
        if came() {
            return Ok(true);
        }
        if spin(1, || bell.read() != heard) {
            continue;
        }
        let watch = watch.get_or_insert_with(|| Watch::new(comm, segment, activity, Some(cancelled)).since(epoch));
        match watch.check(|one| one == peer) {
            None => bell.sleep(heard, SLICE),
            Some(Stop::Dead(one)) => return Err(died(comm, one, &activity)),
            Some(Stop::Aborted | Stop::Cancelled) => {
                activity.publish(segment.rank(comm.rank), Phase::Stopped);
                return Ok(false);
            }
        }
    }
}

/// A wait for signals of some ranks: by their numbers, or, in a graph, for so many.
pub(crate) struct Wait {
    pub(crate) comm: Arc<Comm>,
    pub(crate) epoch: u32,
    pub(crate) peers: Vec<(usize, u64)>,
    /// A graph does it.
    pub(crate) captured: bool,
    pub(crate) turn: Turn,
}

impl Wait {
    /// Waits until all have come, or it is stopped.
    fn wait(&self, cancelled: &dyn Fn() -> bool) -> Outcome {
        let segment = self.comm.segment()?;
        for &(peer, last) in &self.peers {
            let all = if self.captured {
                self.take(segment, peer, last, cancelled)?
            } else {
                let signals = &segment.between(peer, self.comm.rank).signals;
                self.wait_for(peer, last, &|| signals.load(Ordering::Acquire) >= last, cancelled)?
            };
            if !all {
                return Ok(());
            }
            Activity::new(Kind::WaitSignal, 0, last, peer).publish(segment.rank(self.comm.rank), Phase::Done);
        }
        Ok(())
    }

    fn wait_for(
        &self,
        peer: usize,
        number: u64,
        came: &dyn Fn() -> bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Outcome<bool> {
        let activity = Activity::new(Kind::WaitSignal, 0, number, peer);
        wait_until(&self.comm, self.epoch, activity, peer, came, cancelled)
    }

    /// Takes so many signals that graphs of `peer` give, one after the other.
    fn take(&self, segment: &Segment, peer: usize, count: u64, cancelled: &dyn Fn() -> bool) -> Outcome<bool> {
        let place = &segment.between(peer, self.comm.rank).graph_signal;
        for number in 1..=count {
            if !self.wait_for(peer, number, &|| moves(place, GIVEN, FREE), cancelled)? {
                return Ok(false);
            }
            segment.rank(peer).bell.ring();
        }
        Ok(true)
    }
}

impl Run for Wait {
    fn place(&mut self, at: &Point) {
        mix(&self.comm, self.captured, at, Kind::WaitSignal);
    }

    fn run(self: Box<Self>, running: &Running) {
        let comm = &self.comm;
        let cancelled = || running.cancelled() || comm.is_stopped(self.epoch);
        if !self.turn.come(Kind::WaitSignal.name(), &cancelled) || cancelled() || comm.stopped() {
            return;
        }
        if let Err(failure) = self.wait(&cancelled) {
            fail(comm, &failure, &cancelled);
        }
    }
}
