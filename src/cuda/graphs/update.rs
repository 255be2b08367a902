//! Graphs that change.

use super::captured::capture;
use super::executable::Executable;
use super::graph::Graph;
use crate::cuda::order::stream::Stream;
use crate::error::Result;

impl Graph {
    /// Wraps `cudaGraphExecUpdate`, or `cudaGraphInstantiate` where the form is another: from now on the graph is what `f` enqueues on the
    /// stream that it is lent, as with [`Stream::capture`](crate::Stream::capture). For when a buffer changes, or a length.
    ///
    /// What was launched before is still done as it was. The memory and the communicators of before are let go of, and so is
    /// [pinned memory](crate::cuda::GraphPinned) that had moved in. Graphs with operations of communicators are made anew: NCCL
    /// captures new resources each time. A graph that has ended lives again.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<i32>::zeroed(&stream, 10)?;
    /// let mut graph = stream.capture(|stream| x.fill(stream, 1))?;
    /// graph.launch(&stream)?;
    /// let mut y = DeviceBuffer::<i32>::zeroed(&stream, 20)?;
    /// graph.update(|stream| y.fill(stream, 2))?;
    /// graph.launch(&stream)?;
    /// assert_eq!((x.to_vec(&stream)?, y.to_vec(&stream)?), (vec![1; 10], vec![2; 20]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Stream::capture`](crate::Stream::capture); the graph is then what it was. With
    /// [`GraphUsage::One`](crate::nccl::GraphUsage::One) a communicator has no second graph, not even for a moment: drop this one before.
    #[doc(alias("cudaGraphExecUpdate", "cudaGraphInstantiate"))]
    pub fn update(&mut self, f: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        let device = self.device();
        let captured = capture(device, f)?;
        let alone = captured.party.is_none() && self.shared().party.is_none();
        let old = if alone { self.shared().life.take_out() } else { None };
        let updated = old.map(|mut executable| (executable.update(&captured.template), executable));
        let executable = match updated {
            Some((Ok(true), executable)) => executable,
            Some((told, executable)) => {
                // As it was, should there be no other.
                self.shared().life.put_back(executable);
                told?;
                Executable::of(&captured.template, device)?
            }
            None => Executable::of(&captured.template, device)?,
        };
        *self = Self::new(executable, device, captured);
        Ok(())
    }
}
