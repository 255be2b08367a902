//! The operations by name.

use super::answer::Answer;
use super::forms::{OfAll, OfOne, OfRoot};
use super::memory::{Source, Target};
use super::op::Op;
use super::rank::Rank;
use super::requests::alike::{AllGather, AllToAll, Exchanged};
use super::requests::message::{Recv, Send};
use super::requests::reducing::{AllReduce, Reduce, ReduceScatter};
use super::requests::rooted::{Broadcast, Gather, Scatter};
use super::requests::variable::{AllGatherV, AllToAllV, GatherV, Parts, ReduceScatterV, ScatterV};
use crate::element::Reduce as Reducible;

macro_rules! faces {
    ($(
        $method:ident, $request:ident<$param:ident: $bound:ident>, $wraps:literal $(where $reduces:ident)?,
        ($($name:ident: $kind:ty),*)
    );* $(;)?) => {
        /// Requests, by the names of the operations of [`Communicator`](crate::Communicator), which says what they need. Each is checked as there, and
        /// answered when its result is there.
        impl Rank {
            $(
                #[doc = concat!("Submits [`", $wraps, "`](crate::Communicator::", $wraps, ").")]
                pub fn $method<$param: $bound>(&self, form: $param $(, $name: $kind)*) -> Answer<$request<$param>>
                $(where <$param as super::forms::Form>::Element: $reduces)?
                {
                    self.submit($request::new(form $(, $name)*))
                }
            )*
        }
    };
}

faces! {
    all_reduce, AllReduce<F: OfAll>, "all_reduce" where Reducible, (op: Op<F::Element>);
    reduce, Reduce<F: OfRoot>, "reduce" where Reducible, (op: Op<F::Element>, root: usize);
    reduce_scatter, ReduceScatter<F: OfAll>, "reduce_scatter" where Reducible, (op: Op<F::Element>);
    broadcast, Broadcast<F: OfOne>, "broadcast", (root: usize);
    all_gather, AllGather<F: OfAll>, "all_gather", ();
    all_to_all, AllToAll<F: Exchanged>, "all_to_all", ();
    gather, Gather<F: OfRoot>, "gather", (root: usize);
    scatter, Scatter<F: OfOne>, "scatter", (root: usize);
    send, Send<B: Source>, "send", (peer: usize);
    recv, Recv<B: Target>, "recv", (peer: usize);
    all_to_all_v, AllToAllV<F: Exchanged>, "all_to_all_v", (send: impl Into<Parts>, recv: impl Into<Parts>);
    all_gather_v, AllGatherV<F: OfAll>, "all_gather_v", (parts: impl Into<Parts>);
    reduce_scatter_v, ReduceScatterV<F: OfAll>, "reduce_scatter_v" where Reducible, (parts: impl Into<Parts>, op: Op<F::Element>);
    gather_v, GatherV<F: OfRoot>, "gather_v", (parts: impl Into<Parts>, root: usize);
    scatter_v, ScatterV<F: OfOne>, "scatter_v", (parts: impl Into<Parts>, root: usize);
}
