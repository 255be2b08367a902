//! Drawing programs.

use fastrand::Rng;

use super::step::{Family, Gather, Kind, Meet, OPS, SLOTS, Send, Step, Transfer, Way, extent};
use super::teams::{plane, strided};

/// What a program has so far.
struct Drawn {
    n_pes: usize,
    whole: bool,
    /// Types and lengths.
    buffers: [Option<(Kind, usize)>; SLOTS],
    /// Teams side by side, and their members.
    teams: Vec<Vec<Vec<usize>>>,
}

/// A buffer, and its length.
type Slot = (usize, usize);

/// Steps of a program for so many PEs; with what takes devices of one's own, if `whole`.
pub fn draw(rng: &mut Rng, n_pes: usize, whole: bool, steps: usize) -> Vec<Step> {
    let mut drawn = Drawn { n_pes, whole, buffers: [None; SLOTS], teams: vec![vec![(0..n_pes).collect()]] };
    let mut all = Vec::new();
    while all.len() < steps {
        all.extend(drawn.step(rng));
    }
    all
}

impl Drawn {
    fn step(&mut self, rng: &mut Rng) -> Option<Step> {
        match rng.u32(..25) {
            0..=2 => self.alloc(rng),
            3 => self.drop_some(rng),
            4..=6 => self.fill(rng),
            7..=11 => self.transfers(rng),
            12 => self.graph(rng),
            13..=14 => self.ring(rng),
            15..=16 => self.team(rng),
            17 => self.forget(rng),
            18..=21 => self.collective(rng),
            22 => self.gather(rng),
            23 => Some(Step::Shortage { zeroed: rng.bool(), reclaim: rng.bool() }),
            _ => Some(Step::Reclaim),
        }
    }

    fn alloc(&mut self, rng: &mut Rng) -> Option<Step> {
        let slot = self.buffers.iter().position(Option::is_none)?;
        let len = [0, 1, rng.usize(2..50), rng.usize(50..3000), rng.usize(50..3000)][rng.usize(..5)];
        let kind = Kind::ALL[rng.usize(..Kind::ALL.len())];
        self.buffers[slot] = Some((kind, len));
        Some(Step::Alloc { slot, kind, len, zeroed: rng.bool() })
    }

    fn drop_some(&mut self, rng: &mut Rng) -> Option<Step> {
        let slots: Vec<usize> = (0..SLOTS).filter(|slot| self.buffers[*slot].is_some() && rng.u32(..3) == 0).collect();
        slots.iter().for_each(|slot| self.buffers[*slot] = None);
        (!slots.is_empty()).then(|| Step::Drop { slots, reclaim: rng.bool() })
    }

    /// A buffer, and its length.
    fn some(&self, rng: &mut Rng) -> Option<Slot> {
        let there: Vec<_> = (0..SLOTS).filter_map(|slot| self.buffers[slot].map(|(_, len)| (slot, len))).collect();
        rng.choice(there)
    }

    /// Two of one type.
    fn two(&self, rng: &mut Rng) -> Option<(Slot, Slot)> {
        let kind = |slot: usize| self.buffers[slot].map(|(kind, _)| kind);
        let one = self.some(rng)?;
        let others = (0..SLOTS).filter(|slot| *slot != one.0 && kind(*slot) == kind(one.0));
        let other = rng.choice(others.collect::<Vec<_>>())?;
        Some((one, (other, self.buffers[other]?.1)))
    }

    fn fill(&mut self, rng: &mut Rng) -> Option<Step> {
        let (slot, len) = self.some(rng)?;
        let from = rng.usize(..=len);
        let part = from..rng.usize(from..=len);
        Some(Step::Fill { slot, part, value: rng.u64(..), stream: rng.usize(..2) })
    }

    /// To parts of the target that lie apart.
    fn parts(&self, rng: &mut Rng, ways: &[Way], target: usize, source: usize) -> Vec<Transfer> {
        let mut cuts: Vec<usize> = (0..rng.usize(1..12)).map(|_| rng.usize(..=target)).collect();
        cuts.sort_unstable();
        let ranges = cuts.windows(2).map(|pair| pair[0]..pair[1]);
        let fits = ranges.filter(|range| range.len() <= source).collect::<Vec<_>>();
        let draw = |range: std::ops::Range<usize>| {
            let mut way = ways[rng.usize(..ways.len())];
            let (mut count, mut strides) = (range.len(), (1, 1));
            match way {
                Way::Value | Way::ValueOnStream if count == 0 => way = Way::Host,
                Way::Value | Way::ValueOnStream => count = 1,
                Way::Strided | Way::StridedOnStream => {
                    strides.0 = rng.usize(1..5);
                    count = count.div_ceil(strides.0);
                    strides.1 = rng.usize(1..5);
                    if extent(count, strides.1) > source {
                        strides.1 = 1;
                    }
                }
                _ => {}
            }
            Transfer {
                by: rng.usize(..self.n_pes),
                other: rng.usize(..self.n_pes),
                puts: rng.bool(),
                way,
                stream: rng.usize(..2),
                source: rng.usize(..=source - extent(count, strides.1)),
                target: range,
                count,
                strides,
            }
        };
        fits.into_iter().map(draw).collect()
    }

