//! Collectives of teams: data movement and reductions, by copies or by switches.
//!
//! Each shows where its memory is; then it takes from the others what it needs, and all wait until everybody has. Of a reduction,
//! each member computes a part, in the order of the members, and gives it to all: so all have the same bits.

use std::ffi::c_void;
use std::sync::Arc;

use half::{bf16, f16};

use crate::cuda::core::work::Running;
use crate::nvshmem::basics::{Kind, Outcome, variable_is_set, variable_number, variable_size, wrong};
use crate::nvshmem::calls::stream::{Doing, Place as Where, enqueue, refuse_capture};
use crate::nvshmem::state::boot::Activity;
use crate::nvshmem::state::heap::Place;
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::Pe;
use crate::nvshmem::state::team::Team;
use crate::races::{Actor, Touching};
use crate::settings::settings;
use crate::sys::cudaStream_t;

/// A collective operation, as it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collective {
    pub(crate) kind: Kind,
    pub(crate) dest: *mut c_void,
    pub(crate) source: *const c_void,
    /// Elements, and bytes of one.
    pub(crate) count: usize,
    pub(crate) element: usize,
    pub(crate) root: i32,
    pub(crate) reduction: Option<Reduction>,
}

// SAFETY: the pointers are to symmetric memory, which is looked up before it is used.
unsafe impl Send for Collective {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Collective {}

/// Memory that it uses.
#[derive(Debug)]
pub(crate) struct Buffers {
    dest: Option<Place>,
    source: Option<Place>,
    /// Bytes of a share.
    bytes: usize,
}

impl Collective {
    /// How many shares the target and the source have, in a team of so many.
    fn shares(&self, size: usize) -> (usize, usize) {
        match self.kind {
            Kind::Fcollect => (size, 1),
            Kind::AllToAll => (size, size),
            Kind::ReduceScatter => (1, size),
            _ => (1, 1),
        }
    }

    fn buffers(&self, pe: &Pe, team: &Team) -> Outcome<Buffers> {
        let overflow =
            || wrong(format!("{} elements of {} bytes are more than there are addresses", self.count, self.element));
        let bytes = self.count.checked_mul(self.element).ok_or_else(overflow)?;
        let (dest, source) = self.shares(team.size());
        let dest_bytes = bytes.checked_mul(dest).ok_or_else(overflow)?;
        let source_bytes = bytes.checked_mul(source).ok_or_else(overflow)?;
        if self.kind == Kind::Broadcast && !(0..team.size() as i32).contains(&self.root) {
            return Err(wrong(format!("the root is {}, expected 0 to {}", self.root, team.size() - 1)));
        }
        if bytes == 0 {
            return Ok(Buffers { dest: None, source: None, bytes });
        }
        for address in [self.dest.addr(), self.source.addr()] {
            if !address.is_multiple_of(self.element) {
                return Err(wrong(format!("{address:#x} is not aligned to elements of {} bytes", self.element)));
            }
        }
        let into = pe.heap.place("the target", self.dest, dest_bytes)?;
        let from = pe.heap.place("the source", self.source, source_bytes)?;
        let (a, b) = (into.offset, from.offset);
        let in_place = matches!(self.kind, Kind::Reduce | Kind::Broadcast) && a == b;
        if !in_place && a < b + source_bytes as u64 && b < a + dest_bytes as u64 {
            return Err(wrong(format!(
                "{}: the target at {:p} and the source at {:p} overlap, expected them apart{}",
                self.kind.name(),
                self.dest,
                self.source,
                if matches!(self.kind, Kind::Reduce | Kind::Broadcast) { ", or the same" } else { "" }
            )));
        }
        self.check(pe, team, bytes)?;
        Ok(Buffers { dest: Some(into), source: Some(from), bytes })
    }

