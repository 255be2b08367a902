//! What goes into the buffers, and what must come out: computed on the host, independently of what is measured.
//!
//! Values are small integers drawn from a hash of rank, position and a salt, chosen so that every result is exact for
//! the element type, in whatever order it is summed. Only averages of floating-point values are compared with a
//! tolerance.

use gpucomm::{ElementKind, ReduceOp};

use super::number::Number;
use super::operation::{Operation, Shape};
use crate::options::RedOp;

/// The data of one check: the same on every rank.
#[derive(Debug, Clone)]
pub struct Data {
    operation: Operation,
    redop: Option<RedOp>,
    shape: Shape,
    root: usize,
    salt: u64,
    low: i64,
    span: u64,
    tolerance: f64,
}

/// A stretch of a buffer and what it must hold after the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub start: usize,
    pub len: usize,
    pub holds: Holds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// What `rank` put in, from this position of its input.
    Input { rank: usize, from: usize },
    /// The reduction of all inputs, from this position.
    Reduced { from: usize },
    /// The poison that was there before.
    Poison,
}

impl Data {
    pub fn new(
        operation: Operation,
        redop: Option<RedOp>,
        kind: ElementKind,
        shape: Shape,
        root: usize,
        salt: u64,
    ) -> Self {
        let ranks = shape.ranks as i64;
        // Integers up to here are exact in the type, as sums or as single values.
        let (limit, signed, float, epsilon) = match kind {
            ElementKind::I8 => (127, true, false, 0.0),
            ElementKind::U8 => (254, false, false, 0.0),
            ElementKind::F16 => (2048, true, true, 2f64.powi(-10)),
            ElementKind::Bf16 => (256, true, true, 2f64.powi(-7)),
            ElementKind::F8E4M3 => (16, true, true, 2f64.powi(-3)),
            ElementKind::F8E5M2 => (8, true, true, 2f64.powi(-2)),
            ElementKind::F32 => (1 << 20, true, true, f64::from(f32::EPSILON)),
            ElementKind::F64 => (1 << 20, true, true, f64::EPSILON),
            ElementKind::U32 | ElementKind::U64 => (1 << 20, false, false, 0.0),
            _ => (1 << 20, true, false, 0.0),
        };
        let weight = match redop {
            Some(RedOp::Op(ReduceOp::Sum | ReduceOp::Avg)) => ranks,
            Some(RedOp::MulSum) => (0..shape.ranks).map(factor).sum(),
            _ => 1,
        };
        let magnitude = match redop {
            // Factors of 1 and 2; see `input`.
            Some(RedOp::Op(ReduceOp::Prod)) => 2,
            // A sum that wrapped before the division would not be the average.
            Some(RedOp::Op(ReduceOp::Avg)) if !float => limit / weight,
            _ => (limit / weight).max(1),
        };
        let low = match redop {
            Some(RedOp::Op(ReduceOp::Prod)) => 1,
            // Negative sums would raise the question of how a division rounds.
            Some(RedOp::Op(ReduceOp::Avg)) if !float => 0,
            _ if signed => -magnitude,
            _ => 0,
        };
        let exact = !float || (redop != Some(RedOp::Op(ReduceOp::Avg)) && weight * magnitude <= limit);
        // Each rank's share is rounded when it is scaled, and each of the partial sums once more.
        let tolerance = if exact { 0.0 } else { epsilon * magnitude as f64 * (ranks + 2) as f64 };
        Self { operation, redop, shape, root, salt, low, span: (magnitude - low + 1) as u64, tolerance }
    }