    fn transfers(&mut self, rng: &mut Rng) -> Option<Step> {
        let ((target, to), (source, from)) = self.two(rng)?;
        let ways = [
            Way::Host,
            Way::Stream,
            Way::Scope,
            Way::StreamScope,
            Way::View,
            Way::Batch,
            Way::Strided,
            Way::StridedOnStream,
            Way::Value,
            Way::ValueOnStream,
            Way::Pinned,
            Way::Registered,
        ];
        let all = self.parts(rng, &ways, to, from);
        let meet = [Meet::Barrier, Meet::BarrierOnStream, Meet::QuietSync, Meet::Exchange][rng.usize(..4)];
        Some(Step::Transfers { target, source, all, meet })
    }

    fn graph(&mut self, rng: &mut Rng) -> Option<Step> {
        let ((target, to), (source, from)) = self.two(rng)?;
        let all = self.parts(rng, &[Way::Stream, Way::View, Way::StridedOnStream], to, from);
        self.whole.then(|| Step::Graph { target, source, all, launches: rng.u32(1..4) })
    }

    fn ring(&mut self, rng: &mut Rng) -> Option<Step> {
        let ((target, to), (source, from)) = self.two(rng)?;
        let len = rng.usize(..=to.min(from));
        let at = (rng.usize(..=to - len), rng.usize(..=from - len));
        let (by, add, stream) = (rng.usize(..self.n_pes), rng.bool(), rng.usize(..2));
        let sends = [Send::Stream, Send::StreamScope, Send::Host, Send::HostScope, Send::PutThenSignal, Send::Value];
        let send = sends[rng.usize(..sends.len())];
        self.whole.then_some(Step::Ring { target, source, len, at, by, send, add, stream })
    }

    /// Only the world has all PEs, and so all know of what is made of it.
    fn team(&mut self, rng: &mut Rng) -> Option<Step> {
        if !self.whole || self.teams.len() >= 6 {
            return None;
        }
        let parent = self.teams[0][0].clone();
        let n = parent.len();
        Some(match rng.u32(..3) {
            0 => {
                let wide = rng.usize(1..=n);
                let (rows, columns) = plane(&parent, wide);
                self.teams.extend([rows, columns]);
                Step::Plane { wide }
            }
            1 if cfg!(nvshmem_ge_3_3) => {
                let mut order = parent;
                rng.shuffle(&mut order);
                order.truncate(rng.usize(1..=n));
                self.teams.push(vec![order.clone()]);
                Step::ById { order }
            }
            _ => {
                let (start, stride) = (rng.usize(..n), rng.usize(1..=n));
                let size = rng.usize(1..=(n - start).div_ceil(stride));
                self.teams.push(vec![strided(&parent, start, stride, size)]);
                Step::Split { start, stride, size }
            }
        })
    }

    fn forget(&mut self, rng: &mut Rng) -> Option<Step> {
        let teams = rng.usize(..self.teams.len());
        if teams == 0 {
            return None;
        }
        self.teams.remove(teams);
        Some(Step::Forget { teams })
    }

    fn collective(&mut self, rng: &mut Rng) -> Option<Step> {
        let ((target, to), (source, from)) = self.two(rng)?;
        let teams = rng.usize(..self.teams.len());
        let op = OPS[rng.usize(..OPS.len())];
        let families = [
            Family::Broadcast { root: rng.usize(..self.n_pes) },
            Family::Fcollect,
            Family::Alltoall,
            Family::Reduce(op),
            Family::Reduce(op),
            Family::Scatter(op),
        ];
        let family = families[rng.usize(..families.len())];
        // As much as there is room for in the largest of them.
        let n = self.teams[teams].iter().map(Vec::len).max()?;
        let (most_to, most_from) = family.lens(1, n);
        let count = rng.usize(..=(to / most_to).min(from / most_from));
        let (to_len, from_len) = family.lens(count, n);
        let (target, source) = ((target, rng.usize(..=to - to_len)), (source, rng.usize(..=from - from_len)));
        let stream = rng.bool().then(|| rng.usize(..2));
        self.whole.then_some(Step::Collective { teams, family, target, source, count, stream })
    }

    fn gather(&mut self, rng: &mut Rng) -> Option<Step> {
        let teams = rng.usize(..self.teams.len());
        let how = [Gather::Barrier, Gather::Sync, Gather::BarrierOnStream, Gather::SyncOnStream][rng.usize(..4)];
        self.whole.then(|| Step::Gather { teams, how, stream: rng.usize(..2) })
    }
}
