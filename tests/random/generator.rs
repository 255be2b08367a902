//! What steps draw from: random numbers, and the memory as it is before the step.

use fastrand::Rng;
use gpucomm::ElementKind;

use crate::cell;
use crate::model::Model;
use crate::number;
use crate::settings;

/// How many buffers a program has at a time.
pub const SLOTS: usize = 8;

/// Slots beside those for what a rank does that no program knows of.
pub const SPARE: [usize; 2] = [SLOTS, SLOTS + 1];

/// How many streams each rank has.
pub const STREAMS: usize = 24;

/// The element types that there are whatever the features.
const WIDELY_KNOWN: [ElementKind; 10] = {
    let [all @ .., _, _] = ElementKind::ALL;
    all
};

/// Element values; printed as their number only.
#[derive(Clone)]
pub struct Values(pub Vec<u64>);

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values", self.0.len())
    }
}

#[derive(Debug)]
pub struct Generator {
    pub rng: Rng,
    pub model: Model,
    /// Whether values may be forgotten, which leaks their memory.
    pub forget: bool,
    /// Whether what is drawn is captured: NCCL registers memory for graphs that was mapped, so that this counts, too, as what is alike.
    pub captures: bool,
    /// The element types of this program: a two-byte type and another, so that buffers of one type meet.
    kinds: [ElementKind; 2],
    seed: u64,
    /// The most elements that a length is drawn for.
    longest: usize,
}

impl Generator {
    pub fn new(seed: u64, ranks: usize, forget: bool, longest: usize) -> Self {
        let mut rng = settings::rng(seed, "program");
        let two_bytes = [ElementKind::F16, ElementKind::Bf16];
        let others: Vec<_> = WIDELY_KNOWN.into_iter().filter(|kind| kind.size() != 2).collect();
        let mut kinds = [two_bytes[rng.usize(..2)], others[rng.usize(..others.len())]];
        if kinds[1].size() == 1 {
            // Some more where there are any, and nothing else is drawn otherwise for that.
            let alike: Vec<_> = number::kinds().iter().filter(|kind| cell::is_float8(**kind)).copied().collect();
            let at = settings::rng(seed, "float8").usize(..=alike.len());
            kinds[1] = alike.get(at).copied().unwrap_or(kinds[1]);
        }
        Self { rng, model: Model::new(ranks, SLOTS), forget, captures: false, kinds, seed, longest }
    }

    /// Each step has random numbers of its own, so that one that draws fewer of them does not change all that follow.
    pub fn begin(&mut self, step: usize) {
        self.rng = settings::rng(self.seed, &format!("step {step}"));
    }

    pub fn ranks(&self) -> usize {
        self.model.ranks
    }

    pub fn chance(&mut self, one_in: u32) -> bool {
        self.rng.u32(..one_in) == 0
    }

    pub fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    /// One value for each rank.
    pub fn each<T>(&mut self, mut draw: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.ranks()).map(|_| draw(self)).collect()
    }

    /// A stream for each rank.
    pub fn streams(&mut self) -> Vec<usize> {
        self.each(|g| g.rng.usize(..STREAMS))
    }

    pub fn kind(&mut self) -> ElementKind {
        self.choose(&self.kinds.clone())
    }

    pub fn values(&mut self, kind: ElementKind, len: usize) -> Values {
        Values((0..len).map(|_| cell::draw(&mut self.rng, kind)).collect())
    }

    /// A slot that holds a buffer.
    pub fn live(&mut self) -> Option<usize> {
        let live: Vec<_> = (0..SLOTS).filter(|&slot| self.model.slots[slot].is_some()).collect();
        (!live.is_empty()).then(|| self.choose(&live))
    }

    /// Whether NCCL knows the memory of a slot: as a window, as registered otherwise, and as what it registers by itself in a graph.
    pub fn known(&self, slot: usize) -> (bool, bool, bool) {
        let contents = self.model.contents(slot);
        let (window, registered) = contents.known();
        (window, registered, self.captures && contents.origin.is_mapped())
    }

    /// Another slot that holds a buffer of the same type as this one.
    pub fn partner(&mut self, slot: usize) -> Option<usize> {
        let kind = self.model.contents(slot).kind;
        let alike = |other: &usize| self.model.slots[*other].as_ref().is_some_and(|contents| contents.kind == kind);
        let partners: Vec<_> = (0..SLOTS).filter(|other| *other != slot && alike(other)).collect();
        (!partners.is_empty()).then(|| self.choose(&partners))
    }

    /// A slot that holds none.
    pub fn vacant(&self) -> Option<usize> {
        (0..SLOTS).find(|&slot| self.model.slots[slot].is_none())
    }

    /// A number of elements up to `most`: 0, 1, odd ones, powers of two and their neighbours, all, and any.
    pub fn length(&mut self, most: usize) -> usize {
        let most = most.min(self.longest);
        let len = match self.rng.u32(..20) {
            0 => 0,
            1..=2 => 1,
            3..=5 => 2 * self.rng.usize(..20) + 1,
            6..=11 => {
                let power = 1 << self.rng.u32(1..13);
                power + self.rng.usize(..3) - 1
            }
            12..=15 => self.rng.usize(..70),
            16..=17 => self.rng.usize(..3000),
            18 => self.rng.usize(..40_000),
            _ => most,
        };
        if len > most { self.rng.usize(..=most) } else { len }
    }

    /// Room for an offset of any alignment, in elements.
    pub fn margin(kind: ElementKind) -> usize {
        32 / kind.size()
    }

    /// Where `len` elements begin in `within.0..within.1`: bytes from the start of the buffer that are odd, or multiples of 2, 4, 8
    /// and 16 and no more, equally often.
    pub fn offset(&mut self, kind: ElementKind, within: (usize, usize), len: usize) -> usize {
        let alignments: Vec<usize> = [1, 2, 4, 8, 16].into_iter().filter(|bytes| *bytes >= kind.size()).collect();
        let alignment = self.choose(&alignments);
        let step = alignment / kind.size();
        let fits = |at: &usize| at.is_multiple_of(step) && (alignment == 16 || !(at / step).is_multiple_of(2));
        // Near the begin, so that operations meet what others left.
        let last = within.1 - len;
        let places: Vec<usize> = (within.0..=last.min(within.0 + 64)).filter(fits).collect();
        if places.is_empty() { self.rng.usize(within.0..=last) } else { self.choose(&places) }
    }

    /// The offset of so many elements on each rank, one for all where they have to be `alike`.
    pub fn offsets(&mut self, kind: ElementKind, alike: bool, within: (usize, usize), lens: &[usize]) -> Vec<usize> {
        if alike {
            let longest = lens.iter().copied().max().unwrap_or_default();
            return vec![self.offset(kind, within, longest); lens.len()];
        }
        lens.iter().map(|&len| self.offset(kind, within, len)).collect()
    }
}
