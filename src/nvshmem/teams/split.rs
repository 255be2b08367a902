//! A team of some members of another one, at equal distances.

use std::ffi::c_int;
use std::sync::Arc;

use super::config::TeamConfig;
use super::team::{Team, look};
use crate::cuda::Quiet;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nvshmem::pe::TeamPe;
use crate::nvshmem::state::code::{check, error};
use crate::nvshmem::state::meeting::{Kind, Plan};
use crate::nvshmem::state::order::Order;
use crate::nvshmem::state::teams::{TeamState, key};
use crate::sys;

/// What more teams than the library has room for get.
pub(super) const EXHAUSTED: &str = "there may be too many teams: NVSHMEM_MAX_TEAMS in the environment allows more, and teams that all of their members have dropped are destroyed by Context::reclaim";

impl<'ctx> Team<'ctx> {
    /// Wraps `nvshmem_team_split_strided`: a team of `size` members of this one: `start`, and each that is `stride` behind the one before.
    /// Those that are not in it get `None`.
    ///
    /// Collective over this team, also for members that will not be in the new one. They compare what they ask for first.
    ///
    /// # Errors
    /// [`Error::Timeout`] if other work on this PE's device does not end in time: NVSHMEM waits for all of the device here, without a deadline. Work on streams
    /// of others ([`Stream::from_raw`](crate::Stream::from_raw)) is not seen.
    ///
    /// [`Error::InvalidArgument`] where not all of the members exist; [`Error::Disagreement`] where the members ask for different teams;
    /// [`Error::Unsupported`] where several PEs share a device without MPS, or members of this team are not at equal distances among all PEs, which the
    /// library gets wrong, and where it has no room for the teams that it makes with one for which switches work (NVLS); [`Error::Nvshmem`] where it has no team left, for example: `NVSHMEM_MAX_TEAMS` in the environment says how many there are;
    /// [`Error::Timeout`] where not all members come in time, and [`Error::Departed`] soon after the exchange knows that one has ended, or where the
    /// others had given up before this one came: the context is lost then.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, TeamConfig, TeamPe, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let mut world = ctx.world()?;
    /// let even = world.n_pes().div_ceil(2);
    /// match world.split_strided(TeamPe(0), 2, even, &TeamConfig::default())? {
    ///     Some(team) => println!("{:?} of {} with even numbers", team.pe(), team.n_pes()),
    ///     None => println!("an odd one"),
    /// }
    /// # drop(world);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "nvshmem_team_split_strided")]
    pub fn split_strided(
        &mut self,
        start: TeamPe,
        stride: usize,
        size: usize,
        config: &TeamConfig,
    ) -> Result<Option<Team<'ctx>>> {
        const OPERATION: &str = "Team::split_strided";
        self.check_split(OPERATION)?;
        let n_pes = self.n_pes();
        let last = size.checked_sub(1).and_then(|steps| steps.checked_mul(stride)?.checked_add(start.0));
        if stride == 0 || last.is_none_or(|last| last >= n_pes) {
            let expected = format!("at least one, all below {n_pes}, at a stride of at least 1");
            let got = format!("{size} from {} on by {stride}", start.0);
            return Err(Error::argument(OPERATION, "members", expected, got));
        }
        let (raw, mask) = config.raw(OPERATION)?;
        let deadline = self.inner.deadline();
        let number = self.state.next_child();
        let plan = Plan {
            numbers: [start.0 as u64, stride as u64, size as u64, config.word(), self.state.key, number],
            explain: |[start, stride, size, config, ..]| {
                format!("{size} members from {start} on by {stride}{}", TeamConfig::said(*config))
            },
            ..Plan::new(OPERATION, Kind::Split)
        };
        self.inner.meet_for_teams(&plan, &self.state, &[size])?;
        self.state.has_child();
        self.idle_together(OPERATION, &deadline)?;
        let mut team = sys::NVSHMEM_TEAM_INVALID;
        let pointer = if mask == 0 { std::ptr::null() } else { &raw const raw };
        // One member has no stride, whatever was asked for. All are at most the number of PEs, which is a C int.
        let step = if size == 1 { 1 } else { stride };
        let [start_int, stride_int, size_int] = [start.0, step, size].map(|number| number as c_int);
        let code = self.inner.on_quiet_device(OPERATION, &self.state.awaited(), || {
            // SAFETY: the team is there, these of its members exist, and all of its members call it now with the same numbers.
            unsafe {
                sys::nvshmem_team_split_strided(
                    self.state.raw,
                    start_int,
                    stride_int,
                    size_int,
                    pointer,
                    mask,
                    &mut team,
                )
            }
        });
        let code = code.inspect_err(|error| self.inner.lose(error))?;
        if code != sys::NVSHMEMX_SUCCESS {
            return Err(exhausted("nvshmem_team_split_strided", code));
        }
        if team == sys::NVSHMEM_TEAM_INVALID {
            return Ok(None);
        }
        self.child(OPERATION, team, &[number, start.0 as u64]).map(Some)
    }

    /// Returns an error if the library cannot split this team, or not rightly, which is the same on all members; or if this thread captures
    /// on the device.
    pub(super) fn check_split(&self, operation: &'static str) -> Result<()> {
        self.inner.ready(operation)?;
        self.inner.check_whole(operation)?;
        Quiet::check(operation, &[self.inner.device])?;
        // Of a single PE that has its team by an id, the library does not know how far it is from the next one.
        let known = !self.state.by_id || self.n_pes() > 1;
        if known && self.state.stride().is_some() {
            return Ok(());
        }
        let needs = "a team whose members are at equal distances among all PEs, in their order; and more than one where it was made by an id: NVSHMEM's splits of others are wrong";
        Err(Error::Unsupported { operation, needs: needs.to_owned() })
    }

    /// As [`Inner::idle_together`](crate::nvshmem::state::inner::Inner::idle_together), of the members.
    pub(super) fn idle_together(&self, operation: &'static str, deadline: &Deadline) -> Result<()> {
        self.inner.idle_together(operation, Some(&self.state), &self.state.awaited(), &[self.inner.device], deadline)
    }

    /// The team that the library has made of this one. `parts` are numbers that its members have in common, and nobody else.
    pub(super) fn child(&self, operation: &'static str, raw: sys::nvshmem_team_t, parts: &[u64]) -> Result<Team<'ctx>> {
        let key = key(&[&[self.state.key], parts].concat());
        take_in(&self.inner, operation, raw, key, false)
    }
}

