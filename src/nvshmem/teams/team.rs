//! The team, as this PE has it.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::Arc;

use super::config::{TeamConfig, empty};
use crate::error::{Error, Result};
use crate::nvshmem::pe::{Pe, TeamPe};
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::teams::TeamState;
use crate::sys;

/// PEs that do things together, of which this PE is one. Each has a number in it, a [`TeamPe`], beside the one that it has among all, a [`Pe`].
///
/// A team does one thing at a time: its collectives take `&mut Team`, and come in the order of the calls, on whatever streams. Of the teams that the
/// library keeps, [`Context::world`](crate::nvshmem::Context::world) for example, there may be several handles, which share that order.
///
/// The first collectives of a team that the library has NCCL do, and the first of each kind, may wait for the other members *within the call*, as NCCL connects
/// them and CUDA loads kernels. A member that is late then is the [watchdog](crate::nvshmem::ContextOptions::with_watchdog)'s business; later it is an error at the
/// timeout.
///
/// It borrows the context. Dropped, a team that was made by a split or by an id is put down, and destroyed where all PEs come together next and all
/// of its members have dropped it: in an allocation, in [`Context::reclaim`](crate::nvshmem::Context::reclaim) or at the end.
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, TeamPe, ContextUniqueId};
/// # use gpucomm::Device;
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let world = ctx.world()?;
/// assert_eq!((world.n_pes(), world.pe()), (ctx.n_pes(), TeamPe(ctx.pe().0)));
/// assert_eq!(world.world_pe(TeamPe(0))?, Pe(0));
/// let node = ctx.node()?;
/// assert_eq!(world.translate(world.pe(), &node)?, Some(node.pe()));
/// assert_eq!(node.team_pe(Pe(7)), None);
/// assert_eq!(world.config()?.num_contexts(), None);
/// assert_eq!(world.as_raw(), gpucomm::sys::NVSHMEM_TEAM_WORLD);
/// # drop((world, node));
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
///
/// It does not outlive the context, and does nothing while something else is done with it:
///
/// ```compile_fail,E0505
/// # use gpucomm::nvshmem::Context;
/// fn end(ctx: Context) -> gpucomm::Result<()> {
///     let mut team = ctx.world()?;
///     ctx.close()?;
///     team.barrier()
/// }
/// ```
///
/// ```compile_fail,E0596
/// # use gpucomm::nvshmem::Team;
/// fn wait(team: &Team) -> gpucomm::Result<()> {
///     team.barrier()
/// }
/// ```
pub struct Team<'ctx> {
    pub(crate) inner: Arc<Inner>,
    pub(crate) state: Arc<TeamState>,
    /// Whether it is put down when it goes.
    made: bool,
    /// It stays on the thread of its context.
    _context: PhantomData<(&'ctx (), *const ())>,
}

impl<'ctx> Team<'ctx> {
    /// A handle of a team that the library keeps.
    pub(crate) fn kept(inner: &Arc<Inner>, state: Arc<TeamState>) -> Self {
        Self { inner: Arc::clone(inner), state, made: false, _context: PhantomData }
    }

    /// The handle of a team that was made.
    pub(crate) fn made(inner: &Arc<Inner>, state: TeamState) -> Self {
        inner.teams.add(&state);
        Self { inner: Arc::clone(inner), state: Arc::new(state), made: true, _context: PhantomData }
    }

    /// Wraps `nvshmem_team_my_pe`: the number of this PE in the team.
    #[doc(alias = "nvshmem_team_my_pe")]
    pub fn pe(&self) -> TeamPe {
        TeamPe(self.state.pe)
    }

    /// Wraps `nvshmem_team_n_pes`: how many members it has.
    #[doc(alias = "nvshmem_team_n_pes")]
    pub fn n_pes(&self) -> usize {
        self.state.members.len()
    }

    /// The number among all PEs of a member.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the team has no such member.
    pub fn world_pe(&self, pe: TeamPe) -> Result<Pe> {
        self.member("Team::world_pe", pe).map(Pe)
    }

    /// The number in the team of a PE; `None` where it is no member.
    pub fn team_pe(&self, pe: Pe) -> Option<TeamPe> {
        self.state.members.iter().position(|member| *member == pe.0).map(TeamPe)
    }

    /// Wraps `nvshmem_team_translate_pe`: the number that a member has in another team; `None` where it is not in that one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the team has no such member, or `other` is of another context.
    #[doc(alias = "nvshmem_team_translate_pe")]
    pub fn translate(&self, pe: TeamPe, other: &Team<'_>) -> Result<Option<TeamPe>> {
        const OPERATION: &str = "Team::translate";
        if other.inner.id != self.inner.id {
            return Err(Error::argument(OPERATION, "other", "a team of this context", "one of another"));
        }
        Ok(other.team_pe(Pe(self.member(OPERATION, pe)?)))
    }

    /// Wraps `nvshmem_team_get_config`: what was set for it.
    ///
    /// # Errors
    /// As any call, where the context is lost.
    #[doc(alias = "nvshmem_team_get_config")]
    pub fn config(&self) -> Result<TeamConfig> {
        self.inner.ready("Team::config")?;
        let mut raw = empty();
        // SAFETY: the team is there, and `raw` is a place for one.
        unsafe { sys::nvshmem_team_get_config(self.state.raw, &mut raw) };
        Ok(TeamConfig::of(&raw))
    }

    /// The number by which the library knows it, on this PE only.
    ///
    /// There is no way back. What all members must have in common is kept with a team from where it was made (a key by which they agree on what each has dropped, and
    /// which its splits inherit), and what streams do with it in a handle that others share: of a number alone neither is known. A team that other code
    /// has made can be made again here, by the same split.
    pub fn as_raw(&self) -> i32 {
        self.state.raw
    }

    /// A member's number among all.
    fn member(&self, operation: &'static str, pe: TeamPe) -> Result<usize> {
        self.member_for(operation, "pe", pe)
    }

    /// The same of the argument `what`.
    pub(crate) fn member_for(&self, operation: &'static str, what: &'static str, pe: TeamPe) -> Result<usize> {
        let member = self.state.members.get(pe.0).copied();
        member.ok_or_else(|| Error::argument(operation, what, format_args!("a member below {}", self.n_pes()), pe.0))
    }
}

/// Who is in a team, as the library says: its members, and which of them is this PE. `None` where that cannot be.
pub(crate) fn look(inner: &Inner, raw: sys::nvshmem_team_t) -> Option<(usize, Arc<[usize]>)> {
    // SAFETY: the library runs, and the team is there.
    let (pe, n_pes) = unsafe { (sys::nvshmem_team_my_pe(raw), sys::nvshmem_team_n_pes(raw)) };
    let member = |at: c_int| {
        // SAFETY: as above, and `at` is below its number of members.
        let pe = unsafe { sys::nvshmem_team_translate_pe(raw, at, sys::NVSHMEM_TEAM_WORLD) };
        usize::try_from(pe).ok().filter(|pe| *pe < inner.n_pes)
    };
    let members: Option<Arc<[usize]>> = (0..n_pes).map(member).collect();
    let (pe, members) = (usize::try_from(pe).ok()?, members?);
    (members.get(pe) == Some(&inner.pe)).then_some((pe, members))
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        if self.made {
            self.inner.teams.put(self.state.key);
        }
    }
}

impl std::fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("pe", &self.state.pe).field("members", &self.state.members).finish()
    }
}
