//! The teams that the library keeps.

use std::sync::Arc;

use super::team::{Team, look};
use crate::error::{Error, Result};
use crate::nvshmem::life::context::Context;
use crate::nvshmem::state::order::Order;
use crate::nvshmem::state::teams::{TeamState, key};
use crate::sys;
#[cfg(nvshmem_ge_3_8)]
use crate::version::{Version, running_nvshmem};

impl Context {
    /// `NVSHMEM_TEAM_WORLD`: all PEs, with the numbers that they have.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (world, near) = (ctx.world()?, ctx.shared()?);
    /// let (host, others) = (ctx.node()?, ctx.same_pe_of_node()?);
    /// assert_eq!(world.n_pes(), host.n_pes() * others.n_pes());
    /// assert!(near.n_pes() <= world.n_pes());
    /// # drop((world, near, host, others));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As any call, where the context is lost.
    pub fn world(&self) -> Result<Team<'_>> {
        self.kept("Context::world", sys::NVSHMEM_TEAM_WORLD)
    }

    /// `NVSHMEM_TEAM_SHARED`: the PEs that get at each other's memory directly. Where that is not the same for all of them, each is alone in its own.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the library has not got it right; where the context is lost.
    pub fn shared(&self) -> Result<Team<'_>> {
        self.kept("Context::shared", sys::NVSHMEM_TEAM_SHARED)
    }

    /// `NVSHMEMX_TEAM_NODE`: the PEs of this host.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the library has not got it right, as where PEs of a host are not at equal distances; where the context is lost.
    pub fn node(&self) -> Result<Team<'_>> {
        self.kept("Context::node", sys::NVSHMEMX_TEAM_NODE)
    }

    /// `NVSHMEMX_TEAM_SAME_MYPE_NODE`: on each host the PE that has the same number there as this one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the library has not got it right, as where PEs of a host do not follow each other; where the context is lost.
    pub fn same_pe_of_node(&self) -> Result<Team<'_>> {
        self.kept("Context::same_pe_of_node", sys::NVSHMEMX_TEAM_SAME_MYPE_NODE)
    }

    /// `NVSHMEM_TEAM_MC_SHARED`: the PEs to whose memory one switch writes at a time ([`multicast`](crate::nvshmem::SymmetricBuffer::multicast)). Where there is none, each is
    /// alone in its own, or it is the one of [`shared`](Self::shared). Since NVSHMEM 3.8.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId}; use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let team = ctx.multicast_shared()?;
    /// assert!(team.n_pes() <= ctx.n_pes());
    /// # drop(team); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] where an older library runs; where the context is lost.
    #[cfg(nvshmem_ge_3_8)]
    pub fn multicast_shared(&self) -> Result<Team<'_>> {
        const OPERATION: &str = "Context::multicast_shared";
        let (first, running) = (Version::new(3, 8, 0), running_nvshmem()?);
        if running < first {
            let needs = format!("NVSHMEM {first} or newer; {running} is running");
            return Err(Error::Unsupported { operation: OPERATION, needs });
        }
        self.kept(OPERATION, sys::NVSHMEM_TEAM_MC_SHARED)
    }

    fn kept(&self, operation: &'static str, raw: sys::nvshmem_team_t) -> Result<Team<'_>> {
        let inner = self.inner();
        inner.ready(operation)?;
        let state = inner.teams.kept(raw, || {
            let (pe, members) = look(inner, raw).ok_or_else(|| Error::Unsupported {
                operation,
                needs: "PEs that lie on hosts at equal distances: the library has formed a team of which this PE is no member".to_owned(),
            })?;
            // All PEs do other things together as well, in the same order.
            let world = raw == sys::NVSHMEM_TEAM_WORLD;
            let order = match raw {
                _ if world => Arc::clone(&inner.world),
                // The library may have one team for both.
                #[cfg(nvshmem_ge_3_8)]
                sys::NVSHMEM_TEAM_MC_SHARED => Arc::clone(&self.shared()?.state.order),
                _ => Order::new(),
            };
            let key = key(&[raw.unsigned_abs().into(), members[0] as u64]);
            let multicast = inner.has_multicast(raw);
            let beside_world = raw == sys::NVSHMEMX_TEAM_NODE || raw == sys::NVSHMEMX_TEAM_SAME_MYPE_NODE;
            let beside_world = beside_world || (!world && members.len() == inner.n_pes);
            Ok(TeamState { multicast, beside_world, ..TeamState::new(raw, key, pe, members, order) })
        })?;
        Ok(Team::kept(inner, state))
    }
}