    /// How far a value may be off.
    pub fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// The value that `rank` puts in at `index`.
    pub fn input(&self, rank: usize, index: usize) -> i64 {
        if self.redop == Some(RedOp::Op(ReduceOp::Prod)) && rank >= 8 {
            // Products of more than eight factors of 2 would leave bfloat16's integers.
            return 1;
        }
        let mut hash =
            (index as u64 ^ (self.salt << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((rank as u64 + 1) << 17);
        hash = (hash ^ (hash >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.low + (((hash >> 32) * self.span) >> 32) as i64
    }

    fn reduced(&self, index: usize) -> f64 {
        let inputs = (0..self.shape.ranks).map(|rank| self.input(rank, index));
        let whole = match self.redop {
            None | Some(RedOp::Op(ReduceOp::Sum)) => inputs.sum(),
            Some(RedOp::Op(ReduceOp::Prod)) => inputs.product(),
            Some(RedOp::Op(ReduceOp::Max)) => inputs.max().unwrap_or(0),
            Some(RedOp::Op(ReduceOp::Min)) => inputs.min().unwrap_or(0),
            Some(RedOp::MulSum) => inputs.enumerate().map(|(rank, value)| factor(rank) * value).sum::<i64>(),
            Some(RedOp::Op(ReduceOp::Avg)) => {
                let mean = inputs.sum::<i64>() as f64 / self.shape.ranks as f64;
                return if self.tolerance > 0.0 { mean } else { mean.trunc() };
            }
            Some(RedOp::Op(other)) => unreachable!("the options have no {other}"),
        };
        whole as f64
    }

    /// Writes what `holds` says into `out`, beginning `skip` elements in.
    pub fn write<T: Number>(&self, holds: Holds, skip: usize, out: &mut [T]) {
        match holds {
            Holds::Poison => out.fill(T::POISON),
            Holds::Input { rank, from } => {
                for (i, value) in out.iter_mut().enumerate() {
                    *value = T::of(self.input(rank, from + skip + i));
                }
            }
            Holds::Reduced { from } => {
                for (i, value) in out.iter_mut().enumerate() {
                    *value = T::of_real(self.reduced(from + skip + i));
                }
            }
        }
    }

    /// Where `rank`'s input lies: in the receive buffer if `in_place`, else in the send buffer.
    pub fn source(&self, rank: usize, in_place: bool) -> Option<Segment> {
        let Shape { send, .. } = self.shape;
        let start = match self.operation {
            Operation::Broadcast | Operation::Scatter if rank != self.root => return None,
            Operation::AllGather | Operation::Gather if in_place => rank * send,
            _ => 0,
        };
        Some(Segment { start, len: send, holds: Holds::Input { rank, from: 0 } })
    }

    /// Elements of the receive buffer that the operation may know of; guards begin on both sides of them.
    pub fn region(&self, in_place: bool) -> usize {
        if in_place { self.shape.extent() } else { self.shape.recv }
    }

    /// What `rank`'s receive buffer must hold.
    pub fn result(&self, rank: usize, in_place: bool) -> Vec<Segment> {
        let Shape { send, recv, ranks, .. } = self.shape;
        let root = rank == self.root;
        let one = |start, len, holds| vec![Segment { start, len, holds }];
        let by_rank = |len: usize, holds: &dyn Fn(usize) -> Holds| -> Vec<Segment> {
            (0..ranks).map(|peer| Segment { start: peer * len, len, holds: holds(peer) }).collect()
        };
        match self.operation {
            Operation::AllReduce => one(0, recv, Holds::Reduced { from: 0 }),
            Operation::Reduce if root => one(0, recv, Holds::Reduced { from: 0 }),
            Operation::Reduce if in_place => one(0, recv, Holds::Input { rank, from: 0 }),
            Operation::Reduce => one(0, recv, Holds::Poison),
            Operation::Broadcast => one(0, recv, Holds::Input { rank: self.root, from: 0 }),
            Operation::AllGather => by_rank(send, &|peer| Holds::Input { rank: peer, from: 0 }),
            Operation::Gather => by_rank(send, &|peer| match peer {
                _ if root => Holds::Input { rank: peer, from: 0 },
                _ if in_place && peer == rank => Holds::Input { rank, from: 0 },
                _ => Holds::Poison,
            }),
            Operation::ReduceScatter => {
                // In place, NCCL may use the other parts as it likes.
                one(if in_place { rank * recv } else { 0 }, recv, Holds::Reduced { from: rank * recv })
            }
            Operation::Scatter if in_place => by_rank(recv, &|peer| match peer {
                _ if root || peer == rank => Holds::Input { rank: self.root, from: peer * recv },
                _ => Holds::Poison,
            }),
            Operation::Scatter => one(0, recv, Holds::Input { rank: self.root, from: rank * recv }),
            Operation::SendRecv => one(0, recv, Holds::Input { rank: (rank + ranks - 1) % ranks, from: 0 }),
            Operation::AllToAll => {
                by_rank(recv / ranks, &|peer| Holds::Input { rank: peer, from: rank * (recv / ranks) })
            }
            Operation::AllToAllV => {
                let mut start = 0;
                let mut segments = Vec::with_capacity(ranks);
                for peer in 0..ranks {
                    let from = (0..rank).map(|to| self.shape.uneven(peer, to)).sum();
                    let len = self.shape.uneven(peer, rank);
                    segments.push(Segment { start, len, holds: Holds::Input { rank: peer, from } });
                    start += len;
                }
                segments
            }
        }
    }
}

/// The factor of `rank` in `mulsum`.
pub fn factor(rank: usize) -> i64 {
    1 + (rank % 3) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_fill_the_region_and_come_from_inputs() {
        for operation in Operation::ALL {
            for ranks in 1..6 {
                let shape = operation.shape(4096, 4, ranks);
                let data = Data::new(operation, None, ElementKind::F32, shape, ranks - 1, 1);
                for rank in 0..ranks {
                    for in_place in [false, operation.in_place()] {
                        let segments = data.result(rank, in_place);
                        let filled: usize = segments.iter().map(|segment| segment.len).sum();
                        let partly = operation == Operation::ReduceScatter && in_place;
                        assert_eq!(filled, if partly { shape.recv } else { data.region(in_place) }, "{operation:?}");
                        for segment in segments {
                            assert!(segment.start + segment.len <= data.region(in_place));
                            if let Holds::Input { rank, from } = segment.holds {
                                assert!(from + segment.len <= data.source(rank, false).map_or(0, |s| s.len));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn values_differ_by_rank_place_and_salt() {
        let shape = Operation::AllReduce.shape(1 << 16, 4, 4);
        let data =
            |salt| Data::new(Operation::AllReduce, Some(RedOp::Op(ReduceOp::Sum)), ElementKind::F32, shape, 0, salt);
        let values =
            |salt, rank, from: usize| (from..from + 4096).map(move |i| data(salt).input(rank, i)).collect::<Vec<_>>();
        let base = values(1, 0, 0);
        let equal = |other: Vec<i64>| base.iter().zip(&other).filter(|(a, b)| a == b).count();
        for other in [values(2, 0, 0), values(1, 1, 0), values(1, 0, 1), values(1, 0, 1024)] {
            assert!(equal(other) < 16);
        }
        let mut distinct = base.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 3900);
    }

    #[test]
    fn results_are_exact_unless_a_tolerance_says_otherwise() {
        for kind in ElementKind::ALL {
            for redop in RedOp::ALL {
                for ranks in [1, 2, 3, 4, 7, 8, 16] {
                    let shape = Operation::AllReduce.shape(4096, kind.size(), ranks);
                    let data = Data::new(Operation::AllReduce, Some(redop), kind, shape, 0, 3);
                    let averages_reals = redop == RedOp::Op(ReduceOp::Avg) && data.tolerance() > 0.0;
                    for index in 0..shape.recv {
                        let value = data.reduced(index);
                        let bound = match kind {
                            ElementKind::I8 | ElementKind::U8 | ElementKind::F8E4M3 | ElementKind::F8E5M2 => 256.0,
                            ElementKind::Bf16 => 256.0,
                            ElementKind::F16 => 2048.0,
                            _ => f64::from(1 << 21),
                        };
                        assert!(value.abs() <= bound, "{kind} {redop:?} {ranks}: {value}");
                        assert!(averages_reals || value.fract() == 0.0);
                    }
                }
            }
        }
    }
}
