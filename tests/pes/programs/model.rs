//! What every PE must have.

use gpucomm::ReduceOp;

use super::step::{Family, Kind, SLOTS, Transfer};

/// The elements of a buffer on each PE; `None` where nobody has said what they are.
pub type Elements = Vec<Vec<Option<u64>>>;

pub struct Model {
    pub buffers: [Option<(Kind, Elements)>; SLOTS],
}

impl Model {
    pub fn new() -> Self {
        Self { buffers: [const { None }; SLOTS] }
    }

    fn get(&self, slot: usize) -> &(Kind, Elements) {
        self.buffers[slot].as_ref().expect("it is there")
    }

    fn get_mut(&mut self, slot: usize) -> &mut (Kind, Elements) {
        self.buffers[slot].as_mut().expect("it is there")
    }

    pub fn fill(&mut self, slot: usize, part: std::ops::Range<usize>, value: impl Fn(usize) -> u64) {
        let (kind, all) = self.get_mut(slot);
        for (pe, elements) in all.iter_mut().enumerate() {
            elements[part.clone()].fill(Some(value(pe) & kind.mask()));
        }
    }

    pub fn transfers(&mut self, target: usize, source: usize, all: &[Transfer]) {
        let from = self.get(source).1.clone();
        let to = &mut self.get_mut(target).1;
        for one in all {
            for at in 0..one.count {
                let (there, here) = (one.target.start + at * one.strides.0, one.source + at * one.strides.1);
                to[one.to()][there] = from[one.from()][here];
            }
        }
    }

    pub fn ring(&mut self, (target, source): (usize, usize), len: usize, at: (usize, usize), by: usize) {
        let from = self.get(source).1.clone();
        let to = &mut self.get_mut(target).1;
        let n_pes = to.len();
        for (pe, values) in from.iter().enumerate() {
            to[(pe + by) % n_pes][at.0..at.0 + len].copy_from_slice(&values[at.1..at.1 + len]);
        }
    }

    /// What the members of one team have done.
    pub fn collective(
        &mut self,
        members: &[usize],
        family: Family,
        target: (usize, usize),
        source: (usize, usize),
        count: usize,
    ) {
        let n = members.len();
        let (to_len, from_len) = family.lens(count, n);
        let (kind, all) = self.get(source.0);
        let kind = *kind;
        let inputs: Vec<Vec<Option<u64>>> =
            members.iter().map(|pe| all[*pe][source.1..source.1 + from_len].to_vec()).collect();
        for (at, pe) in members.iter().enumerate() {
            let part = |member: usize, piece: usize| inputs[member][piece * count..(piece + 1) * count].to_vec();
            let result: Vec<Option<u64>> = match family {
                Family::Broadcast { root } => inputs[root % n].clone(),
                Family::Fcollect => inputs.concat(),
                Family::Alltoall => (0..n).flat_map(|member| part(member, at)).collect(),
                Family::Reduce(op) => reduce(&inputs, op, kind),
                Family::Scatter(op) => reduce(&(0..n).map(|member| part(member, at)).collect::<Vec<_>>(), op, kind),
            };
            assert_eq!(result.len(), to_len);
            self.get_mut(target.0).1[*pe][target.1..target.1 + to_len].copy_from_slice(&result);
        }
    }
}

/// Element by element; what one of them is unknown in is unknown.
fn reduce(inputs: &[Vec<Option<u64>>], op: ReduceOp, kind: Kind) -> Vec<Option<u64>> {
    let by = |a: u64, b: u64| match op {
        ReduceOp::Sum => a.wrapping_add(b) & kind.mask(),
        ReduceOp::Prod => a.wrapping_mul(b) & kind.mask(),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::And => a & b,
        ReduceOp::Or => a | b,
        ReduceOp::Xor => a ^ b,
        other => unreachable!("{other} is not drawn"),
    };
    let both = |a: Option<u64>, b: Option<u64>| Some(by(a?, b?));
    (0..inputs[0].len())
        .map(|at| inputs.iter().skip(1).fold(inputs[0][at], |sum, input| both(sum, input[at])))
        .collect()
}
