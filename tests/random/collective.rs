//! A collective: its form on each rank, how it is divided, and how data flows.

use gpucomm::{ElementKind, ReduceOp};

use crate::carried::Carried;
use crate::cell;
use crate::generator::Generator;
use crate::layout::Layout;
use crate::model::{Factors, Flow, Place};
use crate::operation::{Region, Target};
use crate::reduce::Operator;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather,
    Scatter,
    AllToAllV,
    AllGatherV,
    ReduceScatterV,
    GatherV,
    ScatterV,
}

impl What {
    pub const ALL: [Self; 13] = [
        Self::AllReduce,
        Self::Reduce,
        Self::Broadcast,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::AllToAllV,
        Self::AllGatherV,
        Self::ReduceScatterV,
        Self::GatherV,
        Self::ScatterV,
    ];

    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce | Self::ReduceScatter | Self::ReduceScatterV)
    }

    /// Whether kernels for windows exist, or may: every rank then uses the same part of the same window, in the same form.
    fn symmetric(self) -> bool {
        use What::{AllGather, AllReduce, AllToAll, Gather, ReduceScatter, Scatter};
        matches!(self, AllReduce | AllGather | ReduceScatter | AllToAll | Gather | Scatter)
    }

    /// Which forms a rank may take.
    fn forms(self, is_root: bool) -> &'static [Form] {
        use Form::{InPlace, OneWay, OutOfPlace};
        match self {
            Self::AllReduce | Self::AllGather | Self::AllGatherV | Self::ReduceScatter | Self::ReduceScatterV => {
                &[OutOfPlace, InPlace]
            }
            Self::AllToAll | Self::AllToAllV => &[OutOfPlace],
            _ if is_root => &[OutOfPlace, InPlace],
            Self::Reduce | Self::Broadcast => &[OutOfPlace, InPlace, OneWay],
            Self::Gather | Self::GatherV | Self::Scatter | Self::ScatterV => &[OutOfPlace, OneWay],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    OutOfPlace,
    InPlace,
    /// `SendOnly` or `RecvOnly`.
    OneWay,
}

#[derive(Debug, Clone)]
pub struct Collective {
    pub what: What,
    pub kind: ElementKind,
    /// Of what is only moved.
    pub carried: Carried,
    pub root: usize,
    pub operator: Operator,
    pub factors: Factors,
    pub layout: Layout,
    pub forms: Vec<Form>,
    pub send: Vec<Region>,
    pub target: Target,
    pub recv: Vec<Region>,
    pub streams: Vec<usize>,
}

impl Collective {
    /// A collective out of another buffer into `target`.
    pub fn draw(g: &mut Generator, target: Target) -> Option<Self> {
        let send = g.partner(target.slot)?;
        let (source, sink) = (g.model.contents(send), g.model.contents(target.slot));
        let (kind, within) = (source.kind, target.within(sink.len()));
        let known = [g.known(send), g.known(target.slot)];
        let windows = known.map(|(window, registered, _)| window || registered);
        let by_graph = known.map(|(.., by_graph)| by_graph);
        let source = source.len();
        let what = g.choose(&What::ALL);
        // What goes from rank to rank without a comparison by place lies in windows, or what is registered, on both sides or on neither.
        if known[0] != known[1] && !matches!(what, What::AllReduce | What::AllGather | What::ReduceScatter) {
            return None;
        }
        let root = g.rng.usize(..g.ranks());
        let alike = what.symmetric() && windows.contains(&true);
        let mut forms: Vec<Form> = (0..g.ranks()).map(|rank| g.choose(what.forms(rank == root))).collect();
        let alike_in_form = alike || what.symmetric() && by_graph.contains(&true);
        if alike_in_form && what.forms(true) == what.forms(false) {
            forms = vec![forms[0]; g.ranks()];
        }
        let margin = Generator::margin(kind);
        let layout = Layout::draw(g, what, source.saturating_sub(margin), (within.1 - within.0).saturating_sub(margin));
        let (send_lens, mut recv_lens) = lens(what, &forms, &layout);
        // Where the result goes may be longer than needed, unless each rank takes as much as it has room for.
        for (rank, len) in recv_lens.iter_mut().enumerate() {
            let extra = if matches!(what, What::Broadcast | What::Scatter) { 0 } else { g.rng.usize(..4) };
            if forms[rank] == Form::OutOfPlace && *len + extra <= within.1 - within.0 {
                *len += extra;
            }
        }
        let fits = |lens: &[usize], room: usize| lens.iter().all(|len| *len <= room);
        if !fits(&send_lens, source) || !fits(&recv_lens, within.1 - within.0) {
            return None;
        }
        let send_at = g.offsets(kind, alike && windows[0], (0, source), &send_lens);
        let recv_at = g.offsets(kind, alike && windows[1], within, &recv_lens);
        let mut operator = if what.reduces() { g.choose(&Operator::ALL) } else { Operator::Op(ReduceOp::Sum) };
        if operator == Operator::PreMul && g.ranks() == 1 && cell::is_float8(kind) {
            // NCCL has no kernel for it.
            operator = Operator::Op(ReduceOp::Sum);
        }
        let factors = if operator == Operator::PreMul { factors(g, kind, target.slot) } else { Factors::None };
        let regions = |slot: usize, at: Vec<usize>, lens: Vec<usize>| -> Vec<Region> {
            at.into_iter().zip(lens).map(|(at, len)| Region { slot, at, len }).collect()
        };
        Some(Self {
            what,
            kind,
            carried: if what.reduces() { Carried::Itself } else { Carried::draw(&mut g.rng) },
            root,
            operator,
            factors,
            layout,
            forms,
            send: regions(send, send_at, send_lens),
            target,
            recv: regions(target.slot, recv_at, recv_lens),
            streams: g.streams(),
        })
    }

