//! Symmetric memory in which PEs leave each other words, when they come together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::{Access, Address, Allocation, Device, Lend, LentUses, Owner, Slice, SliceMut};

/// Words that a PE has to say at a time.
pub(super) const WORDS: usize = 64;

/// What one PE says.
pub(super) type Words = [u64; WORDS];

/// Who has said what so far: two places for each PE, which are used in turn, as one PE may read what was said while another one
/// goes on; one from which words are sent; and two places for each PE again, for what members of teams say to each other.
pub(crate) struct Board {
    alloc: Arc<Allocation>,
    n_pes: usize,
    rounds: AtomicU64,
    /// How often this PE and another one were in a team that has said something: both count the same.
    with: Box<[AtomicU64]>,
}

impl Board {
    /// Bytes of the symmetric memory that it lies in.
    pub(crate) fn bytes(n_pes: usize) -> usize {
        (4 * n_pes + 1) * size_of::<Words>()
    }

    /// Over so many bytes at `address`, which the library frees when it ends.
    pub(crate) fn new(address: Address, device: Device, n_pes: usize) -> Self {
        let alloc = Allocation::external(address, Self::bytes(n_pes), device, Owner::Anybody, Box::new(drop));
        let with = (0..n_pes).map(|_| AtomicU64::new(0)).collect();
        Self { alloc, n_pes, rounds: AtomicU64::new(0), with }
    }

    /// How often all PEs have come together: the same number on all of them.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Any address in symmetric memory.
    pub(crate) fn address(&self) -> Address {
        self.alloc.address()
    }

    /// All of it, written.
    /// Where it ends.
    pub(crate) fn end(&self) -> usize {
        self.address().ptr().addr() + self.alloc.bytes()
    }

    pub(super) fn whole(&self) -> Whole<'_> {
        Whole(&self.alloc)
    }

    /// So many places from the first one on.
    pub(super) fn first(&self, places: usize) -> Slice<'_, u64> {
        Slice::of(&self.alloc, self.address(), places * WORDS)
    }

    /// The place from which words are sent.
    pub(crate) fn own(&self) -> (Address, SliceMut<'_, u64>) {
        let own = self.place(2 * self.n_pes);
        (own, SliceMut::of(&self.alloc, own, WORDS))
    }

    /// Where the places begin at which all PEs leave their words the next time: of each, the one of its number behind that.
    pub(super) fn next(&self) -> usize {
        let parity = (self.rounds.fetch_add(1, Ordering::Relaxed) % 2) as usize;
        parity * self.n_pes
    }

    /// The same of what this PE and another one say to each other in a team.
    ///
    /// Two PEs may have several teams in common. They come together in one order in all of these, and count that, so the places that one of them writes
    /// to are not those that the other one still reads.
    pub(super) fn next_with(&self, pe: usize) -> usize {
        let parity = (self.with[pe].fetch_add(1, Ordering::Relaxed) % 2) as usize;
        2 * self.n_pes + 1 + parity * self.n_pes
    }

    pub(super) fn place(&self, at: usize) -> Address {
        self.address().add(at * size_of::<Words>())
    }
}

/// All of the board, which is written, for a bracket.
pub(super) struct Whole<'b>(&'b Allocation);

impl Lend for Whole<'_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        uses.add(Slice::<u8>::of(self.0, self.0.address(), self.0.bytes()), Access::Write);
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}
