//! Operations between ranks: alone, in groups, and messages that are grouped as each rank likes.

use fastrand::Rng;
use gpucomm::Result;

use crate::collective::Collective;
use crate::cuts::{self, Cuts};
use crate::deviation::{Change, Deviation, Stray};
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

    fn name(&self) -> String {
        names(std::slice::from_ref(&self.operation))
    }

    fn slots(&self) -> Vec<usize> {
        touched(std::slice::from_ref(&self.operation), self.ways.len())
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        rank.issue(&[&self.operation], self.ways[rank.number()])
    }

    fn deviate(&self, rng: &mut Rng, who: usize) -> Option<Deviation> {
        let Operation::Collective(collective) = &self.operation else { return None };
        // What is sent once too often or never received need not be noticed.
        match rng.u32(..6) {
            0 if !collective.what.is_messages() => Some(Deviation::fenced("one less", Change::Skip)),
            1 if !collective.what.is_messages() => Some(Deviation::fenced("one more", Change::Twice)),
            _ => {
                let (name, other) = collective.altered(rng, who)?;
                let other = Stray(Operation::Collective(Box::new(other)));
                let at_once = !collective.what.is_messages();
                Some(Deviation { at_once, ..Deviation::fenced(name, Change::Instead(Box::new(other))) })
            }
        }
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

/// All slots that operations use on any rank.
fn touched(operations: &[Operation], ranks: usize) -> Vec<usize> {
    let of = |rank| {
        let (read, written) = uses(operations, rank);
        read.into_iter().chain(written)
    };
    (0..ranks).flat_map(of).collect()
}

/// What operations are called, and their type.
fn names(operations: &[Operation]) -> String {
    operations.iter().map(Operation::name).collect::<Vec<_>>().join(", ")
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
#[derive(Debug, Clone)]
struct Grouped {
    operations: Vec<Operation>,
    /// The order in which each rank issues them.
    orders: Vec<Vec<usize>>,
}

/// An order of operations for each rank: collectives come one after the other everywhere, and so do the messages from one rank to
/// another, those that collectives are made of included. But for that they are free.
fn orders(g: &mut Generator, operations: &[Operation]) -> Vec<Vec<usize>> {
    let mixed = operations.iter().any(|operation| match operation {
        Operation::Collective(collective) => collective.what.is_messages(),
        Operation::Message(_) => false,
    });
    let line = |operation: &Operation| match operation {
        Operation::Message(message) if !mixed => Some((message.from, message.to)),
        _ => None,
    };
    g.each(|g| {
        let mut lines: Vec<_> = operations.iter().map(line).collect();
        g.rng.shuffle(&mut lines);
        let mut left: Vec<usize> = (0..operations.len()).collect();
        let next = |wanted| left.remove(left.iter().position(|&at| line(&operations[at]) == wanted).expect("one left"));
        lines.into_iter().map(next).collect()
    })
}

pub fn group(g: &mut Generator) -> Option<Box<dyn Step>> {
    let attempts = g.rng.usize(2..9);
    let operations =
        together(
            g,
            attempts,
            |g, target| {
                if g.chance(3) { some_message(g, target) } else { some_collective(g, target) }
            },
        )?;
    let orders = orders(g, &operations);
    Some(Box::new(Grouped { operations, orders }))
}

impl Step for Grouped {
    fn apply(&self, model: &mut Model) {
        let flows: Vec<_> = self.operations.iter().flat_map(Operation::flows).collect();
        model.flow(&flows);
    }

    fn name(&self) -> String {
        format!("group of {}", names(&self.operations))
    }

    fn slots(&self) -> Vec<usize> {
        touched(&self.operations, self.orders.len())
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let order = &self.orders[rank.number()];
        rank.issue(&order.iter().map(|&at| &self.operations[at]).collect::<Vec<_>>(), Way::Grouped)
    }

    /// One collective less in the group, two in another order, or each by itself.
    fn deviate(&self, rng: &mut Rng, who: usize) -> Option<Deviation> {
        let collectives: Vec<(usize, &Collective)> = (0..self.operations.len())
            .filter_map(|at| match &self.operations[at] {
                Operation::Collective(collective) if !collective.what.is_messages() => Some((at, &**collective)),
                _ => None,
            })
            .collect();
        let (&(first, one), &(second, other)) = (collectives.first()?, collectives.get(1)?);
        let mut other_way = self.clone();
        match rng.u32(..3) {
            0 => {
                let (without, _) = collectives[rng.usize(..collectives.len())];
                other_way.orders[who].retain(|&at| at != without);
                Some(Deviation::fenced("one less in a group", Change::Instead(Box::new(other_way))))
            }
            1 if one.signature() != other.signature() => {
                let place = |wanted| other_way.orders[who].iter().position(|&at| at == wanted);
                let (first, second) = (place(first)?, place(second)?);
                other_way.orders[who].swap(first, second);
                Some(Deviation::instead("order", other_way))
            }
            2 if one.is_needed(0) && other.is_needed(0) => {
                let only_collectives = collectives.len() == self.operations.len();
                only_collectives.then(|| Deviation::instead("grouping", OneByOne(other_way.operations)))
            }
            _ => None,
        }
    }
}

/// Several operations without a group.
#[derive(Debug)]
struct OneByOne(Vec<Operation>);

impl Step for OneByOne {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        rank.issue(&self.0.iter().collect::<Vec<_>>(), Way::OneByOne)
    }
}

/// Messages, which each rank groups in its own way.
#[derive(Debug)]
struct Messages {
    messages: Vec<Operation>,
    /// Groups are runs of one order of messages.
    cuts: Cuts,
}

pub fn messages(g: &mut Generator) -> Option<Box<dyn Step>> {
    let attempts = g.rng.usize(2..14);
    let messages = together(g, attempts, some_message)?;
    let cuts = cuts::draw(g, &messages);
    Some(Box::new(Messages { messages, cuts }))
}

impl Step for Messages {
    fn apply(&self, model: &mut Model) {
        let flows: Vec<_> = self.messages.iter().flat_map(Operation::flows).collect();
        model.flow(&flows);
    }

    fn name(&self) -> String {
        format!("messages {}", names(&self.messages))
    }

    fn slots(&self) -> Vec<usize> {
        touched(&self.messages, self.cuts.len())
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
