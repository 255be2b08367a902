//! What a group records stays borrowed until the group is submitted.
#![allow(dead_code)]

mod buffer_made_within_a_group {
    //! A buffer that dies within the closure cannot be recorded: the operation is submitted after the closure.
    use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};

    fn short(comm: &Communicator, stream: &Stream) -> Result<()> {
        group(|g| {
            let mut x = DeviceBuffer::<f32>::zeroed(stream, 8)?;
            g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)
        })
    }
}

mod buffer_used_within_a_group {
    //! A buffer that a recorded operation writes stays borrowed until the group ends.
    use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};

    fn peek(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        group(|g| {
            g.all_reduce(comm, InPlace(&mut *x), ReduceOp::Sum, stream)?;
            x.fill(stream, 0.0)
        })
    }
}

mod group_escapes {
    //! A group cannot be kept beyond its closure.
    use gpucomm::nccl::Group;
    use gpucomm::{Result, group};

    fn escape<'a>() -> Result<&'a mut Group<'a>> {
        group(|g| Ok(g))
    }
}

mod in_place_forgotten {
    //! One buffer that is both read and written, without `InPlace`.

    use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

    fn sum(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        comm.all_reduce(x, ReduceOp::Sum, stream)
    }
}

mod in_place_forgotten_in_a_group {
    //! One buffer that is both read and written, without `InPlace`, in a group.

    use gpucomm::{Communicator, DeviceBuffer, Result, Stream, group};

    fn share(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        group(|g| g.broadcast(comm, &mut *x, 0, stream))
    }
}

mod in_place_forgotten_of_buckets {
    //! Buffers that are both read and written, without `InPlace`.

    use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

    fn average(comm: &Communicator, gradients: &mut [DeviceBuffer<f32>], stream: &Stream) -> Result<()> {
        comm.all_reduce_many(gradients.iter_mut(), ReduceOp::Avg, stream)
    }
}

mod reducing_bools_in_a_group {
    //! Nor has it any of bools, by whatever reduction.
    use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, SendOnly, Stream, group};

    fn all(comm: &Communicator, x: &DeviceBuffer<bool>, stream: &Stream) -> Result<()> {
        group(|g| g.reduce(comm, SendOnly(x), ReduceOp::Min, 0, stream))
    }
}

mod two_writers_in_a_group {
    //! Two operations of one group cannot write the same buffer.
    use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};

    fn twice(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        group(|g| {
            g.all_reduce(comm, InPlace(&mut *x), ReduceOp::Sum, stream)?;
            g.all_reduce(comm, InPlace(&mut *x), ReduceOp::Sum, stream)
        })
    }
}

fn main() {}