/// The team of that number, which the library has just made.
pub(super) fn take_in<'ctx>(
    inner: &Arc<crate::nvshmem::state::inner::Inner>,
    operation: &'static str,
    raw: sys::nvshmem_team_t,
    key: u64,
    by_id: bool,
) -> Result<Team<'ctx>> {
    inner.ready(operation)?;
    let Some((pe, members)) = look(inner, raw) else {
        let reason = format!("{operation}: the library has made a team of which this PE is no member");
        let error = Error::InvalidUsage { operation, reason };
        inner.lose(&error);
        return Err(error);
    };
    let (multicast, slots) = (inner.has_multicast(raw), inner.slots_of(members.len()));
    let beside_world = members.len() == inner.n_pes;
    let state =
        TeamState { multicast, by_id, slots, beside_world, ..TeamState::new(raw, key, pe, members, Order::new()) };
    Ok(Team::made(inner, state))
}

/// The error of a C function that could not make a team.
#[cold]
pub(super) fn exhausted(c: &'static str, code: c_int) -> Error {
    match error(c, code) {
        Error::Nvshmem { operation, code, message } => {
            Error::Nvshmem { operation, code, message: format!("{message}; {EXHAUSTED}") }
        }
        other => other,
    }
}

/// As [`check`], for such a function.
pub(super) fn check_made(c: &'static str, code: c_int) -> Result<()> {
    check(c, code).map_err(|_| exhausted(c, code))
}
