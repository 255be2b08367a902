//! Pinned memory, host functions, and memory of the host where device memory belongs.
#![allow(dead_code)]

mod borrowing_host_callback {
    //! A host callback runs later, so that it cannot borrow.
    use gpucomm::{Result, Stream};

    fn borrow(stream: &Stream) -> Result<()> {
        let mut count = 0;
        stream.launch_host(|| count += 1)?;
        Ok(())
    }
}

mod copy_from_a_vector {
    //! Memory of the host in a copy between devices.

    use gpucomm::{DeviceBuffer, Result, Stream};

    fn fill(x: &mut DeviceBuffer<f32>, values: &Vec<f32>, stream: &Stream) -> Result<()> {
        x.copy_from(stream, values)
    }
}

mod copy_to_pinned_that_is_none {
    //! Memory of the host that is not pinned is copied to by another method, which the message names.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn values(x: &DeviceBuffer<f32>, stream: &Stream) -> Result<Vec<f32>> {
        let mut values = vec![0.0; x.len()];
        x.copy_to_pinned(stream, &mut values)?;
        Ok(values)
    }
}

mod graph_launched_under_its_pinned_memory {
    //! While the host looks at pinned memory of a graph, nobody launches that.
    use gpucomm::cuda::GraphPinned;
    use gpucomm::{Graph, Result, Stream};

    fn step(stream: &Stream, graph: &mut Graph, input: &GraphPinned<f32>) -> Result<()> {
        let values = graph.pinned_mut(input)?;
        graph.launch(stream)?;
        values.fill(1.0);
        Ok(())
    }
}

mod graph_pinned_seen_by_two {
    //! Who may launch a graph does not look at its pinned memory: that wants the graph alone.
    use gpucomm::cuda::GraphPinned;
    use gpucomm::{Graph, Result};

    fn look<'g>(graph: &'g Graph, output: &'g GraphPinned<f32>) -> Result<&'g [f32]> {
        graph.pinned(output)
    }
}

mod launch_with_host_memory {
    //! Memory of the host is not lent, unless it is pinned: a device cannot use it.
    use gpucomm::{Result, Stream};

    fn launch(stream: &Stream, x: &mut Vec<f32>) -> Result<()> {
        stream.launch(x, |_, _| ())
    }
}

mod pinned_as_recv {
    //! Pinned memory of the host to write to.

    use gpucomm::{Communicator, DeviceBuffer, PinnedBuffer, Result, Stream};

    fn gather(comm: &Communicator, x: &DeviceBuffer<f32>, y: &mut PinnedBuffer<f32>, stream: &Stream) -> Result<()> {
        comm.all_gather((x, y), stream)
    }
}

mod pinned_part_while_it_is_read {
    //! What the host looks at, no copy may write.
    use gpucomm::{DeviceBuffer, PinnedBuffer, Result, Stream};

    fn peek(x: &DeviceBuffer<f32>, pinned: &mut PinnedBuffer<f32>, stream: &Stream) -> Result<f32> {
        let values = pinned.slice(..4).as_slice()?;
        x.copy_to_pinned(stream, pinned.slice_mut(..4))?;
        Ok(values[0])
    }
}

mod pinned_slice_during_copy {
    //! What the host sees of pinned memory cannot be held while a copy into it is enqueued.
    use gpucomm::{DeviceBuffer, PinnedBuffer, Result, Stream};

    fn held(x: &DeviceBuffer<f32>, pinned: &mut PinnedBuffer<f32>, stream: &Stream) -> Result<f32> {
        let seen = pinned.as_slice()?;
        x.copy_to_pinned(stream, pinned)?;
        Ok(seen[0])
    }
}

mod pinned_used_after_it_moved_in {
    //! Pinned memory that has moved into a graph is gone for the host.
    use gpucomm::{DeviceBuffer, Graph, PinnedBuffer, Result, Stream};

    fn capture(stream: &Stream, x: &mut DeviceBuffer<f32>, mut input: PinnedBuffer<f32>) -> Result<Graph> {
        let graph = stream.capture(|lent| {
            let moved = lent.move_in(input)?;
            x.copy_from_pinned(lent, &moved)
        })?;
        input.as_slice_mut()?.fill(1.0);
        Ok(graph)
    }
}

mod slice_of_the_host_as_message {
    //! Memory of the host as a message.

    use gpucomm::{Communicator, Result, Stream};

    fn tell(comm: &Communicator, x: &[f32], stream: &Stream) -> Result<()> {
        comm.send(x, 1, stream)
    }
}

fn main() {}
