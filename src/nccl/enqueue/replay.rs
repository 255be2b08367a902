//! Launches of graphs that hold operations of communicators: each counts as one operation of each of these. The ranks of a clique compare
//! it by the numbers of what the graph holds: of its collectives, and of the messages of each pair.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::agreement;
use super::captured::{Captured, OPERATION, Part};
use super::checked;
use super::said::launched;
use super::submit::{failed, outside_of_groups};
use crate::cuda::{Launch, Mortal, Party, Stream};
use crate::deadline::default_timeout;
use crate::error::{Error, Result};
use crate::nccl::flight::files::Trouble;
use crate::nccl::rank::gate::LockedAll;
use crate::nccl::rank::graphs::drop_after;
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::NOWHERE;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::pair::{End, Word};
use crate::nccl::validate::sequence::Turn;
use crate::nccl::validate::signature::Numbers;
use crate::nccl::wait::entry;
use crate::nccl::wait::patience::Patience;

impl Party for Captured {
    fn launch(&self, stream: &Stream, launch: &mut dyn Launch) -> Result<()> {
        outside_of_groups(OPERATION)?;
        let parts = self.parts();
        stream.make_room(launch.cost(), OPERATION, self.timeout(), || self.refusal())?;
        let launched = {
            let mut entered = LockedAll::new();
            for part in parts {
                part.inner.enter_with(&mut entered, OPERATION)?;
                part.is_as_it_was()?;
            }
            self.order(&mut entered, stream)?;
            match agree(parts) {
                Err(Failure::Retryable(error)) => {
                    drop(entered);
                    Trouble::of(parts.iter().map(|part| (&*part.inner, &error))).write();
                    return Err(error);
                }
                Err(Failure::Fatal(error)) => Err(error),
                Ok(agreed) => replay(parts, &mut entered, &agreed, stream, launch),
            }
        };
        // The locks have been given back.
        launched.map_err(|error| {
            let members: SmallVec<[&Inner; 4]> = parts.iter().map(|part| &*part.inner).collect();
            failed(&members, OPERATION, error)
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
        // Otherwise NCCL waits for launches itself: it goes now.
        if !unseen.is_empty() {
            drop_after(unseen, left);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Makes a launch that was agreed on.
fn replay(
    parts: &[Part],
    entered: &mut LockedAll<'_, Guarded>,
    agreed: &[u64],
    stream: &Stream,
    launch: &mut dyn Launch,
) -> Result<()> {
    let members = || parts.iter().map(|part| &*part.inner);
    for ((part, guard), agreed) in parts.iter().zip(entered.values()).zip(agreed) {
        part.inner.recent.keep(part.record(guard.works.next(), *agreed, stream));
    }
    let own = entered.values().next().filter(|_| parts.len() == 1).and_then(|guard| guard.works.of(stream));
    // Not within a visit: who stays in one for long is taken to hang inside NCCL, and woken.
    launch.begin(own)?;
    entry::begin_visits(members(), OPERATION)?;
    let done = launch.enqueue();
    members().for_each(Inner::end_visit);
    for (part, guard) in parts.iter().zip(entered.values()) {
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

/// Compares a launch with the other ranks: its number in the ledger of each communicator. Who drives several ranks does not wait for one
/// of them as another.
fn agree(parts: &[Part]) -> Result<SmallVec<[u64; 4]>, Failure> {
    let mut agreed: SmallVec<[u64; 4]> = parts.iter().map(|_| NOWHERE).collect();
    let members: SmallVec<[&Inner; 4]> = parts.iter().map(|part| &*part.inner).collect();
    let told = parts.iter().map(tell).collect::<Result<SmallVec<[_; 4]>>>()?;
    let mut differs = None;
    let mut open: SmallVec<[usize; 4]> = (0..parts.len()).filter(|&at| parts[at].signature().is_some()).collect();
    let (all, mut patience) = (open.len(), Patience::default());
    loop {
        let before = open.len();
        open.retain(|at| {
            let part = &parts[*at];
            let Some((in_process, signature)) = part.signature() else { return false };
            match in_process.ledger.collective(part.inner.rank, &signature) {
                Turn::Passed(entry) => {
                    part.inner.issued.compares_no_more();
                    agreed[*at] = entry;
                }
                Turn::Wait => return true,
                Turn::Differs => {
                    differs = Some((part, in_process, in_process.ledger.differ(part.inner.rank, &signature)));
                }
            }
            false
        });
        let Some(&slow) = open.first() else { break };
        if differs.is_some() {
            break;
        }
        if open.len() == before {
            let slow = &parts[slow].inner;
            let waited =
                patience.wait(OPERATION, &members, agreement::in_vain(OPERATION), slow, || agreement::behind(slow));
            waited.map_err(|error| match error {
                // Ranks in other processes have been told.
                Error::Timeout { .. } if before == all && told.iter().all(Option::is_none) => Failure::Retryable(error),
                _ => Failure::Fatal(error),
            })?;
        }
    }
    if let Some((part, in_process, difference)) = differs {
        return Err(agreement::contradicted(in_process, &part.inner, OPERATION, &difference).into());
    }
    for ((part, told), agreed) in parts.iter().zip(told).zip(&mut agreed) {
        if let Some(told) = told {
            *agreed = checked::wait(&members, told, OPERATION)?;
        }
        let Some(in_process) = &part.inner.in_process else {
            part.pairs.iter().try_for_each(|pair| checked::launched(&part.inner, OPERATION, pair))?;
            continue;
        };
        if let Some((_, signature)) = part.signature() {
            agreement::point_in_order(in_process, &part.inner, OPERATION, &signature)?;
            for kind in &part.exchanges {
                let what = || format!("{}, all_to_all, gather or scatter among them,", signature.describe());
                agreement::exchange(in_process, &part.inner, *kind, OPERATION, what)?;
            }
        }
        part.pairs.iter().try_for_each(|pair| message(in_process, &part.inner, pair))?;
    }
    Ok(agreed)
}

/// Says that a graph is launched to ranks in other processes, where they compare.
fn tell(part: &Part) -> Result<Option<checked::Told<'_>>> {
    part.launch().map_or(Ok(None), |signature| checked::tell_launch(&part.inner, &signature, &part.exchanges))
}

/// Compares that a graph is launched that has these messages between a rank and a peer.
fn message(in_process: &InProcess, inner: &Inner, (peer, end, numbers): &(usize, End, Numbers)) -> Result<()> {
    let (rank, peer, end) = (inner.rank, *peer, *end);
    if peer == rank {
        return Ok(());
    }
    agreement::messages_in_order(in_process, inner, OPERATION, peer, || "a graph with messages".to_owned())?;
    let message = launched(in_process.ledger.history(rank), (rank, end), peer, numbers);
    let exchanges = message.exchanges;
    match in_process.ledger.message((rank, end), peer, message) {
        Ok(met)
            if met.first && agreement::is_too_late(&in_process.ledger, (rank, end), peer, exchanges, met.number) =>
        {
            Err(agreement::too_late(in_process, inner, peer, Word::new(end, message), OPERATION))
        }
        Ok(_) => Ok(()),
        Err(theirs) => {
            Err(in_process.ledger.settle_message(rank, peer, theirs, Word::new(end, message)).error(OPERATION))
        }
    }
}
