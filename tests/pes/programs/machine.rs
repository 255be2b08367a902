//! One PE, which runs a program.

use gpucomm::nvshmem::{SymmetricBuffer, SymmetricSignals, Team, TeamConfig, TeamPe};
#[cfg(nvshmem_ge_3_3)]
use gpucomm::nvshmem::{TeamPlace, TeamUniqueId};
use gpucomm::{Error, Result, Stream};

use super::buffers::{Buffer, of_both};
use super::collectives::{collective, gather};
use super::model::Model;
use super::moves::{self, Tell};
use super::step::{Family, Meet, SLOTS, Send, Step, Transfer};
use super::teams::{plane, strided};
use crate::support::Here;
use crate::support::farewell::Farewell;

/// More than any device has.
const TOO_MUCH: usize = 1 << 50;

/// Teams side by side that have come from one call: their members, and the one of them that this PE is in.
struct Teams<'c> {
    all: Vec<Vec<usize>>,
    own: Option<Team<'c>>,
}

pub struct Machine<'c> {
    here: &'c Here<'c>,
    rng: fastrand::Rng,
    streams: [Stream; 2],
    buffers: [Option<Buffer<'c>>; SLOTS],
    teams: Vec<Teams<'c>>,
    signals: SymmetricSignals<'c>,
    flag: SymmetricBuffer<'c, u64>,
    /// What the signal of this PE holds, and what the flag.
    sent: u64,
    flagged: u64,
    model: Model,
    what: String,
}

impl<'c> Machine<'c> {
    pub fn new(here: &'c Here<'c>, seed: &str) -> Self {
        let stream = || Stream::new(here.seat.device).expect("a stream");
        let own = here.is_whole().then(|| here.ctx.world().expect("the world"));
        Self {
            here,
            rng: here.rng_of(seed, here.pe()),
            streams: [stream(), stream()],
            buffers: [const { None }; SLOTS],
            teams: vec![Teams { all: vec![(0..here.n_pes()).collect()], own }],
            signals: here.ctx.alloc_signals(1).expect("signals"),
            flag: here.ctx.alloc(1).expect("a flag"),
            sent: 0,
            flagged: 0,
            model: Model::new(),
            what: String::new(),
        }
    }

    pub fn begin(&mut self, what: String) {
        self.what = what;
    }

    pub fn what(&self) -> &str {
        &self.what
    }

