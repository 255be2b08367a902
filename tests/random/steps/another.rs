//! Another communicator of some ranks, made from an id, which another library has for a while.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, sys};

use super::part::works;
use crate::configs::Settings;
use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::settings::slower;
use crate::step::Step;

/// How often a rank that waits for others looks whether they still come.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Another {
    /// In the order of their ranks there.
    who: Vec<usize>,
    /// Who makes the id, of whichever ranks.
    maker: usize,
    settings: Settings,
    streams: Vec<usize>,
    /// Whether memory is allocated with it, and taken away before it is given away.
    allocates: bool,
    /// How often it is given away, and comes back.
    given: usize,
    closes: bool,
    there: Place,
}

pub fn another(g: &mut Generator) -> Option<Box<dyn Step>> {
    let mut who: Vec<_> = (0..g.ranks()).collect();
    g.rng.shuffle(&mut who);
    who.truncate(g.rng.usize(1..=g.ranks()));
    let (maker, settings) = (g.rng.usize(..g.ranks()), Settings::draw(&mut g.rng));
    let (allocates, given, closes) = (g.chance(2), g.rng.usize(..3), g.chance(2));
    let streams = g.streams();
    Some(Box::new(Another { who, maker, settings, streams, allocates, given, closes, there: Place::default() }))
}

impl Step for Another {
    fn apply(&self, _: &mut Model) {}

    fn hears_of_deaths(&self) -> bool {
        false
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, stream) = (rank.number(), rank.stream(&self.streams));
        let id = id(rank.comm, self.maker, stream)?;
        let Some(place) = self.who.iter().position(|&one| one == me) else { return Ok(()) };
        let options = InitOptions::new().with_timeout(rank.comm.timeout()).with_config(self.settings.config());
        let (device, size) = (rank.comm.device(), self.who.len());
        // SAFETY: the ranks of a program do the same on all communicators, as far as they come.
        let mut other = unsafe { Communicator::init_rank_with(device, size, &id, place, &options)? };
        works(&other, stream, me, &self.who)?;
        // One that shares with its parts is not given away.
        let shares = std::env::var("NCCL_COMM_SPLIT_SHARE_RESOURCES").is_ok_and(|value| value == "1");
        for round in 0..if shares { 0 } else { self.given } {
            if self.allocates {
                let mut memory = other.alloc::<u32>(stream, 501)?;
                memory.fill(stream, me as u32 + 1)?;
                other.all_reduce(InPlace(&mut memory), ReduceOp::Max, stream)?;
                let most = self.who.iter().max().map_or(0, |&most| most as u32 + 1);
                assert_eq!(memory.to_vec(stream)?, [most; 501], "the most of another communicator");
                drop(memory);
                other.reclaim()?;
            }
            // What is on its way is done before others have it.
            let mut sum = DeviceBuffer::from_slice(stream, &[round as i64 + 1; 333])?;
            other.all_reduce(InPlace(&mut sum), ReduceOp::Sum, stream)?;
            other = self.there.and_back(rank, other, self.who.len())?;
            assert_eq!((other.rank(), other.size(), other.device()), (place, size, device), "after it was given away");
            assert_eq!(sum.to_vec(stream)?, [(round as i64 + 1) * size as i64; 333], "a sum of another communicator");
            works(&other, stream, me, &self.who)?;
        }
        if self.closes { other.close_timeout(slower(Duration::from_secs(20))) } else { Ok(()) }
    }
}

/// An id, which its maker sends to all ranks.
pub fn id(comm: &Communicator, maker: usize, stream: &Stream) -> Result<UniqueId> {
    let bytes = if comm.rank() == maker { *UniqueId::new()?.as_bytes() } else { [0; UniqueId::BYTES] };
    let mut sent = DeviceBuffer::from_slice(stream, &bytes)?;
    comm.broadcast(InPlace(&mut sent), maker, stream)?;
    let bytes = sent.to_vec(stream)?;
    Ok(UniqueId::from_bytes(bytes.try_into().expect("the bytes of an id")))
}

/// A handle on its way through a thread.
#[derive(Debug, Clone, Copy)]
struct Raw(sys::ncclComm_t);

// SAFETY: NCCL takes communicators from any thread.
unsafe impl Send for Raw {}

impl Raw {
    /// What another library may do with it.
    fn is_used(self, expected: (usize, usize)) {
        let (mut rank, mut size): (c_int, c_int) = (-1, -1);
        // SAFETY: it lives, and there are places for the answers.
        let codes = unsafe { [sys::ncclCommUserRank(self.0, &mut rank), sys::ncclCommCount(self.0, &mut size)] };
        assert_eq!(codes, [sys::ncclResult_t::ncclSuccess; 2]);
        assert_eq!((rank as usize, size as usize), expected, "a communicator that was given away");
    }

    /// Ends it as another library would.
    fn end(self) {
        // SAFETY: it was given away, nobody took it over, and nobody uses it.
        let code = unsafe { sys::ncclCommAbort(self.0) };
        assert_eq!(code, sys::ncclResult_t::ncclSuccess, "an abort by another library");
    }
}

/// Where the ranks of a process leave what they give away: one takes all of it over, as there must be none that another has.
#[derive(Default)]
struct Place {
    round: Mutex<Round>,
    changed: Condvar,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Place")
    }
}

/// By the ranks of the communicator.
#[derive(Default)]
struct Round {
    given: BTreeMap<usize, Raw>,
    taken: BTreeMap<usize, Result<Communicator>>,
}

impl Place {
    /// Gives `other` away, and takes it over again, with all ranks of it that this process has.
    fn and_back(&self, rank: &Rank<'_>, other: Communicator, size: usize) -> Result<Communicator> {
        let (at, begin) = (other.rank(), Instant::now());
        let timeout = other.timeout();
        let raw = Raw(other.into_raw()?);
        raw.is_used((at, size));
        if !rank.together {
            // SAFETY: it was given away, with nothing registered, and the process has no other rank of it.
            return unsafe { Communicator::from_raw(raw.0) }.inspect(|other| other.set_timeout(timeout));
        }
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        round.given.insert(at, raw);
        if round.given.len() == size {
            round.take_over();
            self.changed.notify_all();
        }
        loop {
            if let Some(taken) = round.taken.remove(&at) {
                return taken.inspect(|other| other.set_timeout(timeout));
            }
            if let Err(error) = failure(rank.comm, begin.elapsed()) {
                if let Some(raw) = round.given.remove(&at) {
                    raw.end();
                }
                return Err(error);
            }
            (round, _) = self.changed.wait_timeout(round, LOOK).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Why the others do not come any more.
fn failure(comm: &Communicator, waited: Duration) -> Result<()> {
    if waited > comm.timeout() {
        let _ = comm.aborter().abort("ranks did not give away what others did");
    }
    comm.async_error()
}

impl Round {
    fn take_over(&mut self) {
        let given = std::mem::take(&mut self.given);
        let raw: Vec<_> = given.values().map(|raw| raw.0).collect();
        // SAFETY: they were given away, with nothing registered, and these are all ranks.
        match unsafe { Communicator::from_raw_all(&raw) } {
            Ok(all) => self.taken.extend(given.into_keys().zip(all.into_iter().map(Ok))),
            Err(error) => {
                // Where the program has failed, they were taken over, and have ended.
                let ended = matches!(error, Error::Aborted { .. });
                given.values().filter(|_| !ended).for_each(|raw| raw.end());
                self.taken.extend(given.into_keys().map(|at| (at, Err(error.clone()))));
            }
        }
    }
}
