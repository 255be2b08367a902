//! An operation between ranks: which buffers it reads and writes on each, and how data flows.

use gpucomm::ElementKind;

use crate::carried::Carried;
use crate::collective::Collective;
use crate::message::Message;
use crate::model::{Factors, Flow, Place};

/// A buffer, or one half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub slot: usize,
    /// Where the buffer is divided, and which half this is.
    pub half: Option<(usize, Half)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    Front,
    Back,
}

impl Target {
    pub fn whole(slot: usize) -> Self {
        Self { slot, half: None }
    }

    /// Where it begins in the buffer.
    pub fn begin(&self) -> usize {
        match self.half {
            Some((mid, Half::Back)) => mid,
            _ => 0,
        }
    }

    /// The elements of it, of a buffer of `len`.
    pub fn within(&self, len: usize) -> (usize, usize) {
        match self.half {
            None => (0, len),
            Some((mid, Half::Front)) => (0, mid),
            Some((mid, Half::Back)) => (mid, len),
        }
    }
}

/// Elements of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub slot: usize,
    pub at: usize,
    pub len: usize,
}

impl Region {
    pub fn place(&self) -> Place {
        Place { slot: self.slot, at: self.at }
    }
}

/// What ranks do together.
#[derive(Debug, Clone)]
pub enum Operation {
    Collective(Box<Collective>),
    Message(Message),
}

impl Operation {
    pub fn kind(&self) -> ElementKind {
        match self {
            Self::Collective(collective) => collective.kind,
            Self::Message(message) => message.kind,
        }
    }

    pub fn carried(&self) -> Carried {
        match self {
            Self::Collective(collective) => collective.carried,
            Self::Message(message) => message.carried,
        }
    }

    /// What it is called, with its type and reduction.
    pub fn name(&self) -> String {
        match self {
            Self::Collective(one) if one.what.reduces() => format!("{:?} {} {:?}", one.what, one.kind, one.operator),
            Self::Collective(one) => format!("{:?} {} {:?}", one.what, one.kind, one.carried),
            Self::Message(message) => format!("{}>{} {} {:?}", message.from, message.to, message.kind, message.carried),
        }
    }

    /// Whether `rank` has a part in it.
    pub fn concerns(&self, rank: usize) -> bool {
        match self {
            Self::Collective(_) => true,
            Self::Message(message) => rank == message.from || rank == message.to,
        }
    }

    /// What `rank` gives it to read.
    pub fn read(&self, rank: usize) -> Option<Region> {
        match self {
            Self::Collective(collective) => collective.read(rank),
            Self::Message(message) => (rank == message.from).then_some(message.send),
        }
    }

    /// What `rank` gives it to write.
    pub fn written(&self, rank: usize) -> Option<(Target, Region)> {
        match self {
            Self::Collective(collective) => collective.written(rank),
            Self::Message(message) => (rank == message.to).then_some((message.target, message.recv)),
        }
    }

    pub fn factors(&self) -> &Factors {
        match self {
            Self::Collective(collective) => &collective.factors,
            Self::Message(_) => &Factors::None,
        }
    }

    pub fn flows(&self) -> Vec<Flow> {
        match self {
            Self::Collective(collective) => collective.flows(),
            Self::Message(message) => message.flows(),
        }
    }
}
