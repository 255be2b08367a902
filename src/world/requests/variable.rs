//! Requests in which each rank's part has a length of its own.

use super::alike::Exchanged;
use super::whole::request;
use crate::element::Reduce as Reducible;
use crate::nccl::Layout;
use crate::world::forms::{Form, OfAll, OfOne, OfRoot};
use crate::world::op::{Op, Reducing};

/// How a buffer is divided among the ranks: [`Layout`], owned. Made of counts, or of counts and offsets.
///
/// ```
/// use gpucomm::world::Parts;
///
/// // Two elements for rank 0, three for rank 1; packed, and with a gap between them.
/// let (packed, apart) = (Parts::from([2, 3]), Parts::from((vec![2, 3], vec![0, 5])));
/// assert_eq!((packed.counts, apart.offsets), (vec![2, 3], Some(vec![0, 5])));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// How many elements each rank has.
    pub counts: Vec<usize>,
    /// Where they begin; one rank's behind the other's where it is not said.
    pub offsets: Option<Vec<usize>>,
}

impl Parts {
    fn layout(&self) -> Layout<'_> {
        Layout { counts: &self.counts, offsets: self.offsets.as_deref() }
    }
}

impl From<Vec<usize>> for Parts {
    fn from(counts: Vec<usize>) -> Self {
        Self { counts, offsets: None }
    }
}

impl<const N: usize> From<[usize; N]> for Parts {
    fn from(counts: [usize; N]) -> Self {
        Self::from(counts.to_vec())
    }
}

impl From<&[usize]> for Parts {
    fn from(counts: &[usize]) -> Self {
        Self::from(counts.to_vec())
    }
}

impl From<(Vec<usize>, Vec<usize>)> for Parts {
    fn from((counts, offsets): (Vec<usize>, Vec<usize>)) -> Self {
        Self { counts, offsets: Some(offsets) }
    }
}

request! {
    /// [`all_to_all_v`](crate::Communicator::all_to_all_v) as a request.
    AllToAllV<F: Exchanged> of <F as Exchanged>::Element;
    { form: F, send: Parts, recv: Parts }
    "all_to_all_v" -> F = |this| this.form;
    |this, at, group| {
        let (send, recv) = this.form.both();
        group.all_to_all_v(at.communicator(), send, this.send.layout(), recv, this.recv.layout(), at.stream())
    }
}

impl<F: Exchanged> AllToAllV<F> {
    /// Buffers, and how each is divided.
    pub fn new(form: F, send: impl Into<Parts>, recv: impl Into<Parts>) -> Self {
        Self { form, send: send.into(), recv: recv.into() }
    }
}

request! {
    /// [`all_gather_v`](crate::Communicator::all_gather_v) as a request.
    AllGatherV<F: OfAll> of <F as Form>::Element;
    { form: F, parts: Parts }
    "all_gather_v" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| {
        group.all_gather_v(at.communicator(), this.form.of_all(), this.parts.layout(), at.stream())
    }
}

impl<F: OfAll> AllGatherV<F> {
    /// Buffers, and how what is received is divided.
    pub fn new(form: F, parts: impl Into<Parts>) -> Self {
        Self { form, parts: parts.into() }
    }
}

request! {
    /// [`reduce_scatter_v`](crate::Communicator::reduce_scatter_v) as a request.
    ReduceScatterV<F: OfAll> of <F as Form>::Element, Reducible;
    { form: F, parts: Parts, op: Reducing<F::Element> }
    "reduce_scatter_v" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| {
        let op = this.op.at(at)?;
        group.reduce_scatter_v(at.communicator(), this.form.of_all(), this.parts.layout(), op, at.stream())
    }
}

impl<F: OfAll> ReduceScatterV<F>
where
    F::Element: Reducible,
{
    /// Buffers, how what is sent is divided, and what is done with it.
    pub fn new(form: F, parts: impl Into<Parts>, op: Op<F::Element>) -> Self {
        Self { form, parts: parts.into(), op: Reducing::new(op) }
    }
}

request! {
    /// [`gather_v`](crate::Communicator::gather_v) as a request.
    GatherV<F: OfRoot> of <F as Form>::Element;
    { form: F, parts: Parts, root: usize }
    "gather_v" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| {
        group.gather_v(at.communicator(), this.form.of_root(), this.parts.layout(), this.root, at.stream())
    }
}

impl<F: OfRoot> GatherV<F> {
    /// Buffers, how what the root receives is divided, and who that is.
    pub fn new(form: F, parts: impl Into<Parts>, root: usize) -> Self {
        Self { form, parts: parts.into(), root }
    }
}

request! {
    /// [`scatter_v`](crate::Communicator::scatter_v) as a request.
    ScatterV<F: OfOne> of <F as Form>::Element;
    { form: F, parts: Parts, root: usize }
    "scatter_v" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| {
        group.scatter_v(at.communicator(), this.form.of_one(), this.parts.layout(), this.root, at.stream())
    }
}

impl<F: OfOne> ScatterV<F> {
    /// Buffers, how what the root sends is divided, and who that is.
    pub fn new(form: F, parts: impl Into<Parts>, root: usize) -> Self {
        Self { form, parts: parts.into(), root }
    }
}