    pub fn step(&mut self, step: &Step) -> Result<()> {
        let (ctx, pe, n_pes) = (self.here.ctx, self.here.pe(), self.here.n_pes());
        match step {
            Step::Alloc { slot, kind, len, zeroed } => {
                self.buffers[*slot] = Some(Buffer::alloc(ctx, *kind, *len, *zeroed)?);
                self.model.buffers[*slot] = Some((*kind, vec![vec![zeroed.then_some(0); *len]; n_pes]));
            }
            Step::Drop { slots, reclaim } => {
                let mut slots = slots.clone();
                self.rng.shuffle(&mut slots);
                for slot in slots {
                    if let Some(buffer) = self.buffers[slot].take() {
                        buffer.go(Farewell::draw(&mut self.rng, false), &self.streams[0])?;
                    }
                    self.model.buffers[slot] = None;
                }
                // What goes in a host function may still be there when the context ends.
                self.streams[0].synchronize()?;
                if *reclaim {
                    ctx.reclaim()?;
                }
            }
            Step::Fill { slot, part, value, stream } => {
                let buffer = self.buffers[*slot].as_mut().expect("it is there");
                let own = |pe: usize| value.wrapping_add(pe as u64);
                buffer.fill(part.clone(), &self.streams[*stream], own(pe))?;
                self.model.fill(*slot, part.clone(), own);
                self.meet(Meet::Exchange)?;
            }
            Step::Transfers { target, source, all, meet } => {
                for one in all.iter().filter(|one| one.by == pe) {
                    self.transfer(*target, *source, one, None)?;
                }
                self.meet(*meet)?;
                self.model.transfers(*target, *source, all);
            }
            Step::Graph { target, source, all, launches } => {
                // Nothing of it is done for the first time within the capture.
                ctx.on(&self.streams[0]).barrier_all()?;
                self.meet(Meet::Exchange)?;
                let stream = Stream::new(self.here.seat.device)?;
                let mut own = all.iter().filter(|one| one.by == pe);
                let graph = stream.capture(|stream| {
                    own.try_for_each(|one| self.transfer(*target, *source, one, Some(stream)))?;
                    ctx.on(stream).barrier_all()
                })?;
                for _ in 0..*launches {
                    graph.launch(&stream)?;
                }
                stream.synchronize()?;
                self.meet(Meet::Exchange)?;
                self.model.transfers(*target, *source, all);
            }
            Step::Ring { target, source, len, at, by, send, add, stream } => {
                self.ring((*target, *source), (*len, *at), *by, (*send, *add), *stream)?;
                self.model.ring((*target, *source), *len, *at, *by);
            }
            Step::Split { start, stride, size } => {
                let members = strided(&self.teams[0].all[0], *start, *stride, *size);
                let own = self.world().split_strided(TeamPe(*start), *stride, *size, &TeamConfig::default())?;
                self.have(vec![members], own);
            }
            Step::Plane { wide } => {
                let (rows, columns) = plane(&self.teams[0].all[0], *wide);
                let (row, column) = self.world().split_2d(*wide, &TeamConfig::default(), &TeamConfig::default())?;
                self.have(rows, Some(row));
                self.have(columns, Some(column));
            }
            Step::ById { order } => self.by_id(order)?,
            Step::Forget { teams } => drop(self.teams.remove(*teams)),
            Step::Collective { teams, family, target, source, count, stream } => {
                self.collective(*teams, *family, *target, *source, *count, *stream)?;
                self.meet(Meet::Exchange)?;
                for members in &self.teams[*teams].all {
                    self.model.collective(members, *family, *target, *source, *count);
                }
            }
            Step::Gather { teams, how, stream } => {
                if let Some(team) = &mut self.teams[*teams].own {
                    gather(team, *how, &self.streams[*stream])?;
                }
            }
            Step::Shortage { zeroed, reclaim } => {
                let asked = if *zeroed { ctx.alloc::<u8>(TOO_MUCH) } else { ctx.alloc_uninit(TOO_MUCH) };
                assert!(matches!(asked, Err(Error::OutOfMemory { .. })), "{}: {asked:?}", self.what);
                if *reclaim {
                    ctx.reclaim()?;
                }
            }
            Step::Reclaim => ctx.reclaim()?,
        }
        Ok(())
    }

    /// All that this PE has is as the model has it.
    pub fn check(&self) {
        for (buffer, elements) in self.buffers.iter().zip(&self.model.buffers) {
            let (Some(buffer), Some((_, elements))) = (buffer, elements) else { continue };
            let got = buffer.to_numbers(self.here.stream).expect("a copy");
            let want = &elements[self.here.pe()];
            let wrong = |(got, want): (&u64, &Option<u64>)| want.is_some_and(|want| want != *got);
            if let Some(at) = got.iter().zip(want).position(wrong) {
                let count = got.iter().zip(want).filter(|(got, want)| wrong((got, want))).count();
                panic!(
                    "{}: {count} of {} wrong, [{at}]: got {}, expected {:?}",
                    self.what,
                    got.len(),
                    got[at],
                    want[at]
                );
            }
        }
        self.here.seat.meet();
    }

    fn meet(&mut self, how: Meet) -> Result<()> {
        self.streams.iter().try_for_each(Stream::synchronize)?;
        let ctx = self.here.ctx;
        match how {
            Meet::Barrier => ctx.barrier_all()?,
            Meet::BarrierOnStream => {
                ctx.on(&self.streams[1]).barrier_all()?;
                self.streams[1].synchronize()?;
            }
            Meet::QuietSync => {
                ctx.quiet()?;
                ctx.sync_all()?;
            }
            Meet::Exchange => {
                ctx.quiet()?;
                self.here.seat.meet();
            }
        }
        Ok(())
    }

    fn transfer(&mut self, target: usize, source: usize, one: &Transfer, captured: Option<&Stream>) -> Result<()> {
        let Self { here, streams, buffers, .. } = self;
        let stream = captured.unwrap_or(&streams[one.stream]);
        let both = two(buffers, target, source);
        of_both!(both, target source => moves::transfer(here, target, source, one, stream))
    }

