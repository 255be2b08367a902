//! PEs come together, and tell each other something.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use super::board::{WORDS, Words};
use super::call::TRANSFER;
use super::inner::Inner;
use super::lateness::milliseconds;
use super::notes::Point;
use super::order::OrderUse;
use super::teams::TeamState;
use super::wait_state::Awaited;
use crate::cuda::{Address, Lend};
use crate::deadline::Deadline;
use crate::error::Result;
use crate::sys;

/// So many puts go in one bracket.
const AT_ONCE: usize = 32;

/// The word in which a PE says its timeout.
pub(super) const TIMEOUT: usize = WORDS - 1;

/// Where some PEs come together.
struct Place<'p> {
    point: Point,
    awaited: &'p Awaited,
    pes: &'p [usize],
    /// The place of each of them on the board, behind which lies that of this PE.
    places: &'p [usize],
    /// When none of them had come here yet.
    since: Option<Instant>,
}

impl Inner {
    /// Says `words` to all PEs, and returns what each has said: they come together. Waits on the context's stream, no longer than its timeout.
    ///
    /// # Errors
    /// Where not all come in time, or one has ended, or has given up on this PE, the context is lost: nobody knows what the others do.
    pub(super) fn say(&self, operation: &'static str, words: &Words) -> Result<Vec<Words>> {
        self.ready(operation)?;
        let (pes, begun) = ((0..self.n_pes).collect::<Vec<_>>(), Instant::now());
        let point = (0, self.board.rounds());
        let places = vec![self.board.next(); self.n_pes];
        let place = Place { point, awaited: &Awaited::All, pes: &pes, places: &places, since: self.met.get() };
        let said = self.say_at(operation, words, &place, || {
            self.together_on_stream(
                operation,
                &self.stream,
                (self.board.whole(), OrderUse::exclusive(&*self.world)),
                &Awaited::All,
                |stream| {
                    // SAFETY: the library runs, and all PEs call it as their next one.
                    unsafe { sys::nvshmemx_barrier_all_on_stream(stream) };
                },
            )
        });
        self.met.set(begun);
        said.inspect_err(|error| {
            self.watchdog.abandon(operation, point, error);
            self.lose(error);
        })
    }

    /// The same among the members of a team, which other PEs need not know of. Not where PEs share devices: teams have no barrier there.
    pub(super) fn say_in(&self, operation: &'static str, words: &Words, team: &TeamState) -> Result<Vec<Words>> {
        self.ready(operation)?;
        let begun = Instant::now();
        let places: Vec<usize> = team.members.iter().map(|pe| self.board.next_with(*pe)).collect();
        let (point, awaited) = ((team.key, team.next_meeting()), team.awaited());
        let since = self.met.get().max(team.met.get());
        let place = Place { point, awaited: &awaited, pes: &team.members, places: &places, since };
        let said = self.say_at(operation, words, &place, || {
            let order = OrderUse::exclusive(&*team.order);
            let world = OrderUse::exclusive(team.beside_world.then_some(&*self.world));
            let memory = (self.board.whole(), order, world);
            self.together_on_stream(operation, &self.stream, memory, &awaited, |stream| {
                // SAFETY: the library runs, the team is there, and all of its members call it as their next one.
                unsafe { sys::nvshmemx_barrier_on_stream(team.raw, stream) };
            })
        });
        team.met.set(begun);
        said.inspect_err(|error| {
            self.watchdog.abandon(operation, point, error);
            self.lose(error);
        })
    }

    /// Has `f` enqueue the transfer of a word, which holds `bits`, from symmetric memory of this PE to `memory`, on the context's own stream, and waits for it.
    pub(crate) fn send<M: Lend>(
        &self,
        operation: &'static str,
        bits: u64,
        memory: M,
        f: impl FnOnce(*const c_void, sys::cudaStream_t),
    ) -> Result<()> {
        self.ready(operation)?;
        let (own, mut sent) = self.board.own();
        let mut words = [0; WORDS];
        words[0] = bits;
        sent.copy_from_slice(&self.stream, &words)?;
        let memory = (self.board.whole(), memory);
        self.on_own_stream(operation, TRANSFER, memory, |stream| f(own.ptr().cast_const(), stream))
    }

    /// Says `words` to the PEs of `place`. `barrier` has all of them come together.
    fn say_at(
        &self,
        operation: &'static str,
        words: &Words,
        place: &Place<'_>,
        barrier: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<Words>> {
        let (stream, board) = (&self.stream, &self.board);
        let &Place { point, awaited, pes, places, since } = place;
        let (own, mut sent) = board.own();
        let mut words = *words;
        words[TIMEOUT] = milliseconds(self.timeout);
        sent.copy_from_slice(stream, &words)?;
        let target = |place: &usize| board.place(place + self.pe);
        let puts: Vec<(Address, c_int)> = places.iter().map(target).zip(pes.iter().map(|pe| *pe as c_int)).collect();
        for some in puts.chunks(AT_ONCE) {
            self.on_stream(operation, stream, TRANSFER * some.len(), board.whole(), |stream| {
                for (target, pe) in some {
                    // SAFETY: the places are those of one PE's words, in symmetric memory, and lie apart; `pe` is one.
                    unsafe {
                        sys::nvshmemx_putmem_on_stream(target.ptr(), own.ptr(), size_of::<Words>(), *pe, stream);
                    }
                }
            })?;
        }
        let deadline = self.deadline();
        barrier()?;
        self.watchdog.during_wait(operation, self.timeout, awaited, |waiting| {
            // Where another PE has gone on at this one's deadline, this one waits once more.
            let longest = Deadline::after(self.timeout.saturating_mul(3));
            let detail = || format!("PE {} of {}: not all PEs have come", self.pe, self.n_pes);
            stream.wait_unless(operation, &longest, || waiting.gives_up(point, detail))
        })?;
        let ends = places.iter().zip(pes).map(|(place, pe)| place + pe + 1);
        let all = board.first(ends.max().unwrap_or(0)).to_vec(stream)?;
        let at = |(place, pe): (&usize, &usize)| {
            let from = (place + pe) * WORDS;
            all[from..from + WORDS].try_into().expect("these are as many")
        };
        let said: Vec<Words> = places.iter().zip(pes).map(at).collect();
        self.shortest.hear(said.iter().map(|words| words[TIMEOUT]));
        if pes.len() > 1 && self.watchdog.may_be_given_up(&self.shortest, since) {
            self.watchdog.pass(operation, point, &deadline)?;
        }
        Ok(said)
    }
}
