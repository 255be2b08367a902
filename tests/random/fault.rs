//! What goes wrong at the end of a program, at a fixed place, so that every run of it has the same end.
//!
//! What ranks see then has to be the same everywhere, so what depends on who comes first is left out: which of several waiting ranks
//! is the one whose deadline ends the communicator, and which two ranks a disagreement names.

use std::time::Duration;

use gpucomm::nccl::AbortOutcome;
use gpucomm::{Backend, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

use crate::meet::Meet;
use crate::rank::Rank;
use crate::record::{kind_of, outcome};
use crate::settings::{rng, slower};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One rank does not come.
    Away,
    /// It returns from its program.
    Returns,
    /// It aborts before the others begin, or while they wait.
    AbortBefore,
    AbortDuring,
    /// It waits for a message that nobody sends.
    Unsent,
    /// It does the same with another number of elements, and so on.
    OtherCount,
    OtherType,
    OtherReduction,
    OtherRoot,
    OtherOperation,
    /// Its process is killed.
    Killed,
}

/// What may happen among threads, and what among processes: there nobody compares what ranks do, and an abort is not told to others.
const AMONG_THREADS: [Kind; 10] = [
    Kind::Away,
    Kind::Returns,
    Kind::AbortBefore,
    Kind::AbortDuring,
    Kind::Unsent,
    Kind::OtherCount,
    Kind::OtherType,
    Kind::OtherReduction,
    Kind::OtherRoot,
    Kind::OtherOperation,
];
const AMONG_PROCESSES: [Kind; 2] = [Kind::Away, Kind::Killed];

#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub kind: Kind,
    /// Whose it is.
    pub who: usize,
}

impl Fault {
    /// The fault of a seed: none for a rank alone.
    pub fn draw(seed: u64, ranks: usize, processes: bool) -> Option<Self> {
        let mut rng = rng(seed, "fault");
        let kinds: &[Kind] = if processes { &AMONG_PROCESSES } else { &AMONG_THREADS };
        let (kind, who) = (kinds[rng.usize(..kinds.len())], rng.usize(..ranks));
        (ranks > 1).then_some(Self { kind, who })
    }

    /// How long ranks then wait for what does not come.
    pub fn timeout() -> Duration {
        slower(Duration::from_millis(if gpucomm::backend() == Backend::Nvidia { 3000 } else { 1000 }))
    }

    /// Plays this rank's part of it among threads, and returns what it saw.
    pub fn among_threads(&self, rank: &Rank<'_>, meet: &Meet) -> Result<Vec<String>> {
        let mut actor = self.actor(rank)?;
        // The deadline is everybody's, and the way to the others is known: whoever issues does not wait in the call.
        gpucomm::set_default_timeout(Self::timeout());
        rank.comm.set_timeout(Self::timeout());
        meet.wait();
        let is_mine = rank.number() == self.who;
        let mut seen = Vec::new();
        let before = matches!(self.kind, Kind::AbortBefore | Kind::Unsent);
        if !before && !is_mine {
            seen.push(outcome(&actor.issue(self.kind, false)));
        }
        if !before {
            meet.wait();
        }
        if is_mine {
            match self.kind {
                Kind::Away | Kind::Returns | Kind::Killed => {}
                Kind::AbortBefore | Kind::AbortDuring => {
                    let ended = rank.comm.aborter().abort("a fault of a program");
                    assert_ne!(ended, AbortOutcome::StillRunning, "an abort has not ended");
                    seen.push("aborts".to_owned());
                }
                Kind::Unsent => {
                    let issued = actor.receive((self.who + 1) % rank.comm.size());
                    seen.push(outcome(&issued.and_then(|()| actor.wait())));
                }
                other => seen.push(outcome(&actor.issue(other, true))),
            }
            if self.kind == Kind::Returns {
                return Ok(seen);
            }
        }
        if before {
            meet.wait();
            seen.push(outcome(&actor.issue(self.kind, false)));
            return Ok(seen);
        }
        if is_mine && self.kind == Kind::Away {
            // When the others have given up.
            meet.wait();
            seen.push(outcome(&actor.issue(self.kind, false)));
            return Ok(seen);
        }
        let waited = actor.wait();
        seen.push(match (self.kind, rank.number()) {
            (Kind::Away, _) => given_up(&waited),
            // NCCL hands the elements of a broadcast on from rank to rank: the root, and whoever comes before the rank that has another
            // one, may be done before they are told.
            (Kind::OtherRoot, _) if matches!(waited, Err(Error::Disagreement { .. })) => outcome(&Ok(())),
            _ => outcome(&waited),
        });
        if self.kind == Kind::Away {
            meet.wait();
        }
        Ok(seen)
    }

