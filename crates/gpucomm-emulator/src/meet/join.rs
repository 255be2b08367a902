//! Ranks come to their segment.

use std::sync::atomic::Ordering;

use super::futex::SLICE;
use super::layout::Life;
use super::process;
use super::segment::Segment;

/// Why a rank cannot come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clash {
    /// Another one says that there are so many.
    Size(u32),
    /// There is one of that number.
    Twice,
}

/// Takes the place of rank `me` of `size`.
pub(crate) fn claim(segment: &Segment, me: usize, size: usize) -> Result<(), Clash> {
    let size = size as u32;
    if let Err(theirs) = segment.head().size.compare_exchange(0, size, Ordering::AcqRel, Ordering::Acquire)
        && theirs != size
    {
        return Err(Clash::Size(theirs));
    }
    claim_place(segment, me)
}

/// The same, where how many there are has been said elsewhere.
pub(crate) fn claim_place(segment: &Segment, me: usize) -> Result<(), Clash> {
    let (place, pid) = (segment.rank(me), std::process::id());
    if place.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Err(Clash::Twice);
    }
    place.born.store(process::born(pid).unwrap_or(0), Ordering::Relaxed);
    Ok(())
}

/// Tells the others that rank `me` is here, with all that it shows.
pub(crate) fn announce(segment: &Segment, me: usize) {
    segment.rank(me).set_life(Life::Joined);
    segment.head().joined.fetch_add(1, Ordering::AcqRel);
    segment.head().news.ring();
}

/// Waits until all `size` ranks have come. Between two naps asks `look`, and ends with what it says.
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
