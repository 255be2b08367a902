//! PEs come together, and tell each other something.

use std::ffi::{c_int, c_void};

use super::board::{WORDS, Words};
use super::call::TRANSFER;
use super::inner::Inner;
use super::order::Also;
use super::teams::TeamState;
use super::watchdog::After;
use crate::cuda::{Address, Lend};
use crate::error::{Error, Result};
use crate::sys;

/// So many puts go in one bracket.
const AT_ONCE: usize = 32;

impl Inner {
    /// Says `words` to all PEs, and returns what each has said: they come together. Waits on the context's stream, no longer than its timeout.
    ///
    /// # Errors
    /// Where not all come in time, the context is lost: nobody knows what the others do.
    pub(super) fn say(&self, operation: &'static str, words: &Words) -> Result<Vec<Words>> {
        self.ready(operation)?;
        let pes: Vec<usize> = (0..self.n_pes).collect();
        let places = vec![self.board.next(); self.n_pes];
        let said = self.say_at(operation, words, &pes, &places, || {
            self.together_on_stream(operation, &self.stream, (self.board.whole(), &*self.world), |stream| {
                // SAFETY: the library runs, and all PEs call it as their next one.
                unsafe { sys::nvshmemx_barrier_all_on_stream(stream) };
            })
        });
        said.inspect_err(|error| self.lose(error))
    }

    /// The same among the members of a team, which other PEs need not know of. Not where PEs share devices: teams have no barrier there.
    pub(super) fn say_in(&self, operation: &'static str, words: &Words, team: &TeamState) -> Result<Vec<Words>> {
        self.ready(operation)?;
        let places: Vec<usize> = team.members.iter().map(|pe| self.board.next_with(*pe)).collect();
        let also = Also(team.beside_world.then_some(&*self.world));
        let said = self.say_at(operation, words, &team.members, &places, || {
            self.together_on_stream(operation, &self.stream, (self.board.whole(), &*team.order, also), |stream| {
                // SAFETY: the library runs, the team is there, and all of its members call it as their next one.
                unsafe { sys::nvshmemx_barrier_on_stream(team.raw, stream) };
            })
        });
        said.inspect_err(|error| self.lose(error))
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

    /// Says `words` to `pes`; to each at the place of this PE behind the one that `places` has for it. `barrier` has all of them come together.
    fn say_at(
        &self,
        operation: &'static str,
        words: &Words,
        pes: &[usize],
        places: &[usize],
        barrier: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<Words>> {
        let (stream, board) = (&self.stream, &self.board);
        let (own, mut sent) = board.own();
        sent.copy_from_slice(stream, words)?;
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
        barrier()?;
        let deadline = self.deadline();
        self.watchdog.during_meeting(operation, self.timeout, pes, After::Lost, || {
            stream.wait_until(operation, &deadline).map_err(|error| match error {
                Error::Timeout { operation, timeout, .. } => {
                    let detail = format!("PE {} of {}: not all PEs have come", self.pe, self.n_pes);
                    Error::Timeout { operation, timeout, detail }
                }
                other => other,
            })
        })?;
        let ends = places.iter().zip(pes).map(|(place, pe)| place + pe + 1);
        let all = board.first(ends.max().unwrap_or(0)).to_vec(stream)?;
        let at = |(place, pe): (&usize, &usize)| {
            let from = (place + pe) * WORDS;
            all[from..from + WORDS].try_into().expect("these are as many")
        };
        Ok(places.iter().zip(pes).map(at).collect())
    }
}
