//! Finds registrations of a communicator by allocation and address.
//!
//! Every operation looks up each of its buffers. So a lookup takes no lock: it is one load if
//! nothing is registered, else the loads of a bucket or two. A lookup under the lock of the
//! communicator is exact. Without it, the result may be outdated.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::lock::Mutex;

/// The number of allocations in a bucket. More of them go to the next level. Their ids fill one
/// cache line, or halves of two.
const PLACES: usize = 8;

/// The number of buckets of the first level. Each other level has twice as many as the one before.
const BUCKETS: usize = 8;

/// The number of levels. The last one would take 128 GiB.
const LEVELS: usize = 28;

/// Allocations with the same hash.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// The ids of the allocations; 0: none.
    ids: [AtomicU64; PLACES],
    numbers: [AtomicU64; PLACES],
    /// The first registered address, and the one behind the last.
    begins: [AtomicUsize; PLACES],
    ends: [AtomicUsize; PLACES],
}

impl Bucket {
    /// The registrations of an allocation: place in the bucket, number, addresses.
    #[inline]
    fn over(&self, allocation: u64) -> impl Iterator<Item = (usize, u64, Range<usize>)> {
        let places = self.ids.iter().enumerate().filter(move |(_, id)| id.load(Ordering::Acquire) == allocation);
        places.map(|(at, _)| {
            let addresses = self.begins[at].load(Ordering::Relaxed)..self.ends[at].load(Ordering::Relaxed);
            (at, self.numbers[at].load(Ordering::Relaxed), addresses)
        })
    }
}

/// Numbers of registrations, by the ids of allocations. None is 0.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// The levels, each of which is made when it is first needed.
    in_use: AtomicU32,
    levels: [OnceLock<Box<[Bucket]>>; LEVELS],
    /// Held by writers.
    writer: Mutex<()>,
}

impl Registered {
    /// The bucket of each level.
    #[inline]
    fn buckets(&self, allocation: u64) -> impl Iterator<Item = &Bucket> {
        let hash = allocation.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let levels = &self.levels[..self.in_use.load(Ordering::Acquire) as usize];
        levels.iter().filter_map(OnceLock::get).filter_map(move |level| level.get(hash as usize & (level.len() - 1)))
    }

    /// The registrations of an allocation, which lives: numbers and addresses.
    #[inline]
    pub(crate) fn over(&self, allocation: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
        self.buckets(allocation).flat_map(move |bucket| bucket.over(allocation)).map(|(_, number, at)| (number, at))
    }

    /// The number of the registration at an address of this allocation, which lives, and where it
    /// begins; 0 if there is none.
    #[inline]
    pub(crate) fn find(&self, allocation: u64, address: usize) -> (u64, usize) {
        for (number, addresses) in self.over(allocation) {
            if addresses.contains(&address) {
                return (number, addresses.start);
            }
        }
        (0, 0)
    }

    /// Adds a registration of these addresses of an allocation. Returns false if there is another
    /// there, or no room for more.
    #[must_use]
    pub(crate) fn add(&self, allocation: u64, addresses: &Range<usize>, number: u64) -> bool {
        let _writer = self.writer.lock();
        if self.over(allocation).any(|(_, other)| other.start < addresses.end && addresses.start < other.end) {
            return false;
        }
        let write = |bucket: &Bucket| {
            let at = bucket.ids.iter().position(|id| id.load(Ordering::Relaxed) == 0)?;
            bucket.numbers[at].store(number, Ordering::Relaxed);
            bucket.begins[at].store(addresses.start, Ordering::Relaxed);
            bucket.ends[at].store(addresses.end, Ordering::Relaxed);
            bucket.ids[at].store(allocation, Ordering::Release);
            Some(())
        };
        while self.buckets(allocation).find_map(write).is_none() {
            let next = self.in_use.load(Ordering::Relaxed);
            let Some(level) = self.levels.get(next as usize) else { return false };
            level.get_or_init(|| (0..BUCKETS << next).map(|_| Bucket::default()).collect());
            self.in_use.store(next + 1, Ordering::Release);
        }
        true
    }

    /// Forgets the registration of an allocation that has this number.
    pub(crate) fn remove(&self, allocation: u64, number: u64) {
        let _writer = self.writer.lock();
        for bucket in self.buckets(allocation) {
            for (at, _, _) in bucket.over(allocation).filter(|(_, other, _)| *other == number) {
                bucket.ids[at].store(0, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Range<usize> = 4096..8192;

    /// The number of the registration of a whole allocation.
    fn number(registered: &Registered, allocation: u64) -> u64 {
        registered.find(allocation, WHOLE.start).0
    }

    #[test]
    fn what_was_added_is_found_until_it_is_removed() {
        let registered = Registered::default();
        assert_eq!(number(&registered, 1), 0);
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut known = std::collections::HashMap::new();
        for id in 1..20_000u64 {
            if random.u32(..3) > 0 {
                let number = random.u64(1..);
                assert!(registered.add(id, &WHOLE, number));
                known.insert(id, number);
            }
            let other = random.u64(1..=id);
            if random.bool()
                && let Some(number) = known.remove(&other)
            {
                registered.remove(other, number);
            }
            assert_eq!(number(&registered, other), known.get(&other).copied().unwrap_or(0));
        }
        for id in 1..20_001 {
            assert_eq!(number(&registered, id), known.get(&id).copied().unwrap_or(0));
        }
        // Places are used again.
        assert!(registered.in_use.load(Ordering::Relaxed) < 12);
    }

    #[test]
    fn a_second_registration_is_refused() {
        let registered = Registered::default();
        assert!(registered.add(7, &WHOLE, 1));
        assert!(!registered.add(7, &WHOLE, 2));
        assert_eq!(number(&registered, 7), 1);
        registered.remove(7, 2);
        assert_eq!(number(&registered, 7), 1);
        registered.remove(7, 1);
        assert!(registered.add(7, &WHOLE, 2));
        assert_eq!(number(&registered, 7), 2);
    }

    #[test]
    fn parts_of_one_allocation() {
        let registered = Registered::default();
        for (number, begin) in [(1, 100), (2, 400), (3, 200)] {
            assert!(registered.add(7, &(begin..begin + 100), number));
        }
        for overlapping in [0..101, 199..200, 350..401, 0..1000, 499..600] {
            assert!(!registered.add(7, &overlapping, 9), "{overlapping:?}");
            assert!(registered.add(8, &overlapping, 9));
            registered.remove(8, 9);
        }
        for (address, found) in
            [(99, (0, 0)), (100, (1, 100)), (199, (1, 100)), (200, (3, 200)), (300, (0, 0)), (499, (2, 400))]
        {
            assert_eq!(registered.find(7, address), found);
        }
        registered.remove(7, 3);
        assert_eq!((registered.find(7, 250).0, registered.find(7, 150).0), (0, 1));
        assert_eq!(registered.over(7).count(), 2);
    }

    /// Looks up an allocation that lives while others come and go.
    #[test]
    fn who_lives_is_found_meanwhile() {
        let registered = Registered::default();
        assert!(registered.add(1, &WHOLE, 100));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for id in 2..30_000 {
                    assert!(registered.add(id, &WHOLE, id));
                    if id > 300 {
                        registered.remove(id - 200, id - 200);
                    }
                }
            });
            while !writer.is_finished() {
                assert_eq!((number(&registered, 1), number(&registered, 1_000_000)), (100, 0));
            }
        });
    }
}
