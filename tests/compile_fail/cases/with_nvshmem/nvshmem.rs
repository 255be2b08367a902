//! With the feature `nvshmem`.
#![allow(dead_code)]

mod buffer_outlives_context {
    //! Symmetric memory is the context's.
    use gpucomm::Result;
    use gpucomm::nvshmem::Context;

    fn order(ctx: Context) -> Result<usize> {
        let buffer = ctx.alloc::<u32>(5)?;
        ctx.close()?;
        Ok(buffer.len())
    }
}

mod collective_of_a_shared_team {
    //! A team that others may be using can be asked, and not used.
    use gpucomm::Result;
    use gpucomm::nvshmem::Team;

    fn sync(team: &Team<'_>) -> Result<()> {
        team.sync()
    }
}

mod comparison_for_a_signal_operation {
    //! What a signal is set to, and what it is compared with, are two things.
    use gpucomm::nvshmem::{Comparison, Context, Pe, Signal};
    use gpucomm::{Result, Stream};

    fn signal(ctx: &Context, signal: Signal<'_>, stream: &Stream) -> Result<()> {
        ctx.on(stream).signal_op(signal, Comparison::Eq, Pe(1))
    }
}

mod context_in_two_threads {
    //! The library takes one thread at a time: a context can be sent, and not shared.
    use gpucomm::Result;
    use gpucomm::nvshmem::Context;

    fn both(ctx: &Context) -> Result<()> {
        std::thread::scope(|scope| {
            let one = scope.spawn(|| ctx.quiet());
            ctx.fence()?;
            one.join().expect("a thread")
        })
    }
}

mod get_from_a_view {
    //! A view is memory of another PE at an address of this one: a get wants the address of this PE's part.
    use gpucomm::Result;
    use gpucomm::nvshmem::{Context, Pe, PeerView, SymmetricBuffer};

    fn get(ctx: &Context, target: &mut SymmetricBuffer<'_, u32>, view: &PeerView<'_, u32>) -> Result<()> {
        ctx.get(target, view, Pe(1))
    }
}

mod init_without_unsafe {
    //! That all PEs make the same collective calls is a promise.
    use gpucomm::Result;
    use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};

    fn start(id: &ContextUniqueId) -> Result<Context> {
        Context::init(&ContextOptions::new().with_unique_id(id, 0, 1))
    }
}

mod lent_to_a_scope_too_short {
    //! What transfers of a scope use outlives the scope, which waits for them.
    use gpucomm::nvshmem::{Context, Pe, SymmetricBuffer};
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn put(ctx: &Context, dest: &SymmetricBuffer<'_, u32>, stream: &Stream) -> Result<()> {
        ctx.nonblocking(|scope| {
            let source = DeviceBuffer::from_slice(stream, &[1u32, 2])?;
            scope.put(dest, &source, Pe(0))
        })
    }
}

mod pe_of_a_team_for_a_pe {
    //! The number of a PE in a team is not its number in the world.
    use gpucomm::Result;
    use gpucomm::nvshmem::{Context, SymmetricBuffer, TeamPe};

    fn put(ctx: &Context, dest: &SymmetricBuffer<'_, u32>, source: &SymmetricBuffer<'_, u32>) -> Result<()> {
        ctx.put(dest, source, TeamPe(1))
    }
}

mod put_to_a_device_buffer {
    //! Memory of this device alone is not at the same place of another PE.
    use gpucomm::nvshmem::{Context, Pe};
    use gpucomm::{DeviceBuffer, Result};

    fn put(ctx: &Context, dest: &DeviceBuffer<u32>, source: &DeviceBuffer<u32>) -> Result<()> {
        ctx.put(dest, source, Pe(1))
    }
}

mod put_to_a_multicast_view {
    //! What a switch writes to is the memory of all PEs at once, and of none that a put could name.
    use gpucomm::Result;
    use gpucomm::nvshmem::{Context, MulticastView, Pe, SymmetricBuffer};

    fn put(ctx: &Context, source: &SymmetricBuffer<'_, u32>, view: &MulticastView<'_, u32>) -> Result<()> {
        ctx.put(view, source, Pe(1))
    }
}

mod put_to_a_view {
    //! A view is memory of another PE at an address of this one: a put wants the address of this PE's part.
    use gpucomm::Result;
    use gpucomm::nvshmem::{Context, Pe, PeerView, SymmetricBuffer};

    fn put(ctx: &Context, source: &SymmetricBuffer<'_, u32>, view: &PeerView<'_, u32>) -> Result<()> {
        ctx.put(view, source, Pe(1))
    }
}

mod put_to_host_memory {
    //! What is put to lies in symmetric memory of the other PE, not on this host.
    use gpucomm::Result;
    use gpucomm::nvshmem::{Context, Pe, SymmetricBuffer};

    fn put(ctx: &Context, source: &SymmetricBuffer<'_, u32>, dest: &[u32]) -> Result<()> {
        ctx.put(dest, source, Pe(1))
    }
}

mod read_while_it_is_got_into {
    //! What a get of a scope writes to is nobody else's until the scope is over.
    use gpucomm::nvshmem::{Context, Pe, SymmetricBuffer};
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn get(
        ctx: &Context,
        source: &SymmetricBuffer<'_, u32>,
        dest: &mut DeviceBuffer<u32>,
        stream: &Stream,
    ) -> Result<()> {
        ctx.nonblocking(|scope| {
            scope.get(&mut *dest, source, Pe(0))?;
            dest.to_vec(stream).map(drop)
        })
    }
}

mod reduction_of_what_only_moves {
    //! A team reduces numbers.
    use gpucomm::nvshmem::{SymmetricBuffer, Team};
    use gpucomm::{ReduceOp, Result, Stream};

    fn reduce(
        team: &mut Team<'_>,
        dest: &mut SymmetricBuffer<'_, bool>,
        source: &SymmetricBuffer<'_, bool>,
        stream: &Stream,
    ) -> Result<()> {
        team.on(stream).reduce(dest, source, ReduceOp::Or)
    }
}

mod result_over_its_operand {
    //! What a collective reads is not what it writes.
    use gpucomm::nvshmem::{SymmetricBuffer, Team};
    use gpucomm::{ReduceOp, Result, Stream};

    fn reduce(team: &mut Team<'_>, both: &mut SymmetricBuffer<'_, f32>, stream: &Stream) -> Result<()> {
        team.on(stream).reduce(&mut *both, &*both, ReduceOp::Sum)
    }
}

mod team_in_two_collectives {
    //! A team does one thing at a time: what uses it holds it alone.
    use gpucomm::Result;
    use gpucomm::nvshmem::Team;

    fn both(one: &mut Team<'_>, other: &mut Team<'_>) -> Result<()> {
        one.barrier()?;
        other.sync()
    }

    fn twice(mut team: Team<'_>) -> Result<()> {
        both(&mut team, &mut team)
    }
}

mod team_outlives_context {
    //! A team is the context's.
    use gpucomm::Result;
    use gpucomm::nvshmem::Context;

    fn order(ctx: Context) -> Result<()> {
        let mut team = ctx.world()?;
        ctx.close()?;
        team.barrier()
    }
}

fn main() {}
