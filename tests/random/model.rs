//! The memory of all ranks as it must be, on the host.

use gpucomm::ElementKind;

use crate::cell::Cell;
use crate::reduce::{Operator, reduce};

/// Where a buffer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    From,
    Uninit,
    Zeroed,
    /// `Communicator::alloc`: a window.
    Alloc,
    /// `Communicator::alloc_from`: a window.
    AllocFrom,
    /// `Communicator::alloc_local`.
    Local,
    /// `nccl::alloc`: memory of NCCL that belongs to no communicator.
    Nccl,
    /// Memory of others, as far as the crate knows.
    Foreign,
    /// Mapped memory.
    Mapped,
}

impl Origin {
    /// All that begin with known values.
    pub const INITIAL: [Self; 8] =
        [Self::From, Self::Zeroed, Self::Alloc, Self::AllocFrom, Self::Local, Self::Nccl, Self::Foreign, Self::Mapped];

    pub fn is_window(self) -> bool {
        matches!(self, Self::Alloc | Self::AllocFrom)
    }

    /// Whether it was mapped, so that other ranks can map it too.
    pub fn is_mapped(self) -> bool {
        matches!(self, Self::Alloc | Self::AllocFrom | Self::Local | Self::Nccl | Self::Mapped)
    }
}

/// The same buffer on all ranks.
#[derive(Clone)]
pub struct Contents {
    pub kind: ElementKind,
    pub origin: Origin,
    /// Whether NCCL has it registered beside windows.
    pub registered: bool,
    /// The elements of each rank.
    pub ranks: Vec<Vec<Cell>>,
}

impl Contents {
    /// Whether it is a window, where there are any, and whether it is registered otherwise: what goes from rank to rank does so between
    /// buffers that are alike.
    pub fn known(&self) -> (bool, bool) {
        (self.origin.is_window(), self.registered)
    }

    pub fn len(&self) -> usize {
        self.ranks[0].len()
    }
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ({:?})", self.len(), self.kind, self.origin)
    }
}

/// An element of a buffer.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub slot: usize,
    pub at: usize,
}

impl Place {
    pub fn after(self, elements: usize) -> Self {
        Self { at: self.at + elements, ..self }
    }
}

/// The factors of a pre-multiplied sum, one a rank.
#[derive(Debug, Clone)]
pub enum Factors {
    None,
    Host(Vec<u64>),
    Device(Vec<Place>),
}

/// How data moves between ranks: what every operation comes down to.
#[derive(Debug, Clone)]
pub enum Flow {
    Move {
        from: (usize, Place),
        to: (usize, Place),
        len: usize,
    },
    Reduce {
        operator: Operator,
        factors: Factors,
        from: Vec<Place>,
        to: Vec<(usize, Place)>,
        len: usize,
    },
    /// The elements may be anything afterwards.
    Forget {
        rank: usize,
        place: Place,
        len: usize,
    },
}

/// The buffers of all ranks.
#[derive(Debug)]
pub struct Model {
    pub ranks: usize,
    pub slots: Vec<Option<Contents>>,
}

impl Model {
    pub fn new(ranks: usize, slots: usize) -> Self {
        Self { ranks, slots: vec![None; slots] }
    }

    pub fn contents(&self, slot: usize) -> &Contents {
        self.slots[slot].as_ref().expect("a buffer in the slot")
    }

    fn cells(&self, rank: usize, place: Place, len: usize) -> &[Cell] {
        &self.contents(place.slot).ranks[rank][place.at..place.at + len]
    }

    pub fn write(&mut self, rank: usize, place: Place, cells: &[Cell]) {
        let contents = self.slots[place.slot].as_mut().expect("a buffer in the slot");
        contents.ranks[rank][place.at..place.at + cells.len()].copy_from_slice(cells);
    }

    /// A copy within one rank.
    pub fn copy(&mut self, rank: usize, from: Place, to: Place, len: usize) {
        let cells = self.cells(rank, from, len).to_vec();
        self.write(rank, to, &cells);
    }

    /// Flows that happen together: all read what was there before.
    pub fn flow(&mut self, flows: &[Flow]) {
        let mut writes: Vec<(usize, Place, Vec<Cell>)> = Vec::new();
        for flow in flows {
            match flow {
                Flow::Move { from, to, len } => {
                    writes.push((to.0, to.1, self.cells(from.0, from.1, *len).to_vec()));
                }
                Flow::Reduce { operator, factors, from, to, len } => {
                    let result = self.reduce(*operator, factors, from, *len);
                    writes.extend(to.iter().map(|(rank, place)| (*rank, *place, result.clone())));
                }
                Flow::Forget { rank, place, len } => writes.push((*rank, *place, vec![Cell::UNKNOWN; *len])),
            }
        }
        for (rank, place, cells) in writes {
            self.write(rank, place, &cells);
        }
    }

    fn reduce(&self, operator: Operator, factors: &Factors, from: &[Place], len: usize) -> Vec<Cell> {
        let kind = self.contents(from[0].slot).kind;
        let factors: Vec<Cell> = match factors {
            Factors::None => Vec::new(),
            Factors::Host(bits) => bits.iter().map(|&bits| Cell::exact(bits)).collect(),
            Factors::Device(places) => {
                places.iter().enumerate().map(|(rank, place)| self.cells(rank, *place, 1)[0]).collect()
            }
        };
        let inputs: Vec<&[Cell]> = from.iter().enumerate().map(|(rank, place)| self.cells(rank, *place, len)).collect();
        let mut column = Vec::with_capacity(inputs.len());
        (0..len)
            .map(|at| {
                column.clear();
                column.extend(inputs.iter().map(|input| input[at]));
                reduce(kind, operator, &column, &factors)
            })
            .collect()
    }
}
