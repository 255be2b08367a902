//! The control segments that this process has created or opened, and how a rank joins one.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::lock::Mutex;
use crate::meet::futex::SLICE;
use crate::meet::segment;
use crate::meet::segment::{Id, Life, Plan, Segment, Shape, Trouble};

/// The segments of this process.
#[derive(Default)]
struct Known {
    /// The segments that this process has created, until all ranks have joined. Other processes open a
    /// segment through its file.
    made: HashMap<u64, (Option<OwnedFd>, Arc<Segment>)>,
    /// The segments of `made` whose files are open, oldest first.
    files: VecDeque<u64>,
    /// All segments that this process has mapped.
    mapped: HashMap<u64, Weak<Segment>>,
}

/// The most open files. Without a limit, ids that are created and never used would exhaust the file
/// descriptors.
const FILES: usize = 128;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known<R>(f: impl FnOnce(&mut Known) -> R) -> R {
    f(KNOWN.lock().get_or_insert_default())
}

/// Creates a segment. Returns its id.
pub(crate) fn create<P: Plan>() -> Result<Id, Trouble> {
    let (segment, file, id) = segment::make(Shape::of::<P>())?;
    let (segment, nonce) = (Arc::new(segment), id.nonce());
    known(|known| {
        known.mapped.insert(nonce, Arc::downgrade(&segment));
        known.made.insert(nonce, (Some(file), segment));
        known.files.push_back(nonce);
        while known.files.len() > FILES
            && let Some(oldest) = known.files.pop_front()
        {
            // Ranks of this process can still join: they need no file.
            if let Some((file, _)) = known.made.get_mut(&oldest) {
                *file = None;
            }
        }
    });
    Ok(id)
}

/// Returns the segment with this id, and maps it if necessary.
pub(crate) fn open<P: Plan>(id: Id) -> Result<Arc<Segment>, Trouble> {
    let shape = Shape::of::<P>();
    segment::check(id, shape)?;
    let nonce = id.nonce();
    if let Some(segment) = known(|known| known.mapped.get(&nonce).and_then(Weak::upgrade)) {
        return Ok(segment);
    }
    let segment = segment::open(id, shape)?;
    Ok(known(|known| {
        // Another thread may have mapped it in the meantime.
        if let Some(segment) = known.mapped.get(&nonce).and_then(Weak::upgrade) {
            return segment;
        }
        known.mapped.retain(|_, segment| segment.strong_count() > 0);
        let segment = Arc::new(segment);
        known.mapped.insert(nonce, Arc::downgrade(&segment));
        segment
    }))
}

/// Closes the file of a segment that all ranks have joined.
pub(crate) fn complete(segment: &Segment) {
    known(|known| {
        if known.made.remove(&segment.nonce()).is_some() {
            known.files.retain(|nonce| *nonce != segment.nonce());
        }
    });
}

/// Why a rank cannot join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clash {
    /// Another rank has joined with this number of ranks.
    Size(u32),
    /// Another rank with the same number has joined.
    Twice,
}

/// Joins as rank `me` of `size`.
pub(crate) fn claim(segment: &Segment, me: usize, size: usize) -> Result<(), Clash> {
    let size = size as u32;
    if let Err(theirs) = segment.head().size.compare_exchange(0, size, Ordering::AcqRel, Ordering::Acquire)
        && theirs != size
    {
        return Err(Clash::Size(theirs));
    }
    claim_place(segment, me)
}

/// As [`claim`], if the number of ranks was compared elsewhere.
pub(crate) fn claim_place(segment: &Segment, me: usize) -> Result<(), Clash> {
    let (place, pid) = (segment.rank(me), std::process::id());
    if place.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Err(Clash::Twice);
    }
    place.born.store(segment::process_born(pid).unwrap_or(0), Ordering::Relaxed);
    Ok(())
}

/// Tells the other ranks that `me` has joined, and that its part of the segment is complete.
pub(crate) fn announce(segment: &Segment, me: usize) {
    segment.rank(me).set_life(Life::Joined);
    segment.head().joined.fetch_add(1, Ordering::AcqRel);
    segment.head().news.ring();
}

/// Waits until all `size` ranks have joined. Calls `look` between two sleeps, and returns what it
/// returns if that is not `None`.
pub(crate) fn wait_for_all<S>(segment: &Segment, size: usize, mut look: impl FnMut() -> Option<S>) -> Result<(), S> {
    let head = segment.head();
    loop {
        let heard = head.news.read();
        if head.joined.load(Ordering::Acquire) as usize == size {
            return Ok(());
        }
        if let Some(stop) = look() {
            return Err(stop);
        }
        head.news.sleep(heard, SLICE);
    }
}

#[cfg(test)]
mod register_tests {
    use super::*;
    use crate::meet::segment::bare::Bare;
    use std::sync::atomic::Ordering;

    #[test]
    fn an_id_leads_to_its_segment_in_the_same_process() {
        let id = create::<Bare>().expect("a segment");
        let first = open::<Bare>(id).expect("found");
        let again = open::<Bare>(Id::from_words(id.words())).expect("found");
        assert!(Arc::ptr_eq(&first, &again));
        first.head().size.store(7, Ordering::Relaxed);
        assert_eq!(again.head().size.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_a_plan_adds_lies_beside_the_rest() {
        let segment = open::<Bare>(create::<Bare>().expect("a segment")).expect("found");
        let (a, b) = (segment.own_of::<Bare>(0), segment.own_of::<Bare>(255));
        a.iter().chain(b).for_each(|byte| byte.store(0xff, Ordering::Relaxed));
        segment.common_of::<Bare>().store(u64::MAX, Ordering::Relaxed);
        segment.between_of::<Bare>(255, 255).store(0xff, Ordering::Relaxed);
        assert_eq!(segment.head().size.load(Ordering::Relaxed), 0);
        for rank in [0, 1, 254, 255] {
            assert_eq!(segment.rank(rank).pid.load(Ordering::Relaxed), 0);
            assert!(segment.rank(rank).board.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            assert_eq!(segment.pair(rank, 255).told.load(Ordering::Relaxed), 0);
        }
        segment.pair(255, 255).told.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(segment.between_of::<Bare>(255, 254).load(Ordering::Relaxed), 0);
    }

    #[cfg(feature = "nccl")]
    #[test]
    fn a_segment_of_another_plan_is_refused() {
        use crate::nccl::state::shared::Nccl;
        let id = create::<Bare>().expect("a segment");
        assert!(open::<Nccl>(id).is_err());
        let segment = open::<Bare>(id).expect("found");
        let other = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            segment.own_of::<Nccl>(0).device.load(Ordering::Relaxed)
        }));
        assert!(other.is_err());
    }

    #[test]
    fn unused_ids_do_not_use_up_files() {
        let ids: Vec<_> = (0..3 * FILES).map(|_| create::<Bare>().expect("a segment")).collect();
        assert!(known(|known| known.made.values().filter(|(file, _)| file.is_some()).count()) <= FILES);
        assert!(open::<Bare>(ids[0]).is_ok(), "ranks of this process can still join");
    }

    #[test]
    fn words_that_are_no_id_are_refused() {
        let mut words = create::<Bare>().expect("a segment").words();
        words[0] ^= 1;
        assert!(open::<Bare>(Id::from_words(words)).is_err());
        assert!(open::<Bare>(Id::from_words([0; 4])).is_err());
    }
}
