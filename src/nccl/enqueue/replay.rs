//! Launches of graphs that hold operations of communicators: each counts as one operation of each of these. The ranks of a clique compare
//! it by the numbers of what the graph holds: of its collectives, and of the messages of each pair.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::captured::Captured;
use super::graph_usage;
use super::in_group::outside_of_groups;
use super::part::Part;
use crate::cuda::{Launch, Mortal, Party, Stream};
use crate::deadline::default_timeout;
use crate::error::{Error, Result};
use crate::nccl::flight::files::Trouble;
use crate::nccl::lifecycle::failed_call;
use crate::nccl::rank::gate::LockedAll;
use crate::nccl::rank::graphs::drop_after;
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::launch::replay::{OPERATION, before_replay};
use crate::nccl::wait::begin_call;
use crate::shared_deadline::SharedDeadline;

impl Party for Captured {
    fn launch(&self, stream: &Stream, launch: &mut dyn Launch) -> Result<()> {
        outside_of_groups(OPERATION)?;
        let parts = self.parts();
        let _call = SharedDeadline::begin();
        stream.make_room(launch.cost(), OPERATION, || self.timeout(), || self.refusal())?;
        let launched = {
            let mut locked = LockedAll::new();
            for part in parts {
                part.inner.begin_call_with(&mut locked, OPERATION)?;
                part.is_as_it_was()?;
            }
            for (part, guard) in parts.iter().zip(locked.values()).filter(|(part, _)| part.inner.graphs.are_alone()) {
                graph_usage::order_launch(&part.inner, guard, OPERATION, stream)?;
            }
            match before_replay(&parts.iter().map(Part::replay).collect::<SmallVec<[_; 4]>>()) {
                Err(Failure::Retryable(error)) => {
                    drop(locked);
                    Trouble::of(parts.iter().map(|part| (&*part.inner, &error))).write();
                    return Err(error);
                }
                Err(Failure::Fatal(error)) => Err(error),
                Ok(agreed) => replay(parts, &mut locked, &agreed, stream, launch),
            }
        };
        // The locks have been given back.
        launched.map_err(|error| {
            let members: SmallVec<[&Inner; 4]> = parts.iter().map(|part| &*part.inner).collect();
            failed_call::end(&members, OPERATION, error)
        })
    }

    fn timeout(&self) -> Duration {
        self.parts().first().map_or_else(default_timeout, |part| part.inner.timeout())
    }

    fn refusal(&self) -> Option<Error> {
        self.parts().iter().find_map(|part| part.inner.refusal(OPERATION))
    }

    fn join(&self, graph: Arc<dyn Mortal>) {
        self.close(&graph);
    }

    fn bury(&self, left: Box<dyn Send>) {
        let unseen: Vec<_> = self.parts().iter().filter_map(|part| part.inner.graphs.unseen()).collect();
        // The executable is dropped before the note that it is gone.
        let left = (left, Gone(self.parts().iter().map(|part| Arc::clone(&part.inner)).collect()));
        // Otherwise NCCL waits for launches itself: it goes now.
        if !unseen.is_empty() {
            drop_after(unseen, left);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Notes when it is dropped, after a graph, that the graph is gone which had operations of these ranks.
struct Gone(Vec<Arc<Inner>>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.iter().for_each(|inner| inner.graphs.note_gone());
    }
}

/// Makes a launch that was agreed on.
fn replay(
    parts: &[Part],
    locked: &mut LockedAll<'_, Guarded>,
    agreed: &[u64],
    stream: &Stream,
    launch: &mut dyn Launch,
) -> Result<()> {
    let members = || parts.iter().map(|part| &*part.inner);
    for ((part, guard), agreed) in parts.iter().zip(locked.values()).zip(agreed) {
        part.inner.recent.keep(part.record(guard.works.next(), *agreed, stream));
    }
    let own = locked.values().next().filter(|_| parts.len() == 1).and_then(|guard| guard.works.of(stream));
    // Not within a visit: who stays in one for long is taken to hang inside NCCL, and woken.
    launch.begin(own)?;
    // A revoke then waits for it, or it is refused.
    let _launching: SmallVec<[_; 4]> = members().map(|inner| inner.graphs.begin_launch()).collect();
    begin_call::begin_visits(members(), OPERATION)?;
    let done = launch.enqueue();
    members().for_each(Inner::end_visit);
    for (part, guard) in parts.iter().zip(locked.values()) {
        let inner = &part.inner;
        // An abort has to know them.
        guard.streams.remember(stream);
        inner.graphs.note_launch(stream);
        inner.trace(|| part.traced(stream));
        let (work, number) = guard.works.enqueued(inner.fate(), stream, |base| inner.new_work(base));
        part.count(number);
        launch.carry(work, number);
    }
    done
}
