//! Teams of any PEs in any order, which find each other by an id.

use std::ffi::c_int;

use super::config::TeamConfig;
use super::split::{check_made, take_in};
use super::team::Team;
use crate::error::{Error, Result};
use crate::nvshmem::life::context::Context;
use crate::nvshmem::pe::TeamPe;
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::meeting::{EXTRA, Kind, Plan};
use crate::nvshmem::state::teams::key;
use crate::nvshmem::state::wait_state::Awaited;
use crate::sys;

/// An id for one team: made on one PE, sent to the other members by any means, and used once. See [`Context::team`].
///
/// ```
/// use gpucomm::nvshmem::TeamUniqueId;
///
/// let id = TeamUniqueId::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
/// assert_eq!(TeamUniqueId::from_bytes(id.to_bytes()), id);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TeamUniqueId(u64);

/// The place of this PE in a team that is to be made: as which of how many members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TeamPlace {
    /// Of which team.
    pub id: TeamUniqueId,
    /// The number of this PE in it.
    pub pe: TeamPe,
    /// How many members it has.
    pub n_pes: usize,
}

impl TeamUniqueId {
    /// An id that another PE sent.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    /// The bytes, for the other PEs.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }
}

impl Context {
    /// Wraps `nvshmemx_team_get_uniqueid`: an id for one team.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where several PEs share a device without MPS; [`Error::Nvshmem`] where the library is older than 3.3.
    #[doc(alias = "nvshmemx_team_get_uniqueid")]
    pub fn team_unique_id(&self) -> Result<TeamUniqueId> {
        const OPERATION: &str = "Context::team_unique_id";
        let inner = self.inner();
        inner.check_whole(OPERATION)?;
        let mut id = 0;
        // SAFETY: the library runs, and `id` is a place for one.
        let code = inner.on_host(OPERATION, || unsafe { sys::nvshmemx_team_get_uniqueid(&mut id) })?;
        check("nvshmemx_team_get_uniqueid", code)?;
        Ok(TeamUniqueId(id))
    }

    /// Wraps `nvshmemx_team_init`, of NVSHMEM 3.3: a team of PEs that have an id in common, each at the place that it says. Those that are to be in none
    /// say `None`, and get it.
    ///
    /// Collective over all PEs, members or not; several teams may be made in one call. They tell each other first who wants to be where. (The
    /// library asks members alone, but mixes teams up that follow each other with some members in common.)
    ///
    /// # Errors
    /// [`Error::Timeout`] if other work on this PE's device does not end in time: NVSHMEM waits for all of the device here, without a deadline. Work on streams
    /// of others ([`Stream::from_raw`](crate::Stream::from_raw)) is not seen.
    ///
    /// [`Error::InvalidArgument`], on all PEs, where the places of an id do not make a team: each number below `n_pes` exactly once; and where an id was used before;
    /// [`Error::Unsupported`] where several PEs share a device without MPS, and where switches work for teams and the library takes two teams for one, or has no room for those that it makes with each;
    /// [`Error::Nvshmem`] where it has no team left, for example: `NVSHMEM_MAX_TEAMS` in the environment says how many there are; [`Error::Timeout`] where
    /// not all PEs come.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, TeamPlace, TeamConfig, TeamPe, TeamUniqueId, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// // PE 0 makes it, and sends it to the others.
    /// let id = TeamUniqueId::from_bytes(ctx.team_unique_id()?.to_bytes());
    /// // All PEs, the other way round.
    /// let place = TeamPlace { id, pe: TeamPe(ctx.n_pes() - 1 - ctx.pe().0), n_pes: ctx.n_pes() };
    /// let team = ctx.team(Some(place), &TeamConfig::default())?.expect("all are in it");
    /// assert_eq!(team.world_pe(TeamPe(0))?, Pe(ctx.n_pes() - 1));
    /// # drop(team);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "nvshmemx_team_init")]
    pub fn team(&self, place: Option<TeamPlace>, config: &TeamConfig) -> Result<Option<Team<'_>>> {
        const OPERATION: &str = "Context::team";
        const C: &str = "nvshmemx_team_init";
        let inner = self.inner();
        inner.ready(OPERATION)?;
        inner.check_whole(OPERATION)?;
        let (mut raw, mask) = config.raw(OPERATION)?;
        let plan = Plan {
            numbers: [config.word(), 0, 0, 0, 0, 0],
            explain: |[config, ..]| format!("some PEs{}", TeamConfig::said(*config)),
            ..Plan::new(OPERATION, Kind::TeamInit)
        };
        let deadline = inner.deadline();
        let said = inner.meet_with(&plan, &words(place))?;
        let places: Vec<Option<TeamPlace>> = said.iter().map(place_of).collect();
        check_places(OPERATION, &places)?;
        // All PEs have seen all places, of the teams before as well.
        if let Some(used) = places.iter().flatten().find(|place| inner.teams.has_used(place.id.0)) {
            let got = format!("{:?}, of which a team was made", used.id);
            return Err(Error::argument(OPERATION, "place", "an id for each team", got));
        }
        let members = place.map(|place| members(&places, place.id));
        let twin = inner.has_multicast(sys::NVSHMEM_TEAM_WORLD)
            && members.as_ref().is_some_and(|members| inner.teams.has_twin(members));
        let unable = inner.meet(&Plan { able: !twin, ..Plan::new(OPERATION, Kind::Settle) })?;
        if let Some(pe) = unable.first() {
            let needs = format!(
                "another team: of a team that PE {pe} has by an id and the new one, NVSHMEM would use the same switches, as it keeps their sizes and distances only"
            );
            return Err(Error::Unsupported { operation: OPERATION, needs });
        }
        let able = place.is_none_or(|place| inner.has_slots(&[place.n_pes]));
        if let Some(pe) = inner.meet(&Plan { able, ..Plan::new(OPERATION, Kind::Settle) })?.first() {
            return Err(inner.no_slots(OPERATION, *pe));
        }
        inner.idle_together(OPERATION, None, &Awaited::All, &[inner.device], &deadline)?;
        inner.teams.uses(places.iter().flatten().map(|place| place.id.0));
        let mut team = sys::NVSHMEM_TEAM_INVALID;
        let mut code = sys::NVSHMEMX_SUCCESS;
        if let Some(TeamPlace { id, pe, n_pes }) = place {
            raw.uniqueid = id.0;
            let mask = mask | sys::NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID;
            let awaited = Awaited::Members(members.as_deref().unwrap_or_default().into());
            let called = inner.on_quiet_device(OPERATION, &awaited, || {
                // SAFETY: the configuration is initialised, and all members call it now, each at its place; both are at most the number of PEs, a C int.
                unsafe { sys::nvshmemx_team_init(&mut team, &mut raw, mask, n_pes as c_int, pe.0 as c_int) }
            });
            code = called.inspect_err(|error| inner.lose(error))?;
        }
        let made = match (place, team) {
            (Some(place), team) if team != sys::NVSHMEM_TEAM_INVALID => {
                Some(take_in(inner, OPERATION, team, key(&[place.id.0]), true)?)
            }
            _ => None,
        };
        let right = made.as_ref().map(|team| &*team.state.members) == members.as_deref();
        let able = code == sys::NVSHMEMX_SUCCESS && right;
        let unable = inner.meet(&Plan { able, ..Plan::new(OPERATION, Kind::Settle) })?;
        if unable.is_empty() {
            return Ok(made);
        }
        check_made(C, code)?;
        check_made(C, sys::NVSHMEMX_ERROR_INTERNAL)?;
        Ok(None)
    }
}

