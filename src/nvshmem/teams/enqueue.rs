//! What a team does on a stream.

use super::team::Team;
use crate::cuda::{Lend, Stream};
use crate::error::Result;
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::order::OrderUse;
use crate::sys;

impl Team<'_> {
    /// Enqueues what all members do together, with `memory`, behind what the team does already. Under the watchdog: the library may set up
    /// connections, or load kernels, the first time.
    pub(crate) fn together<M: Lend>(
        &mut self,
        operation: &'static str,
        c: &'static str,
        stream: &Stream,
        memory: M,
        f: impl FnOnce(sys::nvshmem_team_t, sys::cudaStream_t) -> i32,
    ) -> Result<()> {
        let Self { inner, state, .. } = self;
        inner.ready(operation)?;
        inner.check_whole(operation)?;
        let order = OrderUse::exclusive(&*state.order);
        let world = OrderUse::exclusive(state.beside_world.then_some(&*inner.world));
        let awaited = state.awaited();
        let code = inner.together_on_stream(operation, stream, (memory, order, world), &awaited, |stream| {
            inner.watchdog.during(operation, inner.timeout, &awaited, || f(state.raw, stream))
        });
        check(c, code?)
    }
}
