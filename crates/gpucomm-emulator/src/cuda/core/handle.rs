//! Handles: opaque pointers that are looked up, never dereferenced.
//!
//! A handle holds a kind, a generation and a slot. A stale one, one of another kind or garbage finds nothing.

use std::sync::Arc;

use crate::lock::RwLock;

const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 28;
/// Handles are multiples of 16, as pointers to something would be.
const SHIFT: u32 = 4;

/// The values behind the handles of one kind.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    kind: u8,
    slots: RwLock<Slots<T>>,
}

#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u64,
    value: Option<Arc<T>>,
}

impl<T> Registry<T> {
    /// An empty registry; `kind` tells its handles from those of others.
    pub(crate) const fn new(kind: u8) -> Self {
        Self { kind, slots: RwLock::new(Slots { slots: Vec::new(), vacant: Vec::new() }) }
    }

    /// A new handle for `value`, or `None` where all are in use.
    pub(crate) fn insert<H>(&self, value: Arc<T>) -> Option<*mut H> {
        let mut all = self.slots.write();
        let slot = match all.vacant.pop() {
            Some(slot) => slot,
            None if all.slots.len() >> SLOT_BITS == 0 => {
                all.slots.push(Slot { generation: 0, value: None });
                all.slots.len() - 1
            }
            None => return None,
        };
        let generation = (all.slots[slot].generation + 1) & ((1 << GENERATION_BITS) - 1);
        all.slots[slot] = Slot { generation, value: Some(value) };
        let bits = (usize::from(self.kind) << (SLOT_BITS + GENERATION_BITS + SHIFT))
            | ((generation as usize) << (SLOT_BITS + SHIFT))
            | (slot << SHIFT);
        Some(std::ptr::without_provenance_mut(bits))
    }

    /// What `handle` stands for, if it is alive.
    pub(crate) fn get<H>(&self, handle: *mut H) -> Option<Arc<T>> {
        let (slot, generation) = self.split(handle)?;
        let all = self.slots.read();
        all.slots.get(slot).filter(|slot| slot.generation == generation)?.value.clone()
    }

    /// Ends the life of `handle`.
    pub(crate) fn remove<H>(&self, handle: *mut H) -> Option<Arc<T>> {
        let (slot, generation) = self.split(handle)?;
        let mut all = self.slots.write();
        let value = all.slots.get_mut(slot).filter(|slot| slot.generation == generation)?.value.take()?;
        all.vacant.push(slot);
        Some(value)
    }

    fn split<H>(&self, handle: *mut H) -> Option<(usize, u64)> {
        let bits = handle.addr();
        let ours =
            bits >> (SLOT_BITS + GENERATION_BITS + SHIFT) == usize::from(self.kind) && bits & ((1 << SHIFT) - 1) == 0;
        let slot = (bits >> SHIFT) & ((1 << SLOT_BITS) - 1);
        let generation = (bits >> (SLOT_BITS + SHIFT)) & ((1 << GENERATION_BITS) - 1);
        ours.then_some((slot, generation as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_foreign_and_invented_handles_find_nothing() {
        let (these, those) = (Registry::<u32>::new(1), Registry::<u32>::new(2));
        let first: *mut u8 = these.insert(Arc::new(7)).unwrap();
        assert_eq!(these.get(first).as_deref(), Some(&7));
        assert!(those.get(first).is_none());
        assert_eq!(these.remove(first).as_deref(), Some(&7));
        let second: *mut u8 = these.insert(Arc::new(8)).unwrap();
        assert_ne!(first, second, "the slot is the same, the generation is not");
        assert!(these.get(first).is_none() && these.remove(first).is_none());
        for invented in [0, 1, 2, 16, usize::MAX, second.addr() + 1, second.addr() + 16] {
            assert!(these.get(std::ptr::without_provenance_mut::<u8>(invented)).is_none(), "{invented:#x}");
        }
    }
}
