//! Requests with a root.

use super::whole::request;
use crate::world::forms::{Form, OfOne, OfRoot};

request! {
    /// [`broadcast`](crate::Communicator::broadcast) as a request.
    Broadcast<F: OfOne> of <F as Form>::Element;
    { form: F, root: usize }
    "broadcast" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| group.broadcast(at.communicator(), this.form.of_one(), this.root, at.stream())
}

impl<F: OfOne> Broadcast<F> {
    /// Buffers, and whose elements all get.
    pub fn new(form: F, root: usize) -> Self {
        Self { form, root }
    }
}

request! {
    /// [`gather`](crate::Communicator::gather) as a request.
    Gather<F: OfRoot> of <F as Form>::Element;
    { form: F, root: usize }
    "gather" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| group.gather(at.communicator(), this.form.of_root(), this.root, at.stream())
}

impl<F: OfRoot> Gather<F> {
    /// Buffers, and who gets all.
    pub fn new(form: F, root: usize) -> Self {
        Self { form, root }
    }
}

request! {
    /// [`scatter`](crate::Communicator::scatter) as a request.
    Scatter<F: OfOne> of <F as Form>::Element;
    { form: F, root: usize }
    "scatter" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| group.scatter(at.communicator(), this.form.of_one(), this.root, at.stream())
}

impl<F: OfOne> Scatter<F> {
    /// Buffers, and who has all.
    pub fn new(form: F, root: usize) -> Self {
        Self { form, root }
    }
}
