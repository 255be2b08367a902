//! Captures in closures.

use std::sync::Arc;

use super::captured::capture;
use super::executable::Executable;
use super::graph::Graph;
use crate::cuda::devices::device::Device;
use crate::cuda::order::recording::{Recording, follow};
use crate::cuda::order::stream::Stream;
use crate::error::{Error, Result};

impl Stream {
    /// Wraps `cudaStreamBeginCapture`, `cudaStreamEndCapture` and `cudaGraphInstantiate`: what `f` enqueues on the stream that it is lent
    /// is not done, but becomes a [`Graph`], which is launched as often as one likes.
    ///
    /// The stream that `f` is lent belongs to the capture; this one, of the same device, is not touched, and goes on meanwhile. On the lent
    /// one the same methods are called as anywhere else: collectives, messages and groups, copies between devices' memory, fills, and
    /// kernels of others by [`Stream::launch`]. [`Stream::fork`] makes further streams of the capture, of this device or others.
    /// What waits, allocates, frees, or has to do with the host is an error there, and leaves the capture as it was; on other streams `f` does
    /// what it likes.
    ///
    /// Buffers are borrowed for the calls only. The graph keeps their memory alive for as long as it lives, and each launch is ordered and
    /// remembered like an operation that reads and writes all of it. Memory of others without an owner cannot be part; pinned
    /// memory can where it has moved in, by [`Stream::move_in`]. A host that fills the input of the next launch while one is under way has two graphs.
    ///
    /// All ranks of a communicator capture the same operations, in the same order among all that they issue, and launch their graphs
    /// in the same order. In a [`Clique`](crate::Clique) that is compared, operation by operation when they are captured, and once in each
    /// launch for each communicator. So is what lies behind the memory: NCCL registers by itself what was mapped as one (memory of
    /// [`Communicator::alloc`](crate::Communicator::alloc) and its like, [`nccl::alloc`](crate::nccl::alloc()), [`cuda::vmm`](crate::cuda::vmm)), and not what a
    /// [`DeviceBuffer`](crate::DeviceBuffer) has otherwise; all ranks pass the one or the other to an operation. Such memory stays for a while when graph and
    /// buffers are gone: see [`Communicator::reclaim`](crate::Communicator::reclaim).
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// let sums = clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let ones = DeviceBuffer::from_slice(&stream, &[1.0f32; 1000])?;
    ///     let mut x = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    ///     let graph = stream.capture(|stream| {
    ///         x.copy_from(stream, &ones)?;
    ///         comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
    ///     })?;
    ///     for _ in 0..10 {
    ///         graph.launch(&stream)?;
    ///     }
    ///     x.to_vec(&stream)
    /// })?;
    /// assert!(sums.iter().flatten().all(|sum| *sum == clique.size() as f32));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `f` returns; of methods that cannot be part of a graph [`InvalidUsage`](Error::InvalidUsage); what CUDA says. There is no graph
    /// then. Where operations of communicators were captured already, and other ranks have captured them, these wait for a launch in vain,
    /// up to its deadline.
    #[doc(alias("cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"))]
    pub fn capture(&self, f: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        self.try_capture(f)
    }