    /// Meets the others, and does this PE's part.
    fn perform(&self, pe: &Pe, team: &Team, buffers: &Buffers, cancelled: Option<&dyn Fn() -> bool>) -> Outcome {
        let (group, bytes) = (&team.group, buffers.bytes);
        let at = |place: &Option<Place>| place.as_ref().map_or(0, |place| place.offset);
        let (dest, source) = (at(&buffers.dest), at(&buffers.source));
        let operation = self.reduction.map_or(0, Reduction::code);
        let words = [bytes as u64, self.root as u64, operation, dest, source];
        let activity = Activity { kind: self.kind, team: 0, number: 0, bytes: bytes as u64 };
        // SAFETY: this member keeps its part, and those of the others lie alike, whether they have come or not.
        let pulled = (bytes > 0 && self.pulls(pe, team)).then(|| unsafe { self.pull(pe, team, source, bytes) });
        let turn = group.meet(&pe.boot, activity, &words, cancelled)?;
        let all = [(1, "number of bytes"), (2, "root"), (3, "operation and type"), (4, "target"), (5, "source")];
        all.into_iter().try_for_each(|(at, what)| turn.same(at, what))?;
        if let Some(pulled) = pulled {
            // SAFETY: the target has as many bytes, and is this member's own.
            unsafe { pe.heap.at(pe.me(), dest).copy_from_nonoverlapping(pulled.as_ptr(), bytes) };
        } else if bytes > 0 {
            // SAFETY: all members have looked up and keep as much as they show, which is alike. No two write one byte.
            unsafe { self.share(pe, team, (dest, source), bytes) };
        }
        turn.end()
    }

    /// What a switch reads for this member, now: of members that have not come, what they have so far.
    ///
    /// # Safety
    /// All members have memory for the source.
    unsafe fn pull(&self, pe: &Pe, team: &Team, source: u64, bytes: usize) -> Vec<u8> {
        let group = &team.group;
        let share = if self.kind == Kind::ReduceScatter { group.me * bytes } else { 0 };
        let sources: Vec<_> =
            group.members.iter().map(|&member| pe.heap.at(member, source + share as u64).cast_const()).collect();
        let mut pulled = vec![0; bytes];
        if let Some(reduction) = self.reduction {
            // SAFETY: the caller vouches for the sources; there are so many elements in all.
            unsafe { reduction.run(&sources, &[pulled.as_mut_ptr()], self.count) };
        }
        pulled
    }

    /// # Safety
    /// The memory at these offsets is kept on all members, until all have done their part.
    unsafe fn share(&self, pe: &Pe, team: &Team, (dest, source): (u64, u64), bytes: usize) {
        let (group, size) = (&team.group, bytes as u64);
        let at = |member: usize, offset: u64| pe.heap.at(group.members[member], offset);
        let (me, count) = (group.me, group.members.len());
        let mine = |share: usize| at(me, dest + share as u64 * size);
        match self.kind {
            Kind::Reduce => {
                let Some(reduction) = self.reduction else { return };
                let begin = self.count * me / count;
                let elements = self.count * (me + 1) / count - begin;
                let skip = (begin * self.element) as u64;
                let sources: Vec<_> = (0..count).map(|member| at(member, source + skip).cast_const()).collect();
                let targets: Vec<_> = (0..count).map(|member| at(member, dest + skip)).collect();
                // SAFETY: so many elements of each are this member's part, and the caller vouches for them.
                unsafe { reduction.run(&sources, &targets, elements) };
            }
            Kind::ReduceScatter => {
                let Some(reduction) = self.reduction else { return };
                let sources: Vec<_> =
                    (0..count).map(|member| at(member, source + me as u64 * size).cast_const()).collect();
                // SAFETY: as above: the target is this member's own.
                unsafe { reduction.run(&sources, &[mine(0)], self.count) };
            }
            Kind::Broadcast => {
                // SAFETY: the caller vouches for both; at the root they may be the same.
                unsafe { std::ptr::copy(at(self.root as usize, source), mine(0), bytes) };
            }
            _ => {
                for member in 0..count {
                    let share = if self.kind == Kind::AllToAll { me as u64 * size } else { 0 };
                    // SAFETY: the caller vouches for both.
                    unsafe { std::ptr::copy(at(member, source + share), mine(member), bytes) };
                }
            }
        }
    }
}

/// The same on a stream.
struct Together {
    team: Arc<Team>,
    collective: Collective,
}

impl Doing for Together {
    type Kept = Buffers;

