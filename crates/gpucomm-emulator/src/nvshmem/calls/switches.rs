//! What the library has switches do for a team (NVLS), where GPUCOMM_EMULATOR_NVLS has them: reductions that read what others have without waiting for
//! them, and what goes wrong by words.

use super::collectives::Collective;
use super::reduce::{Operator, Reduction, Type};
use crate::nvshmem::basics::entry::{Outcome, wrong};
use crate::nvshmem::basics::environment::{is_set, number, size};
use crate::nvshmem::basics::kind::Kind;
use crate::nvshmem::state::pe::Pe;
use crate::nvshmem::state::team::Team;
use crate::settings::settings;

/// What switches work by.
const WORD: usize = 4;

/// How switches scatter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scatter {
    Never,
    Right,
    Pairs,
    Wrong,
}

impl Reduction {
    fn is_half(self) -> bool {
        matches!(self.of, Type::Half | Type::Bfloat16)
    }

    fn scatter(self, bytes: usize) -> Scatter {
        let float = matches!(self.of, Type::Float | Type::Double);
        match (self.operator, bytes) {
            (Operator::Sum, 2) if self.is_half() => Scatter::Pairs,
            (Operator::Prod, _) | (_, 1 | 2) => Scatter::Never,
            (Operator::Sum, _) if float => Scatter::Right,
            (Operator::Min | Operator::Max, _) if float => Scatter::Never,
            (Operator::Sum, _) | (Operator::Min | Operator::Max, 4) => Scatter::Wrong,
            _ => Scatter::Right,
        }
    }

    /// Whether NCCL has it, where the library has NCCL.
    fn by_nccl(self) -> bool {
        let bits = matches!(self.operator, Operator::And | Operator::Or | Operator::Xor);
        !is_set("NVSHMEM_DISABLE_NCCL", false) && !bits && !matches!(self.of, Type::I16 | Type::U16)
    }
}

/// Where each block of elements begins, and how many it has.
fn parts(count: usize, bytes: usize, threshold: usize, blocks: usize) -> Vec<(usize, usize)> {
    let blocks = if bytes < threshold { 1 } else { number("NVSHMEM_MAX_CTAS").unwrap_or(blocks).max(1) };
    let each = count / blocks;
    let length = |block| if block == blocks - 1 { each + count % blocks } else { each };
    (0..blocks).map(|block| (block * each, length(block))).filter(|(_, length)| *length > 0).collect()
}

impl Collective {
    fn off_words(&self) -> crate::nvshmem::basics::entry::Failed {
        wrong(format!(
            "{}: a switch does it by words, which {:p} or {:p} do not begin at: NVSHMEM does nothing, and says so to nobody",
            self.kind.name(),
            self.dest,
            self.source
        ))
    }

    /// Whether switches read the sources of all members, whoever has come.
    pub(super) fn pulls(&self, pe: &Pe, team: &Team) -> bool {
        let Some(reduction) = self.reduction.filter(|_| pe.switches(&team.circle.members)) else { return false };
        match self.kind {
            Kind::Reduce => reduction.operator == Operator::Sum && (reduction.is_half() || reduction.of == Type::Float),
            Kind::ReduceScatter => match reduction.scatter(self.element) {
                Scatter::Right => true,
                Scatter::Pairs => team.size().is_multiple_of(2) && self.count.is_multiple_of(2),
                Scatter::Never | Scatter::Wrong => false,
            },
            _ => false,
        }
    }

    /// Fails where the library does it, and does not do it rightly.
    pub(super) fn check(&self, pe: &Pe, team: &Team, bytes: usize) -> Outcome {
        let switches = pe.switches(&team.circle.members);
        match (self.kind, self.reduction) {
            (Kind::ReduceScatter, Some(reduction)) if team.size() > 1 => {
                self.check_scatter(reduction, switches, team.size(), bytes)
            }
            (Kind::Reduce, Some(reduction))
                if switches && reduction.operator == Operator::Sum && reduction.is_half() =>
            {
                let places = [self.dest.addr(), self.source.addr()];
                let pairs = self.count.is_multiple_of(2) && self.count <= 2048;
                if pairs && places.iter().any(|place| !place.is_multiple_of(WORD)) {
                    Err(self.off_words())
                } else {
                    Ok(())
                }
            }
            (Kind::Fcollect, _) if switches => {
                let parts = parts(bytes, bytes * team.size(), 1 << 20, (32 / team.size()).max(1));
                let by_words = parts.into_iter().filter(|(_, length)| length.is_multiple_of(WORD));
                let right = by_words.into_iter().all(|(from, _)| {
                    let mut targets = (0..team.size()).map(|at| self.dest.addr() + at * bytes + from);
                    (self.source.addr() + from).is_multiple_of(WORD) && targets.all(|place| place.is_multiple_of(WORD))
                });
                if right { Ok(()) } else { Err(self.off_words()) }
            }
            _ => Ok(()),
        }
    }

    fn check_scatter(&self, reduction: Reduction, switches: bool, members: usize, bytes: usize) -> Outcome {
        let room = size("NVSHMEM_REDUCE_SCRATCH_SIZE", 1 << 19) / 2;
        let scratch = || {
            let all = (bytes * members) as u64;
            let text = format!("{all} bytes are reduced and scattered, and there is room for {room}");
            if all <= room { Ok(()) } else { Err(wrong(text)) }
        };
        if !switches {
            return if reduction.by_nccl() { Ok(()) } else { scratch() };
        }
        let parts = parts(self.count, bytes * members, 1 << 20, 16);
        let pairs = members.is_multiple_of(2) && parts.iter().all(|(_, length)| length.is_multiple_of(2));
        match reduction.scatter(self.element) {
            Scatter::Right => Ok(()),
            Scatter::Wrong => Err(wrong(format!(
                "{:?} of {:?}: switches take them for something else, and NVSHMEM gets that",
                reduction.operator, reduction.of
            ))),
            Scatter::Pairs if pairs => {
                let on = |from: usize| [self.dest.addr(), self.source.addr()].map(|place| place + 2 * from);
                let right = parts.iter().all(|(from, _)| on(*from).iter().all(|place| place.is_multiple_of(WORD)));
                if right { Ok(()) } else { Err(self.off_words()) }
            }
            Scatter::Never | Scatter::Pairs if parts.len() > 1 => {
                Err(wrong("several blocks reduce and scatter without switches, and all begin with the first elements"))
            }
            Scatter::Never | Scatter::Pairs => scratch(),
        }
    }

    /// Whether copy engines do it, which count on the host who has come.
    pub(super) fn by_copies(&self, pe: &Pe, team: &Team) -> bool {
        let here = match self.kind {
            Kind::Fcollect => true,
            Kind::AllToAll | Kind::Broadcast => is_set("NVSHMEM_DISABLE_NCCL", false),
            _ => false,
        };
        let on = settings().nvshmem >= 3_05_00 && !is_set("NVSHMEM_DISABLE_CE_COLLECTIVES", true);
        here && on && pe.switches(&team.circle.members)
    }
}