    /// As [`Stream::capture`], with errors of your own.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// #[derive(Debug)]
    /// enum Failure {
    ///     Gpu(gpucomm::Error),
    ///     Empty,
    /// }
    ///
    /// impl From<gpucomm::Error> for Failure {
    ///     fn from(error: gpucomm::Error) -> Self {
    ///         Self::Gpu(error)
    ///     }
    /// }
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut layers: Vec<DeviceBuffer<f32>> = Vec::new();
    /// let graph = stream.try_capture(|stream| {
    ///     let first = layers.first_mut().ok_or(Failure::Empty)?;
    ///     Ok(first.fill(stream, 1.0)?)
    /// });
    /// assert!(matches!(graph, Err(Failure::Empty)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_capture<E: From<Error>>(&self, f: impl FnOnce(&Stream) -> Result<(), E>) -> Result<Graph, E> {
        let device = self.device();
        let captured = capture(device, f)?;
        let executable = Executable::of(&captured.template, device)?;
        Ok(Graph::new(executable, device, captured))
    }

    /// Wraps `cudaEventRecord` and `cudaStreamWaitEvent`, in a capture: another stream of it, of `device`, whose work comes after what this
    /// one has been given so far, and beside what it is given from now on. At the end of the capture everything comes together.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let (mut x, mut y) = (DeviceBuffer::<i32>::zeroed(&stream, 9)?, DeviceBuffer::<i32>::zeroed(&stream, 9)?);
    /// let graph = stream.capture(|stream| {
    ///     let side = stream.fork(stream.device())?;
    ///     x.fill(stream, 1)?;
    ///     y.fill(&side, 2)?;
    ///     // Reads what `side` writes, and so comes after it.
    ///     x.copy_from(stream, &y)
    /// })?;
    /// graph.launch(&stream)?;
    /// assert_eq!(x.to_vec(&stream)?, [2; 9]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](Error::InvalidUsage) outside of captures; what CUDA says.
    #[doc(alias("cudaEventRecord", "cudaStreamWaitEvent"))]
    pub fn fork(&self, device: Device) -> Result<Stream> {
        const OPERATION: &str = "Stream::fork";
        let Some(recording) = self.in_capture(OPERATION)? else { return Err(outside(OPERATION)) };
        let Some(capture) = self.capture_of() else { return Err(outside(OPERATION)) };
        let lane = Stream::of_capture(OPERATION, device, Arc::clone(capture))?;
        follow(&lane, self)?;
        recording.add(&lane);
        Ok(lane)
    }

    /// Wraps `cudaEventRecord` and `cudaStreamWaitEvent`, in a capture: what this stream is given from now on comes after what `other`, a
    /// stream of the same capture, has been given so far. What uses the same memory comes in order without this.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let (mut x, mut y) = (DeviceBuffer::<i32>::zeroed(&stream, 9)?, DeviceBuffer::<i32>::zeroed(&stream, 9)?);
    /// let graph = stream.capture(|stream| {
    ///     let side = stream.fork(stream.device())?;
    ///     x.fill(&side, 1)?;
    ///     y.fill(stream, 2)?;
    ///     // What follows comes after both, whatever memory it uses.
    ///     stream.join(&side)?;
    ///     y.fill(stream, 3)
    /// })?;
    /// graph.launch(&stream)?;
    /// assert_eq!((x.to_vec(&stream)?, y.to_vec(&stream)?), (vec![1; 9], vec![3; 9]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](Error::InvalidUsage) outside of captures, and for streams of different ones; what CUDA says.
    #[doc(alias("cudaEventRecord", "cudaStreamWaitEvent"))]
    pub fn join(&self, other: &Stream) -> Result<()> {
        const OPERATION: &str = "Stream::join";
        other.in_capture(OPERATION)?;
        let (Some(own), Some(theirs)) = (self.in_capture(OPERATION)?, Recording::of(other)) else {
            return Err(outside(OPERATION));
        };
        if !std::ptr::eq(own, theirs) {
            let reason = "the streams belong to different captures".to_owned();
            return Err(Error::InvalidUsage { operation: OPERATION, reason });
        }
        follow(self, other)
    }

    /// What is written down of the capture of this stream, if it has one, to which `operation` may add.
    fn in_capture(&self, operation: &'static str) -> Result<Option<&Recording>> {
        self.part_of_capture(operation)?;
        Ok(Recording::of(self))
    }
}

#[cold]
fn outside(operation: &'static str) -> Error {
    let reason =
        "this is for streams that the closure of a capture is lent: elsewhere, use Stream::new and Stream::wait_event";
    Error::InvalidUsage { operation, reason: reason.to_owned() }
}