    fn keep(&self, pe: &Arc<Pe>) -> Outcome<Buffers> {
        self.collective.buffers(pe, &self.team)
    }

    fn tell<'a>(&self, buffers: &'a Buffers, name: &'static str, tell: &mut dyn FnMut(Touching<'a>)) {
        for (place, writes) in [(&buffers.source, false), (&buffers.dest, true)] {
            place.iter().for_each(|place| place.used.tell(writes, Actor::alone(name), tell));
        }
    }

    fn act(&self, pe: &Arc<Pe>, buffers: Buffers, running: &Running) {
        // What is wrong was told.
        let _ = self.collective.perform(pe, &self.team, &buffers, Some(&|| running.cancelled()));
    }
}

/// Does it now.
pub(crate) fn now(team: i32, collective: Collective) -> Outcome {
    let pe = life::pe()?;
    pe.refuse_limited()?;
    let team = pe.teams.get(team)?;
    let buffers = collective.buffers(&pe, &team)?;
    collective.perform(&pe, &team, &buffers, None)
}

/// Does it when a stream comes to it.
pub(crate) fn on_stream(team: i32, collective: Collective, stream: cudaStream_t) -> Outcome {
    let pe = life::pe()?;
    pe.refuse_limited()?;
    let team = pe.teams.get(team)?;
    if collective.by_copies(&pe, &team) {
        refuse_capture(stream, "members do not wait for each other from the second launch on, with copy engines")?;
    }
    enqueue(&pe, (stream, Where::On), Together { team, collective })
}

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Sum,
    Prod,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// Of which type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Half,
    Bfloat16,
    Float,
    Double,
}

/// A reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub(crate) operator: Operator,
    pub(crate) of: Type,
}

/// A type that is reduced.
trait Number: Copy {
    fn combine(self, operator: Operator, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            fn combine(self, operator: Operator, other: Self) -> Self {
                match operator {
                    Operator::Sum => self.wrapping_add(other),
                    Operator::Prod => self.wrapping_mul(other),
                    Operator::Min => self.min(other),
                    Operator::Max => self.max(other),
                    Operator::And => self & other,
                    Operator::Or => self | other,
                    Operator::Xor => self ^ other,
                }
            }
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($t:ty)*) => {$(
        impl Number for $t {
            fn combine(self, operator: Operator, other: Self) -> Self {
                match operator {
                    Operator::Prod => self * other,
                    // Of zeros with different signs, any may come out where NVSHMEM does not use NCCL, and another on each PE.
                    Operator::Min => if self < other { self } else { other },
                    Operator::Max => if self > other { self } else { other },
                    // Bits of floats are not combined: no function asks for that.
                    _ => self + other,
                }
            }
        }
    )*};
}
floats!(f16 bf16 f32 f64);

impl Reduction {
    /// A number that tells it from others.
    pub(crate) fn code(self) -> u64 {
        ((1 + self.operator as u64) << 8) | self.of as u64
    }

