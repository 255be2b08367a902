//! What members of a team do together with memory.
//!
//! Each shows where its memory is; then it takes from the others what it needs, and all wait until everybody has. Of a reduction,
//! each member computes a part, in the order of the members, and gives it to all: so all have the same bits.

use std::ffi::c_void;
use std::sync::Arc;

use super::reduce::Reduction;
use super::stream::{Doing, Place as Where, enqueue, refuse_capture};
use crate::cuda::core::work::Running;
use crate::nvshmem::basics::entry::{Outcome, wrong};
use crate::nvshmem::basics::kind::Kind;
use crate::nvshmem::state::deed::Activity;
use crate::nvshmem::state::heap::Place;
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::Pe;
use crate::nvshmem::state::team::Team;
use crate::races::touches::{Actor, Touching};
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
        let (circle, bytes) = (&team.circle, buffers.bytes);
        let at = |place: &Option<Place>| place.as_ref().map_or(0, |place| place.offset);
        let (dest, source) = (at(&buffers.dest), at(&buffers.source));
        let operation = self.reduction.map_or(0, Reduction::code);
        let words = [bytes as u64, self.root as u64, operation, dest, source];
        let activity = Activity { kind: self.kind, team: 0, number: 0, bytes: bytes as u64 };
        // SAFETY: this member keeps its part, and those of the others lie alike, whether they have come or not.
        let pulled = (bytes > 0 && self.pulls(pe, team)).then(|| unsafe { self.pull(pe, team, source, bytes) });
        let turn = circle.meet(&pe.boot, activity, &words, cancelled)?;
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
        let circle = &team.circle;
        let share = if self.kind == Kind::ReduceScatter { circle.me * bytes } else { 0 };
        let sources: Vec<_> =
            circle.members.iter().map(|&member| pe.heap.at(member, source + share as u64).cast_const()).collect();
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
        let (circle, size) = (&team.circle, bytes as u64);
        let at = |member: usize, offset: u64| pe.heap.at(circle.members[member], offset);
        let (me, count) = (circle.me, circle.members.len());
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
