//! The order that NCCL leaves out where a communicator was made for one graph, or for none.
//!
//! With `graphUsageMode` 2, and up to 2.28.9 unless `NCCL_GRAPH_MIXING_SUPPORT` is 0, NCCL puts an event behind whatever it launches, of a graph
//! or not, and has whatever comes next wait for it. With 1 there is none of that (`mixing` in strongstream.cc of 2.28.9, 2.29.7 and
//! 2.30.7): what is captured waits for nothing outside of the graph, and what is not for no graph; nor does NCCL know, when it stops or
//! meets its streams, of launches that are under way. 0 is the same to it. Operations that are not captured are in order among themselves, and so are those of
//! one capture, unless `graphStreamOrdering` is 0: then those too are left to the program.
//!
//! Two kernels of one communicator at a time use the same channels. So here a launch follows all streams that the communicator
//! was used on. What is not captured waits on the host for the launches before: what NCCL's proxies do for it they would begin at
//! once, and what they do for a launch only when that has begun.

use crate::cuda::Stream;
use crate::error::{Error, Result};
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::launch::of_clique::far_behind;
use crate::shared_deadline::SharedDeadline;

/// How much of a communicator is captured, as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usage {
    None,
    One,
    Mixed,
}

fn usage(inner: &Inner) -> Usage {
    match inner.local_ranks.config().uses_graphs() {
        0 => Usage::None,
        1 => Usage::One,
        _ => Usage::Mixed,
    }
}

/// Whether one graph has all operations of `inner`, as long as there is one.
pub(super) fn is_one(inner: &Inner) -> bool {
    usage(inner) == Usage::One
}

/// Fails where an operation cannot be made as `inner` was made. `captures`: it is to become part of a capture, and whether that has
/// operations of `inner` already.
pub(super) fn check(inner: &Inner, operation: &'static str, captures: Option<bool>) -> Result<()> {
    let name = &inner.name;
    let reason = match usage(inner) {
        Usage::Mixed => return Ok(()),
        Usage::None if captures.is_none() => return Ok(()),
        Usage::None => {
            format!(
                "graph_usage is None, or NCCL_GRAPH_MIXING_SUPPORT is 0: nothing of communicator {name} is captured"
            )
        }
        Usage::One if captures.is_some() && inner.shares_resources() => SHARED.to_owned(),
        Usage::One if inner.graphs.exist() => {
            format!(
                "graph_usage is One: as long as there is a graph, all operations of communicator {name} are in that, and no other is captured"
            )
        }
        Usage::One if inner.graphs.open() > usize::from(captures == Some(true)) => {
            format!(
                "graph_usage is One: as long as a capture has operations of communicator {name}, all others become part of that"
            )
        }
        Usage::One => return Ok(()),
    };
    Err(Error::InvalidUsage { operation, reason })
}

/// Communicators that share the resources use streams that this one does not know.
const SHARED: &str =
    "graph_usage is One: the communicator shares its resources with others, so all operations are not in one graph";

/// Does what [`check`] does, under the lock. Then waits for launches of dropped graphs, for which NCCL does not wait. The ranks have not
/// agreed on anything yet. An abort ends this wait.
#[cold]
pub(crate) fn wait_for_launches(inner: &Inner, operation: &'static str, captures: Option<bool>) -> Result<()> {
    check(inner, operation, captures)?;
    let deadline = SharedDeadline::within(inner.timeout());
    let departed = far_behind(operation);
    let done = deadline.until(|| {
        if let Some(error) = inner.refusal(operation).or_else(|| departed(inner)) {
            return Err(error);
        }
        Ok(inner.graphs.have_left()?.then_some(()))
    })?;
    let what = "launches of a graph, with which nothing is mixed as graph_usage is One";
    let late = || deadline.error(operation, format!("{what}, on the device of {}", inner.in_words()));
    done.ok_or_else(|| late().waited_by(inner.rank))
}

/// Before a launch on `stream`, of a graph that has all operations of `inner`: it comes after all that NCCL was given before, for this rank
/// and on whatever streams. The ranks have not agreed on it yet.
#[cold]
pub(super) fn order_launch(inner: &Inner, guard: &Guarded, operation: &'static str, stream: &Stream) -> Result<()> {
    if inner.shares_resources() {
        return Err(Error::InvalidUsage { operation, reason: SHARED.to_owned() });
    }
    guard.streams.all().iter().filter(|other| *other != stream).try_for_each(|other| stream.follow_all_of(other))
}
