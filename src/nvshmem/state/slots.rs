//! How many teams the library has room for, where switches work: with each team it then makes others of the same members, one for each block of its
//! collectives, and ends the process where it cannot.

use super::block_teams::{at_once, copies, most};
use super::inner::Inner;
use super::meeting::Plan;
use super::teams::TeamState;
use crate::error::{Error, Result};
use crate::sys;

/// Teams that the library has from the start.
const OWN: usize = 7;

impl Inner {
    /// Wraps `nvshmemx_mc_ptr`: whether switches work for a team.
    pub(crate) fn has_multicast(&self, raw: sys::nvshmem_team_t) -> bool {
        // SAFETY: the team is there, and the address lies in symmetric memory. It is not looked at.
        !unsafe { sys::nvshmemx_mc_ptr(raw, self.board.address().ptr()) }.is_null()
    }

    /// Whether the library makes teams of a team of so many members: it may, where switches work for any.
    fn multiplies(&self, size: usize) -> bool {
        size > 1 && at_once() && self.has_multicast(sys::NVSHMEMX_TEAM_NODE)
    }

    /// How many teams the library makes for one of so many members.
    pub(crate) fn slots_of(&self, size: usize) -> usize {
        if self.multiplies(size) { copies() } else { 1 }
    }

    /// How many it has made at its start.
    fn slots_at_start(&self) -> usize {
        let world = sys::NVSHMEM_TEAM_WORLD;
        let kept = [world, sys::NVSHMEM_TEAM_SHARED, sys::NVSHMEMX_TEAM_NODE, sys::NVSHMEMX_TEAM_SAME_MYPE_NODE];
        let kept = kept.into_iter().filter(|raw| self.has_multicast(*raw)).count();
        // The library keeps a team of the PEs that have a device for themselves.
        let leaders = usize::from(self.has_multicast(world));
        OWN + (kept + leaders) * (copies() - 1)
    }

    /// Whether the library has room on this PE for new teams of so many members each. Where it has not, it would end the process.
    pub(crate) fn has_slots(&self, sizes: &[usize]) -> bool {
        if !sizes.iter().any(|size| self.multiplies(*size)) {
            return true;
        }
        let wanted: usize = sizes.iter().map(|size| self.slots_of(*size)).sum();
        self.slots_at_start() + self.teams.most() + wanted <= most()
    }

    /// Comes together with the members of `team`, for new teams of so many members each, where all have room for them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on all where one has not; as [`Inner::meet_in`].
    pub(crate) fn meet_for_teams(&self, plan: &Plan, team: &TeamState, sizes: &[usize]) -> Result<()> {
        let meet = || self.meet_in(&Plan { able: self.has_slots(sizes), ..*plan }, team);
        let mut unable = meet()?;
        if !unable.is_empty() {
            // Teams that all have dropped are gone since.
            unable = meet()?;
        }
        unable.first().map_or(Ok(()), |pe| Err(self.no_slots(plan.operation, *pe)))
    }

    /// That it has not, on PE `pe`.
    #[cold]
    pub(crate) fn no_slots(&self, operation: &'static str, pe: usize) -> Error {
        let (copies, most) = (copies(), most());
        let needs = format!(
            "{copies} teams of the library's own for each team, as switches work for it, and PE {pe} may have {most} in all: NVSHMEM_MAX_TEAMS in the environment allows more, and NVSHMEM_MAX_CTAS has it make fewer"
        );
        Error::Unsupported { operation, needs }
    }
}
