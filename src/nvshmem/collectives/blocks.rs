//! Large collectives of teams for which switches work: the library does them by several blocks, each with a team of its own, which it makes when it
//! does the first one; from 3.5 on, it has made them with the team.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::nvshmem::state::block_teams::{at_once, blocks_set, teams_set};
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::meeting::{Kind, Plan};
use crate::nvshmem::state::teams::TeamState;

/// Teams that the library has for itself.
const OWN: usize = 7;

/// Teams that there may be, if the environment does not say otherwise.
const TEAMS: usize = 64;

/// How the library divides a collective.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    /// From so many bytes on.
    pub(super) threshold: usize,
    /// Into how many blocks.
    pub(super) blocks: usize,
}

impl Blocks {
    /// It does not.
    pub(super) const ONE: Self = Self { threshold: usize::MAX, blocks: 1 };

    /// Into how many blocks the library divides `bytes` where switches work.
    pub(super) fn of(self, bytes: usize) -> usize {
        if bytes < self.threshold { 1 } else { blocks_set().unwrap_or(self.blocks) }
    }

    /// Whether the library will make teams for that, which all members then do together, and which waits for the whole device. All members find the same.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where it has made fewer before: it goes on all the same, with teams that are not there.
    pub(super) fn grows(self, team: &TeamState, operation: &'static str, bytes: usize) -> Result<bool> {
        if !team.multicast || bytes < self.threshold || at_once() {
            return Ok(false);
        }
        let blocks = self.of(bytes);
        let there = team.blocks.load(Ordering::Relaxed);
        if blocks <= there.max(1) {
            return Ok(false);
        }
        if there > 1 {
            let needs = format!(
                "{blocks} blocks, and the team has got {there} by an operation before: with NVSHMEM_MAX_CTAS in the environment, all take as many"
            );
            return Err(Error::Unsupported { operation, needs });
        }
        Ok(true)
    }

    /// Comes together with the other members before it does, and goes on where the library has enough teams on all of them: each PE is in teams of its own.
    /// `able` is an error where this PE cannot go on for another reason.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where it has not, on all: it would go on all the same, with teams that are not there.
    pub(super) fn agree<R>(
        self,
        inner: &Inner,
        team: &TeamState,
        operation: &'static str,
        bytes: usize,
        able: Result<R>,
    ) -> Result<R> {
        let blocks = self.of(bytes);
        let able = able.and_then(|able| room(inner, operation, blocks).map(|()| able));
        let plan = Plan {
            numbers: [bytes as u64, blocks as u64, team.key, 0, 0, 0],
            explain: |[bytes, blocks, ..]| format!("{bytes} bytes among {blocks} blocks"),
            able: able.is_ok(),
            ..Plan::new(operation, Kind::Blocks)
        };
        let unable = inner.meet_in(&plan, team)?;
        match unable.first() {
            Some(pe) if able.is_ok() => {
                let needs = format!(
                    "{blocks} teams of the library's own on all members: PE {pe} has no room for them, or a capture is in their way"
                );
                Err(Error::Unsupported { operation, needs })
            }
            _ => able,
        }
    }

    /// The library has made them.
    pub(super) fn grown(self, inner: &Inner, team: &TeamState) {
        let blocks = blocks_set().unwrap_or(self.blocks);
        team.blocks.store(blocks, Ordering::Relaxed);
        inner.teams.grow(blocks);
    }
}

/// Fails where the library may have no room for so many teams more.
fn room(inner: &Inner, operation: &'static str, blocks: usize) -> Result<()> {
    let teams = teams_set().unwrap_or(TEAMS);
    let used = OWN + inner.teams.most();
    if used + blocks > teams {
        let needs = format!(
            "{blocks} teams of the library's own, and there may be {teams}: NVSHMEM_MAX_TEAMS in the environment allows more"
        );
        return Err(Error::Unsupported { operation, needs });
    }
    Ok(())
}
