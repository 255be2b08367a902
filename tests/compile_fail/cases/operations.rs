//! The buffers and element types that an operation takes.
#![allow(dead_code)]

mod chunk_received_twice {
    //! A chunk that one operation of a group writes is no other's.
    use gpucomm::{Communicator, DeviceBuffer, Result, Stream, group};

    fn twice(comm: &Communicator, x: &mut DeviceBuffer<u16>, stream: &Stream) -> Result<()> {
        group(|g| {
            for (peer, part) in x.chunks_mut(4).enumerate() {
                g.recv(comm, part, peer, stream)?;
                g.recv(comm, part, peer, stream)?;
            }
            Ok(())
        })
    }
}

mod device_scalar_freed {
    //! A scalar on the device lives as long as the operator that reads it.
    use gpucomm::{Communicator, DeviceBuffer, InPlace, Result, Stream};

    fn order(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        let scalar = DeviceBuffer::from_slice(stream, &[2.0f32])?;
        let operator = comm.pre_mul_sum_device(&scalar)?;
        drop(scalar);
        comm.all_reduce(InPlace(x), &operator, stream)
    }
}

mod factor_of_what_only_moves {
    //! What is not reduced is not multiplied either.
    use gpucomm::{Communicator, Result};

    fn half(comm: &Communicator) -> Result<()> {
        comm.pre_mul_sum([0.5_f32, 0.5]).map(drop)
    }
}

mod form_of_another_role {
    //! Only ranks that are not the root send or receive alone, and nobody exchanges in place.
    use gpucomm::{Communicator, DeviceBuffer, InPlace, RecvOnly, ReduceOp, Result, SendOnly, Stream};

    fn sends_only(comm: &Communicator, x: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        comm.all_reduce(SendOnly(x), ReduceOp::Sum, stream)
    }

    fn receives_only(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        comm.gather(RecvOnly(x), 0, stream)
    }

    fn exchanges_in_place(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        comm.all_to_all(InPlace(x), stream)
    }
}

mod forms_are_sealed {
    //! Nobody else makes a form.
    use gpucomm::nccl::{AllRanks, Buffers, IntoBuffers};

    struct Mine;

    impl<'a> IntoBuffers<'a, f32, AllRanks> for Mine {
        fn into_buffers(self) -> Buffers<'a, f32> {
            unimplemented!()
        }
    }
}

mod in_place_with_shared_reference {
    //! In place writes, so that it needs a mutable borrow.
    use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream};

    fn shared(comm: &Communicator, x: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        comm.all_reduce(InPlace(x), ReduceOp::Sum, stream)
    }
}

mod mixed_element_types {
    //! Both sides of an operation have one element type.
    use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

    fn mix(comm: &Communicator, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<i32>, stream: &Stream) -> Result<()> {
        comm.all_reduce((x, y), ReduceOp::Sum, stream)
    }
}

mod recv_into_shared_reference {
    //! A receive writes, so that it needs a mutable borrow.
    use gpucomm::{Communicator, DeviceBuffer, Result, Stream};

    fn shared(comm: &Communicator, x: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        comm.recv(x, 0, stream)
    }
}

mod reduce_is_sealed {
    //! What NCCL reduces is known, and nobody can add to it.
    use gpucomm::{Element, ElementKind, Reduce};

    #[derive(Debug, Clone, Copy, PartialEq)]
    #[repr(transparent)]
    struct Meters(f32);

    // SAFETY: a float.
    unsafe impl Element for Meters {}

    impl Reduce for Meters {
        const KIND: ElementKind = ElementKind::F32;
    }
}

mod reducing_what_only_moves {
    //! NCCL has no sums of 16-bit integers.
    use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream};

    fn sum(comm: &Communicator, x: &mut DeviceBuffer<u16>, stream: &Stream) -> Result<()> {
        comm.all_reduce(InPlace(x), ReduceOp::Sum, stream)
    }
}

mod same_buffer_as_send_and_recv {
    //! One buffer cannot be both sides of an operation that is not in place.
    use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

    fn alias(comm: &Communicator, x: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        comm.all_reduce((&*x, &mut *x), ReduceOp::Sum, stream)
    }
}

mod scalars_that_are_shared {
    //! A slice is reduced where it is.
    use gpucomm::{Communicator, ReduceOp, Result, Stream};

    fn sums(comm: &Communicator, stream: &Stream, values: &[f32]) -> Result<()> {
        comm.all_reduce_scalars(values, ReduceOp::Sum, stream)?;
        Ok(())
    }
}

mod string_is_no_element {
    //! What holds an address of the host means nothing on a device.
    use gpucomm::{DeviceBuffer, Stream};

    fn texts(stream: &Stream) {
        let _ = DeviceBuffer::<&str>::uninit(stream, 8);
    }
}

mod struct_is_no_element {
    //! Of a struct somebody has to say that all bit patterns are values.
    use gpucomm::PinnedBuffer;

    #[derive(Clone, Copy)]
    struct Particle {
        mass: f32,
        charge: i8,
    }

    fn particles() {
        let _ = PinnedBuffer::from_slice(&[Particle { mass: 1.0, charge: 2 }]);
    }
}

mod vector_as_send {
    //! Memory of the host to read from.

    use gpucomm::{Communicator, DeviceBuffer, ReduceOp, Result, Stream};

    fn sum(comm: &Communicator, x: &Vec<f32>, y: &mut DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
        comm.all_reduce((x, y), ReduceOp::Sum, stream)
    }
}

mod vector_in_place {
    //! Memory of the host to read from and write to.

    use gpucomm::{Communicator, InPlace, ReduceOp, Result, Stream};

    fn sum(comm: &Communicator, x: &mut Vec<f32>, stream: &Stream) -> Result<()> {
        comm.all_reduce(InPlace(x), ReduceOp::Sum, stream)
    }
}

fn main() {}