    fn ring(
        &mut self,
        (target, source): (usize, usize),
        part: (usize, (usize, usize)),
        by: usize,
        (send, add): (Send, bool),
        stream: usize,
    ) -> Result<()> {
        let Self { here, streams, buffers, signals, flag, sent, flagged, .. } = self;
        let stream = &streams[stream];
        *(if send == Send::Value { &mut *flagged } else { &mut *sent }) += 1;
        let tell = Tell { signals, flag, sent: *sent, flagged: *flagged, add };
        let (both, to) = (two(buffers, target, source), here.next(by));
        of_both!(both, target source => moves::ring(here, target, source, part, to, send, &tell, stream))?;
        stream.synchronize()?;
        assert_eq!(here.ctx.signal_fetch(signals.at(0))?, *sent);
        here.seat.meet();
        Ok(())
    }

    fn world(&mut self) -> &mut Team<'c> {
        self.teams[0].own.as_mut().expect("all are in it")
    }

    /// Teams that are there now, of one of which this PE is, or of none.
    fn have(&mut self, all: Vec<Vec<usize>>, own: Option<Team<'c>>) {
        let (pe, what) = (self.here.pe(), &self.what);
        let members = all.iter().find(|members| members.contains(&pe));
        assert_eq!(members.is_some(), own.is_some(), "{what}");
        if let (Some(members), Some(team)) = (members, &own) {
            let got: Vec<usize> = (0..team.n_pes()).map(|at| team.world_pe(TeamPe(at)).expect("a member").0).collect();
            let place = members.iter().position(|one| *one == pe);
            assert_eq!((&got, Some(team.pe().0)), (members, place), "{what}");
        }
        self.teams.push(Teams { all, own });
    }

    #[cfg(nvshmem_ge_3_3)]
    fn by_id(&mut self, order: &[usize]) -> Result<()> {
        let (here, pe) = (self.here, self.here.pe());
        let ids = here.seat.exchange.all_gather(&here.ctx.team_unique_id()?.to_bytes())?;
        let id = TeamUniqueId::from_bytes(ids[order[0]].as_slice().try_into().expect("as many bytes"));
        let place = order.iter().position(|member| *member == pe);
        let place = place.map(|at| TeamPlace { id, pe: TeamPe(at), n_pes: order.len() });
        let own = here.ctx.team(place, &TeamConfig::default())?;
        self.have(vec![order.to_vec()], own);
        Ok(())
    }

    /// Older libraries have none: it is split off, with its members the usual way round.
    #[cfg(not(nvshmem_ge_3_3))]
    fn by_id(&mut self, _order: &[usize]) -> Result<()> {
        let all = self.teams[0].all.clone();
        let own = self.world().split_strided(TeamPe(0), 1, all[0].len(), &TeamConfig::default())?;
        self.have(all, own);
        Ok(())
    }

    fn collective(
        &mut self,
        teams: usize,
        family: Family,
        target: (usize, usize),
        source: (usize, usize),
        count: usize,
        stream: Option<usize>,
    ) -> Result<()> {
        let Self { streams, buffers, teams: all, .. } = self;
        let Some(team) = &mut all[teams].own else { return Ok(()) };
        let (to_len, from_len) = family.lens(count, team.n_pes());
        let stream = stream.map(|stream| &streams[stream]);
        let both = two(buffers, target.0, source.0);
        of_both!(both, to from => {
            let to = to.symmetric_mut(target.1..target.1 + to_len);
            collective(team, family, to, from.symmetric(source.1..source.1 + from_len), stream)
        })
    }
}

/// Two different buffers.
fn two<'a, 'c>(
    buffers: &'a mut [Option<Buffer<'c>>; SLOTS],
    target: usize,
    source: usize,
) -> (&'a mut Buffer<'c>, &'a mut Buffer<'c>) {
    match buffers.get_disjoint_mut([target, source]) {
        Ok([Some(target), Some(source)]) => (target, source),
        _ => unreachable!("two that are there"),
    }
}
