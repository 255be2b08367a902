//! The threads of a rank that serve its peers.
//!
//! NCCL ends them when the last communicator lets go of them that shares them, and waits until no peer is connected to them any more: each
//! lets go of its connections at the same moment. Ranks of one process are connected where they have windows or have used registered memory,
//! those of others always where they have met. What was aborted does not wait, unless some process has several ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::shared::Shared;
use crate::lock::Mutex;
use crate::meet::segment::Life;
use crate::meet::segment::Segment;
use crate::nccl::state::shared::{Link, Links};

/// Those of one rank.
#[derive(Debug, Default)]
pub(crate) struct Proxies(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// How many communicators have not let go.
    holders: usize,
    /// All that ever held them.
    places: Vec<Arc<Place>>,
}

/// The rank in one of the communicators that share them.
#[derive(Debug)]
pub(crate) struct Place {
    segment: Arc<Segment>,
    rank: usize,
    size: usize,
    /// What it has connected with ranks of other processes, and whether it is connected with those of this one as well.
    links: Arc<Mutex<Links>>,
    windows: AtomicBool,
    has_let_go: AtomicBool,
    /// It was the last that let go.
    is_last: AtomicBool,
}

impl Place {
    /// Windows were made, or registered memory was used: all ranks are connected.
    pub(crate) fn connect_all(&self) {
        self.windows.store(true, Ordering::Release);
    }

    fn process(&self, rank: usize) -> u32 {
        self.segment.rank(rank).pid.load(Ordering::Acquire)
    }

    /// Whether a process has several of the ranks.
    fn is_direct(&self) -> bool {
        (0..self.size).any(|one| (0..one).any(|other| self.process(one) == self.process(other)))
    }

    /// It was the last that let go.
    pub(super) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Acquire)
    }

    /// A peer that is connected and has not let go.
    fn missing(&self) -> Option<usize> {
        let (here, links) = (self.process(self.rank), self.links.lock());
        let leads =
            |link: &Link, to: usize| matches!(link, Link::All(..)) || [Link::To(to), Link::From(to)].contains(link);
        let connected = |&peer: &usize| {
            self.windows.load(Ordering::Acquire)
                || self.process(peer) != here && links.iter().any(|link| leads(link, peer))
        };
        let holds = |&peer: &usize| {
            let life = self.segment.rank(peer).life();
            self.segment.own(peer).let_go.load(Ordering::Acquire) == 0
                && life != Life::Absent
                && !self.segment.rank(peer).dead()
        };
        (0..self.size).filter(|&peer| peer != self.rank).filter(connected).find(holds)
    }
}

impl Proxies {
    /// One more communicator uses them, as `rank` of `size`, which connects `links`.
    pub(super) fn hold(
        &self,
        segment: &Arc<Segment>,
        rank: usize,
        size: usize,
        links: &Arc<Mutex<Links>>,
    ) -> Arc<Place> {
        let place = Arc::new(Place {
            segment: Arc::clone(segment),
            rank,
            size,
            links: Arc::clone(links),
            windows: AtomicBool::new(false),
            has_let_go: AtomicBool::new(false),
            is_last: AtomicBool::new(false),
        });
        let mut held = self.0.lock();
        held.holders += 1;
        held.places.push(Arc::clone(&place));
        place
    }

    /// A communicator uses them no more.
    pub(super) fn let_go(&self, place: &Place) {
        if place.has_let_go.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut held = self.0.lock();
        held.holders -= 1;
        if held.holders == 0 {
            place.is_last.store(true, Ordering::Release);
            held.places.iter().for_each(|place| place.segment.own(place.rank).let_go.store(1, Ordering::Release));
        }
    }

    /// A peer that is still connected, in whichever of the communicators.
    pub(super) fn missing(&self, aborted: bool) -> Option<usize> {
        let places = self.0.lock().places.clone();
        // The first is what the others were split off from.
        let waits = !aborted || places.first().is_some_and(|place| place.is_direct());
        places.iter().filter(|_| waits).find_map(|place| place.missing())
    }
}
