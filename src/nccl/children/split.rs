//! Splits communicators: all ranks come and ask for a part, and NCCL makes the parts.

use std::ffi::c_int;
use std::sync::Arc;

use super::child_config::ChildConfig;
use super::failed;
use crate::cuda::{Worker, restoring};
use crate::error::{Error, Result};
use crate::known_bugs;
use crate::nccl::enqueue::connect::Promised;
use crate::nccl::enqueue::{connect, in_group, point};
use crate::nccl::lifecycle::drop::drop_all;
use crate::nccl::lifecycle::peer_listener::PeerListener;
use crate::nccl::lifecycle::start_child::{Part, Place, Wish, divide};
use crate::nccl::local_ranks::lineage::Child;
use crate::nccl::rank::helper::Helper;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::validate::signature::Signature;
use crate::nccl::validate::split::Choice;
use crate::nccl::wait::begin_call::begin_calls;
use crate::nccl::wait::left_ranks;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// What a rank asks for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// The part; `None` for a rank that will be in none.
    pub(crate) color: Option<usize>,
    /// Ranks of a part are in the order of their keys. With equal keys, they are in the order of
    /// their ranks.
    pub(crate) key: usize,
    /// The configuration of the part; `None`: that of the parent.
    pub(crate) config: Option<ChildConfig>,
}

impl Ask {
    /// The request as the ranks compare it.
    pub(super) fn choice(&self) -> Option<Choice> {
        let terms = self.config.as_ref().map(|config| Arc::clone(&config.terms));
        self.color.map(|color| Choice { color, key: self.key, terms })
    }

    /// The request for NCCL. The numbers were checked.
    pub(super) fn wish(&self) -> Wish {
        let color = self.color.map_or(sys::NCCL_SPLIT_NOCOLOR as c_int, |color| color as c_int);
        Wish::Split { color, key: self.key as c_int }
    }
}

/// Splits the communicators of `members`, which one thread drives, one [`Ask`] for each. Returns
/// the part of each.
pub(crate) fn split(operation: &'static str, members: &[&Arc<Inner>], asks: &[Ask]) -> Result<Vec<Option<Arc<Inner>>>> {
    in_group::outside_of_groups(operation)?;
    let _call = SharedDeadline::begin();
    members.iter().try_for_each(|inner| inner.local_ranks.growth.refuse(operation))?;
    outside_of_host_functions(operation)?;
    let asked = asked_of_nccl(operation, members, asks)?;
    // Everything that may fail here comes before the other ranks rely on this one.
    let helpers = members.iter().map(|inner| Helper::start(operation, inner.device)).collect::<Result<Vec<_>>>()?;
    wait_idle(operation, members)?;
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let children = restoring(|| together(operation, members, &asked, helpers))
        .map_err(|error| failed(&refs, operation, true, error))??;
    Ok(wanted(children, asks))
}

/// The largest number that a color or a key can be.
const LARGEST: usize = c_int::MAX as usize;

/// What `members` ask NCCL for. A rank that will be in no part gets one of its own, which is
/// dropped later: NCCL writes the result of a failed split into the communicator, even if there is
/// none.
pub(super) fn asked_of_nccl(operation: &'static str, members: &[&Arc<Inner>], asks: &[Ask]) -> Result<Vec<Ask>> {
    let asked = members.iter().zip(asks).map(|(inner, ask)| {
        // Larger colors are for ranks that will be in no part.
        check(operation, "color", ask.color.unwrap_or(0), LARGEST - inner.size)?;
        check(operation, "key", ask.key, LARGEST)?;
        Ok(match ask.color {
            None if known_bugs::SPLIT_WITHOUT_PART.is_running() => {
                Ask { color: Some(LARGEST - inner.rank), key: ask.key, config: None }
            }
            _ => ask.clone(),
        })
    });
    asked.collect()
}

fn check(operation: &'static str, what: &'static str, number: usize, most: usize) -> Result<()> {
    if number <= most { Ok(()) } else { Err(Error::argument(operation, what, format!("at most {most}"), number)) }
}

/// Returns the children that `asks` asked for, and drops the others.
pub(super) fn wanted(mut children: Vec<Option<Arc<Inner>>>, asks: &[Ask]) -> Vec<Option<Arc<Inner>>> {
    let mut unwanted = Vec::new();
    for (child, ask) in children.iter_mut().zip(asks) {
        unwanted.extend(child.take_if(|_| ask.color.is_none()));
    }
    drop_all(&unwanted);
    children
}

