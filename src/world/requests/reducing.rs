//! Requests that reduce.

use super::whole::request;
use crate::element::Reduce as Reducible;
use crate::world::forms::{Form, OfAll, OfRoot};
use crate::world::op::{Op, Reducing};

request! {
    /// [`all_reduce`](crate::Communicator::all_reduce) as a request.
    AllReduce<F: OfAll> of <F as Form>::Element, Reducible;
    { form: F, op: Reducing<F::Element> }
    "all_reduce" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| {
        group.all_reduce(at.communicator(), this.form.of_all(), this.op.at(at)?, at.stream())
    }
}

impl<F: OfAll> AllReduce<F>
where
    F::Element: Reducible,
{
    /// Buffers, and what is done with them.
    pub fn new(form: F, op: Op<F::Element>) -> Self {
        Self { form, op: Reducing::new(op) }
    }
}

request! {
    /// [`reduce`](crate::Communicator::reduce) as a request.
    Reduce<F: OfRoot> of <F as Form>::Element, Reducible;
    { form: F, op: Reducing<F::Element>, root: usize }
    "reduce" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| {
        group.reduce(at.communicator(), this.form.of_root(), this.op.at(at)?, this.root, at.stream())
    }
}

impl<F: OfRoot> Reduce<F>
where
    F::Element: Reducible,
{
    /// Buffers, what is done with them, and who gets the result.
    pub fn new(form: F, op: Op<F::Element>, root: usize) -> Self {
        Self { form, op: Reducing::new(op), root }
    }
}

request! {
    /// [`reduce_scatter`](crate::Communicator::reduce_scatter) as a request.
    ReduceScatter<F: OfAll> of <F as Form>::Element, Reducible;
    { form: F, op: Reducing<F::Element> }
    "reduce_scatter" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| {
        group.reduce_scatter(at.communicator(), this.form.of_all(), this.op.at(at)?, at.stream())
    }
}

impl<F: OfAll> ReduceScatter<F>
where
    F::Element: Reducible,
{
    /// Buffers, and what is done with them.
    pub fn new(form: F, op: Op<F::Element>) -> Self {
        Self { form, op: Reducing::new(op) }
    }
}