    /// Combines `count` elements of all sources, and writes the result to all targets.
    ///
    /// # Safety
    /// Sources can be read, and targets written, for so many elements. A target may be a source.
    pub(crate) unsafe fn run(self, sources: &[*const u8], targets: &[*mut u8], count: usize) {
        // SAFETY: the types are those; the caller vouches for the rest.
        unsafe {
            match self.of {
                Type::I8 => reduce::<i8>(self.operator, sources, targets, count),
                Type::I16 => reduce::<i16>(self.operator, sources, targets, count),
                Type::I32 => reduce::<i32>(self.operator, sources, targets, count),
                Type::I64 => reduce::<i64>(self.operator, sources, targets, count),
                Type::U8 => reduce::<u8>(self.operator, sources, targets, count),
                Type::U16 => reduce::<u16>(self.operator, sources, targets, count),
                Type::U32 => reduce::<u32>(self.operator, sources, targets, count),
                Type::U64 => reduce::<u64>(self.operator, sources, targets, count),
                Type::Half => reduce::<f16>(self.operator, sources, targets, count),
                Type::Bfloat16 => reduce::<bf16>(self.operator, sources, targets, count),
                Type::Float => reduce::<f32>(self.operator, sources, targets, count),
                Type::Double => reduce::<f64>(self.operator, sources, targets, count),
            }
        }
    }
}

/// Elements that are combined at once.
const BLOCK: usize = 1024;

/// # Safety
/// As for [`Reduction::run`], of elements of that type.
unsafe fn reduce<T: Number>(operator: Operator, sources: &[*const u8], targets: &[*mut u8], count: usize) {
    let mut block: Vec<T> = Vec::with_capacity(BLOCK);
    for begin in (0..count).step_by(BLOCK) {
        let length = BLOCK.min(count - begin);
        block.clear();
        for source in sources {
            let source = source.cast::<T>();
            for index in 0..length {
                // SAFETY: the caller vouches for the element.
                let value = unsafe { source.add(begin + index).read_unaligned() };
                match block.get_mut(index) {
                    Some(sum) => *sum = sum.combine(operator, value),
                    None => block.push(value),
                }
            }
        }
        for target in targets {
            // SAFETY: the caller vouches for the target, and the block has as many elements.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    block.as_ptr().cast::<u8>(),
                    target.add(begin * size_of::<T>()),
                    length * size_of::<T>(),
                )
            };
        }
    }
}

// them, and what goes wrong by words.

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
        !variable_is_set("NVSHMEM_DISABLE_NCCL", false) && !bits && !matches!(self.of, Type::I16 | Type::U16)
    }
}

/// Where each block of elements begins, and how many it has.
fn parts(count: usize, bytes: usize, threshold: usize, blocks: usize) -> Vec<(usize, usize)> {
    let blocks = if bytes < threshold {
        1
    } else {
        variable_number("NVSHMEM_MAX_CTAS").map_or(blocks, |most| most.max(1) as usize)
    };
    let each = count / blocks;
    let length = |block| if block == blocks - 1 { each + count % blocks } else { each };
    (0..blocks).map(|block| (block * each, length(block))).filter(|(_, length)| *length > 0).collect()
}

impl Collective {
    fn off_words(&self) -> crate::nvshmem::basics::Failed {
        wrong(format!(
            "{}: a switch does it by words, which {:p} or {:p} do not begin at: NVSHMEM does nothing, and says so to nobody",
            self.kind.name(),
            self.dest,
            self.source
        ))
    }

    /// Whether switches read the sources of all members, whoever has come.
    pub(super) fn pulls(&self, pe: &Pe, team: &Team) -> bool {
        let Some(reduction) = self.reduction.filter(|_| pe.switches(&team.group.members)) else { return false };
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
        let switches = pe.switches(&team.group.members);
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
        let room = variable_size("NVSHMEM_REDUCE_SCRATCH_SIZE", 1 << 19) / 2;
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
            Kind::AllToAll | Kind::Broadcast => variable_is_set("NVSHMEM_DISABLE_NCCL", false),
            _ => false,
        };
        let on = settings().nvshmem >= 3_05_00 && !variable_is_set("NVSHMEM_DISABLE_CE_COLLECTIVES", true);
        here && on && pe.switches(&team.group.members)
    }
}