/// Waits for the work of `members`, and of communicators that share their resources: a split
/// allocates on the device, and waits for it.
pub(super) fn wait_idle(operation: &'static str, members: &[&Arc<Inner>]) -> Result<()> {
    for inner in members {
        let mut streams = inner.begin_call(operation)?.0.streams.all().to_vec();
        for sharer in inner.sharers() {
            match sharer.begin_call(operation) {
                Ok((guard, _)) => streams.extend(guard.streams.all().iter().cloned()),
                Err(error) if sharer.is_active() => return Err(error),
                // Its work is done.
                Err(_) => {}
            }
        }
        let deadline = SharedDeadline::within(inner.timeout());
        let done = deadline.until_and_look(
            || inner.look_around(0, inner.recent.last()),
            || {
                while let Some(stream) = streams.last()
                    && left_ranks::check_idle(stream)?
                {
                    streams.pop();
                }
                match inner.refusal(operation) {
                    Some(error) => Err(error),
                    None => Ok(streams.is_empty().then_some(())),
                }
            },
        )?;
        if done.is_none() {
            let late = deadline.error(operation, left_ranks::why_busy(inner, &streams)).waited_by(inner.rank);
            streams.iter().for_each(|stream| stream.give_up_all(&late));
            return Err(late);
        }
        inner.health()?;
    }
    Ok(())
}

/// Splits in the sequence of collectives. After the outer error, the other ranks wait for this one.
fn together(
    operation: &'static str,
    members: &[&Arc<Inner>],
    asks: &[Ask],
    helpers: Vec<Helper>,
) -> Result<Result<Vec<Option<Arc<Inner>>>>> {
    let inners: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let mut locked = begin_calls(&inners, operation)?;
    let signature = Signature::split();
    let mut entries = Vec::with_capacity(members.len());
    for ((inner, (guard, _)), ask) in members.iter().zip(&mut locked).zip(asks) {
        guard.splits += 1;
        inner.validation.show_split(inner.rank, guard.splits, ask.choice());
        entries.push(point::come(inner, guard, operation, &signature)?);
        inner.validation.see_split(operation, guard.splits)?;
    }
    let _promised = match entries.first() {
        Some(Some(entry)) => connect::meet_at(*entry, &inners, operation)?,
        // Ranks that do not compare meet in NCCL.
        _ => Promised::default(),
    };
    for (inner, (guard, _)) in members.iter().zip(&locked) {
        if let Some(verdict) = inner.validation.splits().and_then(|splits| splits.dispute(guard.splits)) {
            return Err(inner.validation.decide(operation, verdict));
        }
    }
    let mut parts = Vec::with_capacity(members.len());
    for (((inner, (guard, _)), (ask, helper)), entry) in
        members.iter().zip(&locked).zip(asks.iter().zip(helpers)).zip(entries)
    {
        // For ranks that do not compare. Besides, the visit may have another number.
        point::write_down(inner, guard, operation, &signature, entry);
        let child = ask.color.map(|color| {
            let child = Child::Part(guard.splits, color);
            let name = ask.config.as_ref().map_or_else(|| inner.name.part(color), |config| config.name.clone());
            let ranks = inner.validation.splits().map(|splits| splits.members(guard.splits, color)).unwrap_or_default();
            let listener = inner
                .validation
                .over_exchange()
                .map(|checked| PeerListener::of_part(operation, checked, &ranks, &name))
                .transpose()?;
            // From here on the part is expected to start.
            let local_ranks = inner.local_ranks.join_part(child);
            if let Some(parent) = inner.validation.in_process() {
                local_ranks.set_in_process(|| parent.of_part(&ranks, name.clone()));
            }
            Ok::<_, Error>(Place { local_ranks, name, listener })
        });
        let child = child.transpose()?;
        ChildConfig::keep(ask.config.as_ref(), child.as_ref());
        let config = ask.config.as_ref().map(|config| Arc::clone(&config.config));
        parts.push(Part { parent: Arc::clone(inner), helper, wish: ask.wish(), child, config });
    }
    divide(operation, parts)
}
