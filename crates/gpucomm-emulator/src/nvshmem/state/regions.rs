//! Memory of programs that became symmetric: each PE's own, under one name for all.

use std::ffi::c_void;
use std::io;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::memory::block::Block;
use crate::memory::heap::Heap;
use crate::memory::object::Location;
use crate::memory::space::held::InUse;
use crate::memory::symmetric;

/// A region, on all PEs.
#[derive(Debug)]
struct Region {
    /// The object of each PE, and where in it the region begins.
    parts: Vec<(&'static Heap, u64)>,
    bytes: u64,
    blocks: Vec<Arc<Block>>,
    /// The program must not unmap what it has registered.
    _used: InUse,
}

/// All regions, at numbers that all PEs agree on, for they come and go together.
#[derive(Debug, Default)]
pub(crate) struct Regions(Mutex<Vec<Option<Region>>>);

fn address(heap: &Heap, offset: u64) -> *mut u8 {
    heap.ground.arena().map_or(std::ptr::null_mut(), |arena| arena.at(offset))
}

impl Regions {
    /// Adds the one that begins at these places of the PEs: its number.
    pub(crate) fn add(&self, device: i32, places: &[Location], bytes: u64, used: InUse) -> io::Result<usize> {
        let part = |place: &Location| {
            let object = Location { offset: 0, ..*place };
            symmetric::of(&object, device).map(|heap| (heap, place.offset))
        };
        let parts = places.iter().map(part).collect::<io::Result<Vec<_>>>()?;
        let mut all = lock(&self.0);
        let twice = |other: &Region| {
            let pairs = other.parts.iter().zip(&parts);
            pairs
                .into_iter()
                .any(|(one, new)| std::ptr::eq(one.0, new.0) && one.1 < new.1 + bytes && new.1 < one.1 + other.bytes)
        };
        if all.iter().flatten().any(twice) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "some of it is registered already"));
        }
        let blocks = parts.iter().map(|(heap, offset)| heap.place(*offset, bytes)).collect();
        let region = Some(Region { parts, bytes, blocks, _used: used });
        match all.iter().position(Option::is_none) {
            Some(free) => {
                all[free] = region;
                Ok(free)
            }
            None => {
                all.push(region);
                Ok(all.len() - 1)
            }
        }
    }

    /// Takes one away, which must begin there and have as many bytes.
    pub(crate) fn remove(&self, me: usize, ptr: *const c_void, bytes: u64) -> Option<usize> {
        let mut all = lock(&self.0);
        let begins = |region: &Region| {
            let (heap, offset) = region.parts[me];
            address(heap, offset).addr() == ptr.addr() && region.bytes == bytes
        };
        let number = all.iter().position(|region| region.as_ref().is_some_and(begins))?;
        let region = all[number].take()?;
        for ((heap, offset), block) in region.parts.iter().zip(&region.blocks) {
            heap.condemn(*offset);
            heap.bury(block);
        }
        Some(number)
    }

    /// Which PE's part of which region begins at `offset` of an object, or holds it, and where.
    pub(crate) fn find(&self, heap: &'static Heap, offset: u64) -> Option<(usize, usize, u64)> {
        lock(&self.0).iter().enumerate().find_map(|(number, region)| {
            let region = region.as_ref()?;
            let holds = |(other, begin): &(&'static Heap, u64)| {
                std::ptr::eq(*other, heap) && (*begin..begin + region.bytes).contains(&offset)
            };
            let pe = region.parts.iter().position(holds)?;
            Some((number, pe, offset - region.parts[pe].1))
        })
    }

    /// The address of a place in a PE's part of a region.
    pub(crate) fn at(&self, number: usize, pe: usize, offset: u64) -> *mut u8 {
        let all = lock(&self.0);
        let region = all.get(number).and_then(Option::as_ref);
        region.map_or(std::ptr::null_mut(), |region| {
            let (heap, begin) = region.parts[pe];
            address(heap, begin + offset)
        })
    }
}