/// What a PE says of its place.
fn words(place: Option<TeamPlace>) -> [u64; EXTRA] {
    place.map_or([0; EXTRA], |place| [1, place.id.0, place.pe.0 as u64, place.n_pes as u64])
}

fn place_of(words: &[u64; EXTRA]) -> Option<TeamPlace> {
    let [1, id, pe, n_pes] = *words else { return None };
    let (pe, n_pes) = (usize::try_from(pe).unwrap_or(usize::MAX), usize::try_from(n_pes).unwrap_or(usize::MAX));
    Some(TeamPlace { id: TeamUniqueId(id), pe: TeamPe(pe), n_pes })
}

/// Fails where the PEs of an id do not make a team.
fn check_places(operation: &'static str, places: &[Option<TeamPlace>]) -> Result<()> {
    for place in places.iter().flatten() {
        let same: Vec<_> = places.iter().flatten().filter(|other| other.id == place.id).collect();
        let taken = same.iter().filter(|other| other.pe == place.pe).count();
        let sizes = same.iter().all(|other| other.n_pes == place.n_pes);
        if sizes && same.len() == place.n_pes && place.pe.0 < place.n_pes && taken == 1 {
            continue;
        }
        let expected = format!("each number below {} once", place.n_pes);
        let numbers: Vec<_> = same.iter().map(|other| (other.pe.0, other.n_pes)).collect();
        let got = format!("the numbers and sizes {numbers:?}");
        return Err(Error::argument(operation, "place", expected, got));
    }
    Ok(())
}

/// The PEs of an id, by their places, which are right.
fn members(places: &[Option<TeamPlace>], id: TeamUniqueId) -> Vec<usize> {
    let here = places.iter().enumerate().filter_map(|(pe, place)| Some((pe, (*place)?)));
    let mut members: Vec<_> = here.filter(|(_, place)| place.id == id).collect();
    members.sort_unstable_by_key(|(_, place)| place.pe);
    members.into_iter().map(|(pe, _)| pe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(id: u64, pe: usize, n_pes: usize) -> Option<TeamPlace> {
        Some(TeamPlace { id: TeamUniqueId(id), pe: TeamPe(pe), n_pes })
    }

    #[test]
    fn places_make_teams_where_each_number_is_there_once() {
        let right = [place(9, 1, 2), None, place(5, 0, 1), place(9, 0, 2)];
        check_places("test", &right).unwrap();
        assert_eq!(members(&right, TeamUniqueId(9)), [3, 0]);
        let wrong = [
            vec![place(9, 0, 2), None],
            vec![place(9, 0, 2), place(9, 0, 2)],
            vec![place(9, 0, 2), place(9, 2, 2)],
            vec![place(9, 0, 1), place(9, 1, 2)],
            vec![place(9, 0, 0)],
        ];
        for places in wrong {
            assert!(check_places("test", &places).is_err(), "{places:?}");
        }
    }

    #[test]
    fn a_place_comes_back_from_its_words() {
        for place in [None, place(7, 3, 8)] {
            assert_eq!(place_of(&words(place)), place);
        }
    }
}
