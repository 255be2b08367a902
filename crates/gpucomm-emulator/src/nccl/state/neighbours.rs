//! Communicators that have the same device: in which order they are used there, all devices must have in common.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// Of so many others a rank shows how far they are.
pub(crate) const NEIGHBOURS: usize = 3;

/// A communicator of this process.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) handle: usize,
    pub(super) device: i32,
    /// What its ranks know it by.
    pub(super) nonce: u64,
    /// How many collectives it has launched.
    pub(super) collectives: Arc<AtomicU64>,
    /// What it shares with others, by an address.
    pub(super) family: usize,
}

static ALL: Mutex<Vec<Neighbour>> = Mutex::new(Vec::new());
/// How many there are: where it is one, it has no neighbour.
static LEN: AtomicUsize = AtomicUsize::new(0);

fn change(work: impl FnOnce(&mut Vec<Neighbour>)) {
    let mut all = lock(&ALL);
    work(&mut all);
    LEN.store(all.len(), Ordering::Release);
}

/// The ranks of a communicator have met.
pub(super) fn add(neighbour: Neighbour) {
    change(|all| all.push(neighbour));
}

/// It has ended.
pub(super) fn remove(handle: usize) {
    change(|all| all.retain(|one| one.handle != handle));
}

/// Those on a device that are not of that family: what their ranks know them by, and how many collectives they have launched. The ones
/// that were made last, where there are many.
pub(super) fn others(device: i32, family: usize) -> [Option<(u64, u64)>; NEIGHBOURS] {
    let mut found = [None; NEIGHBOURS];
    if LEN.load(Ordering::Acquire) > 1 {
        let all = lock(&ALL);
        let others = all.iter().rev().filter(|one| one.device == device && one.family != family);
        for (place, other) in found.iter_mut().zip(others) {
            *place = Some((other.nonce, other.collectives.load(Ordering::Relaxed)));
        }
    }
    found
}