    /// The same in a process of its own.
    pub fn among_processes(&self, rank: &Rank<'_>) -> Result<Vec<String>> {
        let mut actor = self.actor(rank)?;
        gpucomm::set_default_timeout(Self::timeout());
        rank.comm.set_timeout(Self::timeout());
        if rank.number() != self.who {
            let issued = actor.issue(self.kind, false);
            let waited = actor.wait();
            return Ok(vec![outcome(&issued), given_up(&waited)]);
        }
        if self.kind == Kind::Killed {
            let id = std::process::id().to_string();
            let sent = std::process::Command::new("kill").args(["-KILL", &id]).status();
            panic!("this process still runs: {sent:?}");
        }
        // It is still there when the others give up.
        std::thread::sleep(2 * Self::timeout());
        Ok(vec!["stays away".to_owned()])
    }

    fn actor<'c>(&self, rank: &Rank<'c>) -> Result<Actor<'c>> {
        let stream = Stream::new(rank.comm.device())?;
        let data = DeviceBuffer::zeroed(&stream, LEN + 1)?;
        let mut actor = Actor { comm: rank.comm, data, others: DeviceBuffer::zeroed(&stream, LEN)?, stream };
        Rank::connect(rank.comm)?;
        // Twice: what is done the first time may have to meet the others in the call.
        actor.issue(self.kind, false)?;
        actor.issue(self.kind, false)?;
        actor.wait()?;
        Ok(actor)
    }
}

/// A wait that ends by a deadline, one's own or that of another rank.
fn given_up(waited: &Result<()>) -> String {
    match waited {
        Err(Error::Timeout { operation, .. } | Error::Aborted { operation, .. }) => format!("gives up in {operation}"),
        Err(other) => kind_of(other),
        Ok(()) => "ok".to_owned(),
    }
}

/// How many elements the operations have.
const LEN: usize = 1000;

/// One rank in the last scene.
struct Actor<'c> {
    comm: &'c Communicator,
    stream: Stream,
    data: DeviceBuffer<i32>,
    others: DeviceBuffer<u32>,
}

impl Actor<'_> {
    /// What all ranks do, or what only the one does that differs.
    fn issue(&mut self, kind: Kind, differs: bool) -> Result<()> {
        let (comm, stream) = (self.comm, &self.stream);
        let len = if differs && kind == Kind::OtherCount { LEN + 1 } else { LEN };
        let data = InPlace(self.data.slice_mut(..len));
        match (kind, differs) {
            (Kind::OtherType, true) => comm.all_reduce(InPlace(&mut self.others), ReduceOp::Sum, stream),
            (Kind::OtherReduction, true) => comm.all_reduce(data, ReduceOp::Max, stream),
            (Kind::OtherOperation, true) => comm.broadcast(data, 0, stream),
            (Kind::OtherRoot, differs) => comm.broadcast(data, usize::from(differs), stream),
            _ => comm.all_reduce(data, ReduceOp::Sum, stream),
        }
    }

    fn receive(&mut self, from: usize) -> Result<()> {
        self.comm.recv(&mut self.others, from, &self.stream)
    }

    fn wait(&self) -> Result<()> {
        self.stream.synchronize()
    }
}
