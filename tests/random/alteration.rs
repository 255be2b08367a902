//! Collectives that differ from another one in one respect, which the other ranks must notice.

use fastrand::Rng;
use gpucomm::Version;
use gpucomm::nccl::built_version;

use crate::carried::Carried;
use crate::collective::{Collective, Form, What, lens};
use crate::generator::SPARE;
use crate::layout::{Layout, Parts};
use crate::model::Factors;
use crate::number;
use crate::operation::{Region, Target};
use crate::reduce::Operator;

impl What {
    /// Whether it is made of messages, so that ranks compare pair by pair.
    pub fn is_messages(self) -> bool {
        match self {
            Self::AllToAllV | Self::GatherV | Self::ScatterV => true,
            Self::AllToAll | Self::Gather | Self::Scatter => built_version() < Version::new(2, 28, 0),
            _ => false,
        }
    }

    fn has_root(self) -> bool {
        matches!(self, Self::Reduce | Self::Broadcast | Self::Gather | Self::Scatter | Self::GatherV | Self::ScatterV)
    }

    /// Whether each rank's part has a length of its own.
    fn is_uneven(self) -> bool {
        matches!(self, Self::AllToAllV | Self::GatherV | Self::ScatterV | Self::AllGatherV | Self::ReduceScatterV)
    }
}

impl Collective {
    /// The same in all respects but one, which is named, out of buffers of its own, for the rank `who`.
    pub fn altered(&self, rng: &mut Rng, who: usize) -> Option<(&'static str, Self)> {
        let respects = ["count", "type", "reduction", "root", "operation"];
        let ranks = self.forms.len();
        let mut other = self.clone();
        let respect = respects[rng.usize(..respects.len())];
        match respect {
            "count" => other.layout = self.recounted(rng, who)?,
            "type" if !self.what.reduces() && rng.bool() => other.carried = self.carried.other(),
            "type" => {
                let kinds: Vec<_> = number::kinds().iter().copied().filter(|kind| *kind != self.kind).collect();
                (other.kind, other.carried) = (kinds[rng.usize(..kinds.len())], Carried::Itself);
            }
            "reduction" if self.what.reduces() => {
                let operators: Vec<_> = Operator::ALL.into_iter().filter(|other| *other != self.operator).collect();
                other.operator = operators[rng.usize(..operators.len())];
            }
            // A root that makes itself none leaves messages to it that nobody receives, which need not be noticed.
            "root" if self.what.has_root() && self.is_needed(who) && !(self.what.is_messages() && who == self.root) => {
                other.root = (self.root + rng.usize(1..ranks)) % ranks;
            }
            "operation" if !self.what.is_messages() => {
                let same = [What::AllReduce, What::Reduce, What::Broadcast];
                let others: Vec<_> = same.into_iter().filter(|what| *what != self.what).collect();
                other.what = others[rng.usize(..others.len())];
                other.layout = Layout::Whole(self.written(who).map_or(0, |(_, region)| region.len));
            }
            _ => return None,
        }
        other.forms = vec![Form::OutOfPlace; ranks];
        other.factors = match other.operator {
            Operator::PreMul => Factors::Host(vec![0; ranks]),
            _ => Factors::None,
        };
        let (send, recv) = lens(other.what, &other.forms, &other.layout);
        let regions = |slot: usize, lens: Vec<usize>| lens.into_iter().map(|len| Region { slot, at: 0, len }).collect();
        other.send = regions(SPARE[0], send);
        other.recv = regions(SPARE[1], recv);
        other.target = Target::whole(SPARE[1]);
        Some((respect, other))
    }

    /// Whether something comes to others from `who`, or to it from others: elsewise what it does need not be noticed.
    pub fn is_needed(&self, who: usize) -> bool {
        match &self.layout {
            Layout::Whole(len) => *len > 0,
            Layout::Parts(parts) if self.what.is_messages() && who != self.root => parts.counts[who] > 0,
            Layout::Parts(parts) => parts.iter().any(|(rank, _, count)| rank != who && count > 0),
            Layout::Matrix { recv, .. } => recv[who].iter().any(|(rank, _, count)| rank != who && count > 0),
        }
    }

    /// A layout with another count that concerns other ranks.
    fn recounted(&self, rng: &mut Rng, who: usize) -> Option<Layout> {
        let ranks = self.forms.len();
        let peer = (who + rng.usize(1..ranks)) % ranks;
        let longer = rng.bool();
        let change = |count: &mut usize| *count = if longer || *count == 0 { *count + 1 } else { *count - 1 };
        let packed = |parts: &Parts, at: Option<usize>| {
            let mut counts = parts.counts.clone();
            match at {
                Some(at) => change(&mut counts[at]),
                None => counts.iter_mut().for_each(change),
            }
            Parts::packed(counts)
        };
        Some(match &self.layout {
            Layout::Whole(len) => {
                let mut len = *len;
                change(&mut len);
                Layout::Whole(len)
            }
            Layout::Parts(parts) if !self.what.is_uneven() => Layout::Parts(packed(parts, None)),
            // Only the root knows of all parts, the others of their own.
            Layout::Parts(parts) if self.what.is_messages() && who != self.root => {
                Layout::Parts(packed(parts, Some(who)))
            }
            Layout::Parts(parts) => Layout::Parts(packed(parts, Some(peer))),
            Layout::Matrix { send, recv } => {
                let (mut send, mut recv) = (send.clone(), recv.clone());
                if !self.what.is_uneven() {
                    send[who] = packed(&send[who], None);
                    recv[who] = packed(&recv[who], None);
                } else if rng.bool() {
                    send[who] = packed(&send[who], Some(peer));
                } else {
                    recv[who] = packed(&recv[who], Some(peer));
                }
                Layout::Matrix { send, recv }
            }
        })
    }

    /// What ranks compare of it.
    pub fn signature(&self) -> String {
        let counts: Vec<usize> = match &self.layout {
            Layout::Whole(len) => vec![*len],
            Layout::Parts(parts) => parts.counts.clone(),
            Layout::Matrix { send, .. } => send.iter().flat_map(|parts| parts.counts.clone()).collect(),
        };
        format!("{:?} {} {:?} {:?} {} {counts:?}", self.what, self.kind, self.carried, self.operator, self.root)
    }
}
