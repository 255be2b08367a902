//! A message from one rank to another, or to itself.

use gpucomm::ElementKind;

use crate::carried::Carried;
use crate::generator::Generator;
use crate::model::Flow;
use crate::operation::{Region, Target};

#[derive(Debug, Clone)]
pub struct Message {
    pub kind: ElementKind,
    pub carried: Carried,
    pub from: usize,
    pub to: usize,
    pub send: Region,
    pub target: Target,
    pub recv: Region,
    /// The streams of the two ranks; one stream where they are one rank.
    pub streams: [usize; 2],
}

impl Message {
    /// A message out of another buffer into `target`.
    pub fn draw(g: &mut Generator, (from, to): (usize, usize), target: Target) -> Option<Self> {
        let send = g.partner(target.slot)?;
        let (source, sink) = (g.model.contents(send), g.model.contents(target.slot));
        if g.known(send) != g.known(target.slot) {
            return None;
        }
        let (kind, within) = (source.kind, target.within(sink.len()));
        let source = source.len();
        let most = source.min(within.1 - within.0);
        let len = g.length(most.saturating_sub(Generator::margin(kind)));
        let from_at = g.offset(kind, (0, source), len);
        let to_at = g.offset(kind, within, len);
        let mut streams = [g.streams()[0], g.streams()[0]];
        if from == to {
            streams[1] = streams[0];
        }
        Some(Self {
            kind,
            carried: Carried::draw(&mut g.rng),
            from,
            to,
            send: Region { slot: send, at: from_at, len },
            target,
            recv: Region { slot: target.slot, at: to_at, len },
            streams,
        })
    }

    pub fn flows(&self) -> Vec<Flow> {
        vec![Flow::Move { from: (self.from, self.send.place()), to: (self.to, self.recv.place()), len: self.send.len }]
    }
}
