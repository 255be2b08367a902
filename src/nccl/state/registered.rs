//! Which memory is registered with a communicator, found by allocation.
//!
//! Every operation asks for each of its buffers, so asking takes no lock: one load where nothing is registered, else the loads of a bucket
//! or two. What is found under the lock of the communicator is so; who asks without it may be told what was so a moment before.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Allocations that a bucket holds; those beyond go to the next level. Their ids fill a cache line, or two halves of them.
const PLACES: usize = 8;

/// Buckets of the first level; each of the others has twice as many as the one before.
const BUCKETS: usize = 8;

/// Levels, of which the last would take 128 GiB.
const LEVELS: usize = 28;

/// The numbers of allocations that have come here.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// Ids of allocations; 0: none.
    ids: [AtomicU64; PLACES],
    numbers: [AtomicU64; PLACES],
}

/// Numbers of registrations, by the ids of allocations. None is 0.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// Levels that are there.
    in_use: AtomicU32,
    levels: [OnceLock<Box<[Bucket]>>; LEVELS],
    /// Held by who writes.
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

    /// The number of what is registered over this allocation, which lives; 0 where nothing is.
    #[inline]
    pub(crate) fn number(&self, allocation: u64) -> u64 {
        for bucket in self.buckets(allocation) {
            for (id, number) in bucket.ids.iter().zip(&bucket.numbers) {
                if id.load(Ordering::Acquire) == allocation {
                    return number.load(Ordering::Relaxed);
                }
            }
        }
        0
    }

    /// Makes known what is registered over an allocation; false where something is already, or there is no room for more.
    #[must_use]
    pub(crate) fn add(&self, allocation: u64, number: u64) -> bool {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.number(allocation) != 0 {
            return false;
        }
        let write = |bucket: &Bucket| {
            let free = bucket.ids.iter().zip(&bucket.numbers).find(|(id, _)| id.load(Ordering::Relaxed) == 0);
            free.map(|(id, place)| {
                place.store(number, Ordering::Relaxed);
                id.store(allocation, Ordering::Release);
            })
        };
        while self.buckets(allocation).find_map(write).is_none() {
            let next = self.in_use.load(Ordering::Relaxed);
            let Some(level) = self.levels.get(next as usize) else { return false };
            level.get_or_init(|| (0..BUCKETS << next).map(|_| Bucket::default()).collect());
            self.in_use.store(next + 1, Ordering::Release);
        }
        true
    }

    /// Forgets an allocation that is gone.
    pub(crate) fn remove(&self, allocation: u64) {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let places = self.buckets(allocation).flat_map(|bucket| &bucket.ids);
        places.filter(|id| id.load(Ordering::Relaxed) == allocation).for_each(|id| id.store(0, Ordering::Release));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_found_until_it_is_removed() {
        let registered = Registered::default();
        assert_eq!(registered.number(1), 0);
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut known = std::collections::HashMap::new();
        for id in 1..20_000u64 {
            if random.u32(..3) > 0 {
                let number = random.u64(1..);
                assert!(registered.add(id, number));
                known.insert(id, number);
            }
            let other = random.u64(1..=id);
            if random.bool() {
                registered.remove(other);
                known.remove(&other);
            }
            assert_eq!(registered.number(other), known.get(&other).copied().unwrap_or(0));
        }
        for id in 1..20_001 {
            assert_eq!(registered.number(id), known.get(&id).copied().unwrap_or(0));
        }
        // Places are taken again.
        assert!(registered.in_use.load(Ordering::Relaxed) < 12);
    }

    #[test]
    fn a_second_registration_is_refused() {
        let registered = Registered::default();
        assert!(registered.add(7, 1));
        assert!(!registered.add(7, 2));
        assert_eq!(registered.number(7), 1);
        registered.remove(7);
        assert!(registered.add(7, 2));
        assert_eq!(registered.number(7), 2);
    }

    /// Others come and go while one that lives is looked for.
    #[test]
    fn who_lives_is_found_meanwhile() {
        let registered = Registered::default();
        assert!(registered.add(1, 100));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for id in 2..30_000 {
                    assert!(registered.add(id, id));
                    if id > 300 {
                        registered.remove(id - 200);
                    }
                }
            });
            while !writer.is_finished() {
                assert_eq!((registered.number(1), registered.number(1_000_000)), (100, 0));
            }
        });
    }
}
