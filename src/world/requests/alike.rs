//! Requests in which all ranks do the same.

use super::whole::request;
use crate::world::forms::{Form, OfAll};
use crate::world::memory::{Source, Target};

request! {
    /// [`all_gather`](crate::Communicator::all_gather) as a request.
    AllGather<F: OfAll> of <F as Form>::Element;
    { form: F }
    "all_gather" -> F::Buffers = |this| this.form.into_buffers();
    |this, at, group| group.all_gather(at.communicator(), this.form.of_all(), at.stream())
}

impl<F: OfAll> AllGather<F> {
    /// Buffers.
    pub fn new(form: F) -> Self {
        Self { form }
    }
}

request! {
    /// [`all_to_all`](crate::Communicator::all_to_all) as a request, whose second buffer has the same elements as the first.
    AllToAll<F: Exchanged> of <F as Exchanged>::Element;
    { form: F }
    "all_to_all" -> F = |this| this.form;
    |this, at, group| {
        let (send, recv) = this.form.both();
        group.all_to_all(at.communicator(), send, recv, at.stream())
    }
}

impl<F: Exchanged> AllToAll<F> {
    /// What is sent, and where what is received goes.
    pub fn new(form: F) -> Self {
        Self { form }
    }
}

/// What is sent to each rank, and where what comes from each goes: `(send, recv)`.
pub trait Exchanged: Send + 'static {
    /// What they hold.
    type Element: crate::element::Element;

    /// As the communicator takes them.
    fn both(&mut self) -> (crate::cuda::Slice<'_, Self::Element>, crate::cuda::SliceMut<'_, Self::Element>);
}

impl<S: Source, R: Target<Element = S::Element>> Exchanged for (S, R) {
    type Element = S::Element;

    fn both(&mut self) -> (crate::cuda::Slice<'_, S::Element>, crate::cuda::SliceMut<'_, S::Element>) {
        (self.0.source(), self.1.target())
    }
}