    pub fn to_root(&self) -> bool {
        matches!(self.what, What::Reduce | What::Gather | What::GatherV)
    }

    pub fn read(&self, rank: usize) -> Option<Region> {
        let reads = match self.forms[rank] {
            Form::OutOfPlace => true,
            Form::InPlace => false,
            Form::OneWay => self.to_root(),
        };
        reads.then_some(self.send[rank])
    }

    pub fn written(&self, rank: usize) -> Option<(Target, Region)> {
        let writes = self.forms[rank] != Form::OneWay || !self.to_root();
        writes.then_some((self.target, self.recv[rank]))
    }

    fn in_place(&self, rank: usize) -> bool {
        self.forms[rank] == Form::InPlace
    }

    /// What a rank contributes.
    fn input(&self, rank: usize) -> Place {
        if self.in_place(rank) { self.recv[rank].place() } else { self.send[rank].place() }
    }

    fn output(&self, rank: usize) -> Place {
        self.recv[rank].place()
    }

    pub fn flows(&self) -> Vec<Flow> {
        let ranks = || 0..self.forms.len();
        let reduce = |offset: usize, len: usize, to: Vec<(usize, Place)>| Flow::Reduce {
            operator: self.operator,
            factors: self.factors.clone(),
            from: ranks().map(|rank| self.input(rank).after(offset)).collect(),
            to,
            len,
        };
        let root = self.root;
        let mut flows = Vec::new();
        match (self.what, &self.layout) {
            (What::AllReduce, &Layout::Whole(len)) => {
                flows.push(reduce(0, len, ranks().map(|rank| (rank, self.output(rank))).collect()));
            }
            (What::Reduce, &Layout::Whole(len)) => flows.push(reduce(0, len, vec![(root, self.output(root))])),
            (What::Broadcast, &Layout::Whole(len)) => {
                let from = (root, self.input(root));
                flows.extend(ranks().map(|rank| Flow::Move { from, to: (rank, self.output(rank)), len }));
            }
            (What::AllGather | What::AllGatherV, Layout::Parts(parts)) => {
                for (peer, offset, len) in parts.iter() {
                    let own = if self.in_place(peer) { offset } else { 0 };
                    let from = (peer, self.input(peer).after(own));
                    let to = |rank| (rank, self.output(rank).after(offset));
                    flows.extend(ranks().map(|rank| Flow::Move { from, to: to(rank), len }));
                }
            }
            (What::ReduceScatter | What::ReduceScatterV, Layout::Parts(parts)) => {
                if self.what == What::ReduceScatter {
                    let all = |rank: usize| Flow::Forget { rank, place: self.output(rank), len: self.recv[rank].len };
                    flows.extend(ranks().filter(|&rank| self.in_place(rank)).map(all));
                }
                for (peer, offset, len) in parts.iter() {
                    let own = if self.in_place(peer) { offset } else { 0 };
                    flows.push(reduce(offset, len, vec![(peer, self.output(peer).after(own))]));
                }
            }
            (What::Gather | What::GatherV, Layout::Parts(parts)) => {
                for (peer, offset, len) in parts.iter().filter(|&(peer, ..)| peer != root || !self.in_place(root)) {
                    let from = (peer, self.input(peer));
                    flows.push(Flow::Move { from, to: (root, self.output(root).after(offset)), len });
                }
            }
            (What::Scatter | What::ScatterV, Layout::Parts(parts)) => {
                for (peer, offset, len) in parts.iter().filter(|&(peer, ..)| peer != root || !self.in_place(root)) {
                    let from = (root, self.input(root).after(offset));
                    flows.push(Flow::Move { from, to: (peer, self.output(peer)), len });
                }
            }
            (What::AllToAll | What::AllToAllV, Layout::Matrix { send, recv }) => {
                for (rank, parts) in recv.iter().enumerate() {
                    for (peer, offset, len) in parts.iter() {
                        let from = (peer, self.input(peer).after(send[peer].offsets[rank]));
                        flows.push(Flow::Move { from, to: (rank, self.output(rank).after(offset)), len });
                    }
                }
            }
            (what, layout) => panic!("{what:?} of {layout:?}"),
        }
        flows
    }
}

/// How many elements each rank sends and receives.
pub fn lens(what: What, forms: &[Form], layout: &Layout) -> (Vec<usize>, Vec<usize>) {
    let each = |rank: usize| match layout {
        Layout::Whole(len) => (*len, *len),
        Layout::Matrix { send, recv } => (send[rank].end(), recv[rank].end()),
        Layout::Parts(parts) => {
            let (own, end) = (parts.counts[rank], parts.end());
            let in_place = forms[rank] == Form::InPlace;
            match what {
                What::AllGather | What::AllGatherV | What::Gather | What::GatherV => (own, end),
                _ => (end, if in_place { end } else { own }),
            }
        }
    };
    (0..forms.len()).map(each).unzip()
}

/// A factor for each rank: on the host, or in a buffer that is not written.
fn factors(g: &mut Generator, kind: ElementKind, written: usize) -> Factors {
    let fits = |g: &Generator, slot: usize| {
        let contents = g.model.contents(slot);
        slot != written && contents.kind == kind && contents.len() > 0
    };
    match g.live().filter(|&slot| g.rng.bool() && fits(g, slot)) {
        Some(slot) => {
            let len = g.model.contents(slot).len();
            Factors::Device(g.each(|g| Place { slot, at: g.rng.usize(..len) }))
        }
        None => Factors::Host(g.each(|g| g.values(kind, 1).0[0])),
    }
}
