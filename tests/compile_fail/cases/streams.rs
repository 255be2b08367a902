//! Streams, graphs, launches, and errors of one thread.
#![allow(dead_code)]

mod current_device_on_another_thread {
    //! The current device belongs to a thread, and so does the guard that restores it.
    use gpucomm::{Device, Result};

    fn send(device: Device) -> Result<()> {
        let guard = device.set_current()?;
        std::thread::spawn(move || drop(guard));
        Ok(())
    }
}

mod graph_buffer_of_another_thread {
    //! A capture borrows what it captures, like any other use: not while another thread writes to it.
    use gpucomm::{DeviceBuffer, Graph, Result, Stream};

    fn capture(stream: &Stream, other: &Stream, x: &mut DeviceBuffer<f32>) -> Result<Graph> {
        std::thread::scope(|scope| {
            scope.spawn(|| x.fill(other, 1.0));
            stream.capture(|lent| x.fill(lent, 2.0))
        })
    }
}

mod launch_reads_what_it_writes {
    //! One buffer is not lent to be read and to be written: what is lent by `&mut` may be read as well.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn launch(stream: &Stream, x: &mut DeviceBuffer<f32>) -> Result<()> {
        stream.launch((&*x, &mut *x), |_, _| ())
    }
}

mod launch_writes_what_is_lent_to_read {
    //! What is lent by `&` has no address to write to.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn launch(stream: &Stream, x: &DeviceBuffer<f32>) -> Result<*mut f32> {
        stream.launch(x, |_, mut x| x.as_mut_ptr())
    }
}

mod lent_memory_escapes {
    //! What a bracket lends is good within its closure only.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn keep(stream: &Stream, x: &DeviceBuffer<f32>) -> Result<*const f32> {
        let mut kept = None;
        stream.launch(x, |_, x| kept = Some(x))?;
        Ok(kept.unwrap().as_ptr())
    }
}

mod lent_stream_escapes {
    //! A bracket lends the stream for one closure: who enqueues later is not counted.
    use gpucomm::cuda::LentStream;
    use gpucomm::{Result, Stream};

    fn keep(stream: &Stream) -> Result<LentStream<'_>> {
        stream.launch((), |stream, ()| stream)
    }
}

mod own_error_of_one_thread {
    //! An error that must stay on the thread of its rank.

    use std::error::Error;

    fn main() {
        let clique = gpucomm::Clique::init_all(&[]).unwrap();
        let _ = clique.try_spmd(|comm| -> Result<usize, Box<dyn Error>> {
            comm.async_error()?;
            Ok(comm.rank())
        });
    }
}

mod own_error_without_from {
    //! An error type of the program's own that cannot be made of one of this crate.

    #[derive(Debug)]
    struct Own;

    fn main() {
        let clique = gpucomm::Clique::init_all(&[]).unwrap();
        let _ = clique.try_spmd(|_| -> Result<(), Own> { Err(Own) });
    }
}

mod stream_owner_borrows {
    //! The owner of a stream is dropped when nothing needs the stream any more, which may be later than anything it borrows.
    use gpucomm::{Device, Result, Stream, sys};

    fn take(device: Device, raw: sys::cudaStream_t, theirs: &Vec<u8>) -> Result<Stream> {
        // SAFETY: the case is about the owner.
        unsafe { Stream::from_raw_with(device, raw, theirs) }
    }
}

mod stream_used_after_into_raw {
    //! What was given away is not ours any more.
    use gpucomm::{Result, Stream, sys};

    fn give(stream: Stream) -> Result<sys::cudaStream_t> {
        let raw = stream.into_raw()?;
        stream.synchronize()?;
        Ok(raw)
    }
}

mod thread_stream_on_another_thread {
    //! The default stream of a thread is another one on another thread.
    use gpucomm::cuda::ThreadStream;

    fn send(stream: ThreadStream) {
        std::thread::spawn(move || stream.enter(|_| ()));
    }
}

mod thread_stream_shared {
    //! The default stream of a thread is not shared with others.
    use gpucomm::Device;
    use gpucomm::cuda::ThreadStream;

    fn share(device: Device) -> gpucomm::Result<()> {
        let stream = ThreadStream::new(device)?;
        std::thread::scope(|scope| {
            scope.spawn(|| stream.device());
        });
        Ok(())
    }
}

fn main() {}
