//! What depends on a communicator ends before it.
#![allow(dead_code)]

mod abort_under_buffer {
    //! A communicator cannot be consumed by `abort` while a buffer of it lives; an `Aborter` can.
    use gpucomm::{Communicator, Result, Stream};

    fn order(comm: Communicator, stream: &Stream) -> Result<Vec<f32>> {
        let buffer = comm.alloc::<f32>(stream, 8)?;
        let _ = comm.abort("the test says so");
        buffer.to_vec(stream)
    }
}

mod clique_after_into_ranks {
    //! A clique that was taken apart is gone.
    use gpucomm::{Clique, Result};

    fn gone(clique: Clique) -> Result<Vec<usize>> {
        let ranks = clique.into_ranks();
        drop(ranks);
        clique.spmd(|comm| Ok(comm.rank()))
    }
}

mod close_under_buffer {
    //! A communicator cannot be closed while a buffer of it lives.
    use gpucomm::{Communicator, Result, Stream};

    fn order(comm: Communicator, stream: &Stream) -> Result<Vec<f32>> {
        let buffer = comm.alloc::<f32>(stream, 8)?;
        comm.close()?;
        buffer.to_vec(stream)
    }
}

mod close_under_registration {
    //! A communicator cannot be closed while it has memory registered.
    use gpucomm::{Communicator, DeviceBuffer, Result};

    fn order(comm: Communicator, buffer: &DeviceBuffer<f32>) -> Result<bool> {
        let registered = comm.register(buffer)?;
        comm.close()?;
        Ok(registered.without_effect().is_none())
    }
}

mod close_under_window {
    //! A communicator cannot be closed while it has a window.
    use gpucomm::{Communicator, DeviceBuffer, Result};

    fn order(comm: Communicator, buffer: &DeviceBuffer<f32>) -> Result<bool> {
        let window = comm.window(buffer)?;
        comm.close()?;
        Ok(window.unsupported().is_none())
    }
}

mod comm_buffer_outlives_communicator {
    //! A buffer of a communicator cannot outlive it.
    use gpucomm::{CommBuffer, Communicator, Result, Stream};

    fn leak<'a>(comm: Communicator, stream: &Stream) -> Result<CommBuffer<'a, f32>> {
        comm.alloc::<f32>(stream, 8)
    }
}

mod communicator_dropped_under_buffer {
    //! A communicator cannot be dropped while a buffer of it lives.
    use gpucomm::{Communicator, Result, Stream};

    fn order(comm: Communicator, stream: &Stream) -> Result<Vec<f32>> {
        let buffer = comm.alloc::<f32>(stream, 8)?;
        drop(comm);
        buffer.to_vec(stream)
    }
}

mod communicator_given_away_under_buffer {
    //! A buffer needs its communicator.
    use gpucomm::{Communicator, Result, Stream};

    fn give(comm: Communicator, stream: &Stream) -> Result<()> {
        let buffer = comm.alloc::<f32>(stream, 10)?;
        let _raw = comm.into_raw()?;
        drop(buffer);
        Ok(())
    }
}

mod communicator_used_after_into_raw {
    //! What was given away is not ours any more.
    use gpucomm::{Communicator, Result, Stream};

    fn give(comm: Communicator, stream: &Stream) -> Result<()> {
        let _raw = comm.into_raw()?;
        comm.barrier_on_stream(stream)
    }
}

mod invitation_accepted_twice {
    //! An invitation is for one rank.

    use gpucomm::nccl::Invitation;
    use gpucomm::{Communicator, Device, Result};

    fn both(invitation: Invitation, devices: [Device; 2]) -> Result<[Communicator; 2]> {
        Ok([invitation.accept(devices[0])?, invitation.accept(devices[1])?])
    }

    fn main() {
        let _ = both;
    }
}

mod part_after_join {
    //! What was joined is one buffer, and its parts are gone.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn use_part(x: DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        let (left, mut right) = x.into_split(4);
        let whole = left.join(right)?;
        right.fill(stream, 1.0)?;
        drop(whole);
        Ok(())
    }
}

mod part_outlives_communicator {
    //! A part of a buffer of a communicator borrows that as the whole did.
    use gpucomm::{Communicator, Result, Stream};

    fn parts(comm: Communicator, stream: &Stream) -> Result<()> {
        let (left, _right) = comm.alloc::<f32>(stream, 8)?.into_split(4);
        drop(comm);
        left.to_vec(stream).map(drop)
    }
}

mod pre_mul_sum_of_another_type {
    //! An operator made of a double does not reduce singles.
    use gpucomm::{Communicator, DeviceBuffer, InPlace, Result, Stream};

    fn mix(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        let operator = comm.pre_mul_sum(2.0f64)?;
        comm.all_reduce(InPlace(x), &operator, stream)
    }
}

mod pre_mul_sum_outlives_communicator {
    //! A reduction operator cannot outlive its communicator.
    use gpucomm::nccl::PreMulSum;
    use gpucomm::{Communicator, Result};

    fn leak<'a>(comm: Communicator) -> Result<PreMulSum<'a, f32>> {
        comm.pre_mul_sum(2.0f32)
    }
}

mod registration_outlives_communicator {
    //! A registration cannot outlive its communicator.
    use gpucomm::nccl::Registration;
    use gpucomm::{Communicator, DeviceBuffer, Result};

    fn leak<'a>(comm: Communicator, buffer: &DeviceBuffer<f32>) -> Result<Registration<'a>> {
        comm.register(buffer)
    }
}

mod resumed_twice {
    //! What was resumed is not suspended any more.

    use gpucomm::Result;
    use gpucomm::nccl::Suspended;

    fn twice(suspended: Suspended<'_>) -> Result<()> {
        suspended.resume()?;
        suspended.resume()?;
        Ok(())
    }

    fn main() {
        let _ = twice;
    }
}

mod window_outlives_communicator {
    //! A window cannot outlive its communicator.
    use gpucomm::nccl::Window;
    use gpucomm::{Communicator, DeviceBuffer, Result};

    fn leak<'a>(comm: Communicator, buffer: &DeviceBuffer<f32>) -> Result<Window<'a>> {
        comm.window(buffer)
    }
}

fn main() {}
