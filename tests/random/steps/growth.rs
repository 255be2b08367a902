//! Communicators of some ranks into which the others are invited.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpucomm::nccl::{InitOptions, Invitation};
use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

use super::another::id;
use super::part::works;
use crate::configs::Settings;
use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::settings::slower;
use crate::step::Step;

/// Some ranks make a part, in which one of them invites some of the others.
#[derive(Debug)]
struct Grow {
    /// In the order of their ranks there: those of the part, and those that come.
    who: [Vec<usize>; 2],
    /// Who invites, by its rank in the part.
    host: usize,
    settings: Settings,
    streams: Vec<usize>,
    /// Whether there is work on its way that is not waited for.
    behind: bool,
    /// Whether the part works on beside what came of it.
    stays: bool,
    closes: bool,
    letters: Letters,
}

pub fn grow(g: &mut Generator) -> Option<Box<dyn Step>> {
    let ranks = g.ranks();
    if ranks < 2 {
        return None;
    }
    let mut first: Vec<_> = (0..ranks).collect();
    g.rng.shuffle(&mut first);
    let mut more = first.split_off(g.rng.usize(1..ranks));
    more.truncate(g.rng.usize(1..=more.len()));
    let (host, settings) = (g.rng.usize(..first.len()), Settings::draw(&mut g.rng));
    let (behind, stays, closes) = (g.chance(2), g.chance(2), g.chance(2));
    let (who, streams) = ([first, more], g.streams());
    Some(Box::new(Grow { who, host, settings, streams, behind, stays, closes, letters: Letters::default() }))
}

impl Step for Grow {
    fn apply(&self, _: &mut Model) {}

    fn hears_of_deaths(&self) -> bool {
        false
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, stream) = (rank.number(), rank.stream(&self.streams));
        let [first, more] = &self.who;
        let place = first.iter().position(|&one| one == me);
        let options = InitOptions::new().with_timeout(rank.comm.timeout()).with_config(self.settings.config());
        let part = if rank.together {
            // A key is the place in the part.
            rank.comm.split_with(place.map(|_| 0), place.unwrap_or_default(), &self.settings.config())?
        } else {
            // Made by itself, it is configured by nothing else, as those are that come.
            let (device, id) = (rank.comm.device(), id(rank.comm, first[self.host], stream)?);
            let start = |place| {
                // SAFETY: the ranks of a program do the same on all communicators, as far as they come.
                unsafe { Communicator::init_rank_with(device, first.len(), &id, place, &options) }
            };
            place.map(start).transpose()?
        };
        let mut own = DeviceBuffer::from_slice(stream, &[1u32; 77])?;
        let host = part.as_ref().filter(|part| part.rank() == self.host);
        let invitations = host.map(|part| part.invite(more.len())).transpose();
        let invitations = match invitations {
            // No rank comes further where NCCL is an older one.
            Err(Error::Unsupported { .. }) => None,
            other => Some(other?.unwrap_or_default()),
        };
        let Some(invited) = self.send(rank, stream, invitations)? else { return Ok(()) };
        let grown = match (&part, invited) {
            (Some(part), _) => {
                if self.behind {
                    part.all_reduce(InPlace(&mut own), ReduceOp::Sum, stream)?;
                }
                part.grow(more.len())?
            }
            (None, Some(invitation)) if rank.together => invitation.accept(rank.comm.device())?,
            (None, Some(invitation)) => {
                // SAFETY: as above.
                unsafe { Communicator::join(rank.comm.device(), invitation, &options)? }
            }
            // Neither there nor invited.
            (None, None) => return Ok(()),
        };
        let there: Vec<_> = self.who.iter().flatten().copied().collect();
        works(&grown, stream, me, &there)?;
        if let Some(part) = part.filter(|_| self.stays) {
            works(&part, stream, me, first)?;
        }
        if place.is_some() {
            let expected = if self.behind { first.len() as u32 } else { 1 };
            assert_eq!(own.to_vec(stream)?, [expected; 77], "beside a communicator that grows");
        }
        if self.closes { grown.close_timeout(slower(Duration::from_secs(20))) } else { Ok(()) }
    }
}

impl Grow {
    /// Gives each rank that is to come its invitation. `None`: there are none with this NCCL.
    fn send(
        &self,
        rank: &Rank<'_>,
        stream: &Stream,
        invitations: Option<Vec<Invitation>>,
    ) -> Result<Option<Option<Invitation>>> {
        let (me, host, more) = (rank.number(), self.who[0][self.host], &self.who[1]);
        let mine = more.iter().position(|&one| one == me);
        let mut sent = vec![0; 1 + more.len() * Invitation::BYTES];
        if let Some(invitations) = invitations.filter(|_| me == host) {
            sent[0] = 1;
            if rank.together {
                self.letters.left().extend(invitations.into_iter().map(|one| (one.rank(), one)));
            } else {
                for (place, invitation) in sent[1..].chunks_exact_mut(Invitation::BYTES).zip(invitations) {
                    place.copy_from_slice(&invitation.into_bytes()?);
                }
            }
        }
        let mut got = DeviceBuffer::from_slice(stream, &sent)?;
        rank.comm.broadcast(InPlace(&mut got), host, stream)?;
        let got = got.to_vec(stream)?;
        if got[0] == 0 {
            return Ok(None);
        }
        let take = |at: usize| {
            if rank.together {
                // It was left before the others were told.
                return self.letters.left().remove(&(self.who[0].len() + at)).expect("an invitation");
            }
            let (all, _) = got[1..].as_chunks::<{ Invitation::BYTES }>();
            Invitation::from_bytes(all[at])
        };
        Ok(Some(mine.map(take)))
    }
}

/// Where ranks of a process leave invitations for others, by the rank that those will have.
#[derive(Default)]
struct Letters(Mutex<BTreeMap<usize, Invitation>>);

impl std::fmt::Debug for Letters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Letters")
    }
}

impl Letters {
    fn left(&self) -> MutexGuard<'_, BTreeMap<usize, Invitation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
