//! Operations between ranks: alone, in groups, and messages that are grouped as each rank likes.

use gpucomm::Result;

use crate::collective::Collective;
use crate::generator::{Generator, SLOTS};
use crate::message::Message;
use crate::model::{Factors, Model};
use crate::operation::{Half, Operation, Target};
use crate::rank::{Rank, Way};
use crate::step::Step;

/// One collective.
#[derive(Debug)]
struct Alone {
    operation: Operation,
    ways: Vec<Way>,
}

pub fn collective(g: &mut Generator) -> Option<Box<dyn Step>> {
    let recv = g.live()?;
    let collective = Collective::draw(g, Target::whole(recv))?;
    let ways = g.each(|g| if g.chance(12) { Way::Elsewhere } else { Way::OneByOne });
    Some(Box::new(Alone { operation: Operation::Collective(Box::new(collective)), ways }))
}

impl Step for Alone {
    fn apply(&self, model: &mut Model) {
        model.flow(&self.operation.flows());
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        rank.issue(&[&self.operation], self.ways[rank.number()])
    }
}

/// Which buffers of a rank a group reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Free,
    Read,
    Written,
}

/// The roles of every buffer on every rank.
struct Roles(Vec<[Role; SLOTS]>);

impl Roles {
    fn new(ranks: usize) -> Self {
        Self(vec![[Role::Free; SLOTS]; ranks])
    }

    /// Whether these operations may join; then their buffers are taken. Several that write one buffer write different halves.
    fn take(&mut self, operations: &[Operation]) -> bool {
        let ranks: Vec<_> = (0..self.0.len()).map(|rank| uses(operations, rank)).collect();
        let free = self.0.iter().zip(&ranks).all(|(roles, (read, written))| {
            read.iter().all(|&slot| roles[slot] != Role::Written)
                && written.iter().all(|slot| roles[*slot] == Role::Free && !read.contains(slot))
        });
        if free {
            for (roles, (read, written)) in self.0.iter_mut().zip(ranks) {
                read.into_iter().for_each(|slot| roles[slot] = Role::Read);
                written.into_iter().for_each(|slot| roles[slot] = Role::Written);
            }
        }
        free
    }
}

/// The slots that a rank reads, and those that it writes.
fn uses(operations: &[Operation], rank: usize) -> (Vec<usize>, Vec<usize>) {
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for operation in operations {
        read.extend(operation.read(rank).map(|region| region.slot));
        if let Factors::Device(places) = operation.factors() {
            read.push(places[rank].slot);
        }
        written.extend(operation.written(rank).map(|(target, _)| target.slot));
    }
    (read, written)
}

/// The whole of a buffer, or both halves.
fn targets(g: &mut Generator, slot: usize) -> Vec<Target> {
    let len = g.model.contents(slot).len();
    if len < 2 || !g.chance(4) {
        return vec![Target::whole(slot)];
    }
    let mid = g.rng.usize(1..len);
    [Half::Front, Half::Back].map(|half| Target { slot, half: Some((mid, half)) }).to_vec()
}

fn some_message(g: &mut Generator, target: Target) -> Option<Operation> {
    let ranks = (g.rng.usize(..g.ranks()), g.rng.usize(..g.ranks()));
    Message::draw(g, ranks, target).map(Operation::Message)
}

fn some_collective(g: &mut Generator, target: Target) -> Option<Operation> {
    Collective::draw(g, target).map(|collective| Operation::Collective(Box::new(collective)))
}

/// Operations that do not touch what another of them writes.
fn together(
    g: &mut Generator,
    attempts: usize,
    draw: fn(&mut Generator, Target) -> Option<Operation>,
) -> Option<Vec<Operation>> {
    let (mut roles, mut all) = (Roles::new(g.ranks()), Vec::new());
    for _ in 0..attempts {
        let slot = g.live()?;
        let drawn: Vec<Operation> = targets(g, slot).into_iter().filter_map(|target| draw(g, target)).collect();
        if roles.take(&drawn) {
            all.extend(drawn);
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Several operations in one group, on several streams.
#[derive(Debug)]
struct Grouped(Vec<Operation>);

pub fn group(g: &mut Generator) -> Option<Box<dyn Step>> {
    let attempts = g.rng.usize(2..9);
    let operations =
        together(
            g,
            attempts,
            |g, target| {
                if g.chance(4) { some_message(g, target) } else { some_collective(g, target) }
            },
        )?;
    Some(Box::new(Grouped(operations)))
}

impl Step for Grouped {
    fn apply(&self, model: &mut Model) {
        let flows: Vec<_> = self.0.iter().flat_map(Operation::flows).collect();
        model.flow(&flows);
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        rank.issue(&self.0.iter().collect::<Vec<_>>(), Way::Grouped)
    }
}

/// Messages, which each rank groups as it likes.
#[derive(Debug)]
struct Messages {
    messages: Vec<Operation>,
    /// For each rank and message, whether a new group begins with it. Groups are runs of one order of messages, so that the first
    /// message that is not done never waits for a later one.
    cuts: Vec<Vec<bool>>,
}

pub fn messages(g: &mut Generator) -> Option<Box<dyn Step>> {
    let attempts = g.rng.usize(2..14);
    let messages = together(g, attempts, some_message)?;
    let one_by_one = g.each(|g| g.rng.u32(1..5));
    let cuts = one_by_one.into_iter().map(|one_in| messages.iter().map(|_| g.chance(one_in)).collect()).collect();
    Some(Box::new(Messages { messages, cuts }))
}

impl Step for Messages {
    fn apply(&self, model: &mut Model) {
        let flows: Vec<_> = self.messages.iter().flat_map(Operation::flows).collect();
        model.flow(&flows);
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let me = rank.number();
        let mut run: Vec<&Operation> = Vec::new();
        for (message, cut) in self.messages.iter().zip(&self.cuts[me]).filter(|(message, _)| message.concerns(me)) {
            if *cut && !run.is_empty() {
                issue(rank, &run)?;
                run.clear();
            }
            run.push(message);
        }
        issue(rank, &run)
    }
}

/// One message without a group, but for one to oneself, which needs one.
fn issue(rank: &mut Rank<'_>, run: &[&Operation]) -> Result<()> {
    let me = rank.number();
    match run {
        [] => Ok(()),
        [Operation::Message(message)] if (message.from == me) != (message.to == me) => rank.issue(run, Way::OneByOne),
        run => rank.issue(run, Way::Grouped),
    }
}
