//! A graph that was captured: what it owns, and its life.

use std::fmt;
use std::sync::Arc;

use super::captured::Captured;
use super::executable::Executable;
use super::life::Life;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::owners;
use crate::cuda::devices::thread::is_off_limits;
use crate::cuda::order::in_flight::CHUNK;
use crate::cuda::order::lanes::Tracker;
use crate::cuda::order::recording::{Kept, Mortal, Party};
use crate::error::Error;

/// What a launch costs at least. On H200s 28 launches of a graph with operations of NCCL fill the driver's queue, however many operations it
/// has (docs/measurements/2026-11-23-h200-graphs.md); so no more than 9 are on their way on a stream.
const LEAST: u64 = CHUNK / 3;

/// What was captured by [`Stream::capture`](crate::Stream::capture): work of a device, or of several, that is launched as a whole.
///
/// It keeps the memory that it uses alive, also where the buffers are dropped, and counts as one use of all of it in each launch: what
/// others do with that memory comes before or after. It may be launched from any thread, and sent to others.
///
/// A graph with operations of communicators ends before they do. Drop it before you close one:
/// [`Communicator::close`](crate::Communicator::close) is an error while one lives, and ends the communicator all the same, with its
/// graphs. So do drops and aborts. A graph that has ended is launched no more, and says why. Dropping a
/// graph does not wait; what it was launched for is still done.
#[must_use = "a graph does nothing unless it is launched"]
pub struct Graph {
    /// Gone in the drop only.
    shared: Option<Arc<Shared>>,
}

/// What a graph has in common with those who end it.
pub(super) struct Shared {
    /// In front of the memory, which goes after it.
    pub(super) life: Life,
    pub(super) device: Device,
    /// What it costs in the queue of a stream.
    pub(super) cost: u64,
    pub(super) memory: Vec<Kept>,
    pub(super) party: Option<Arc<dyn Party>>,
    nodes: usize,
}

impl Graph {
    pub(super) fn new(executable: Executable, device: Device, captured: Captured) -> Self {
        // The template ends here: what was instantiated stays.
        let Captured { memory, party, cost, .. } = captured;
        let (nodes, life) = (executable.nodes(), Life::new(executable, party.clone()));
        let shared = Arc::new(Shared { life, device, cost: cost.max(LEAST), memory, party, nodes });
        if let Some(party) = &shared.party {
            party.join(Arc::clone(&shared) as Arc<dyn Mortal>);
        }
        Self { shared: Some(shared) }
    }

    pub(super) fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("it is gone in the drop only")
    }

    /// The device on whose streams it is launched.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let mut x = DeviceBuffer::<i32>::zeroed(&stream, 9)?;
    /// let graph = stream.capture(|stream| x.fill(stream, 7))?;
    /// assert_eq!(graph.device(), stream.device());
    /// # Ok(())
    /// # }
    /// ```
    pub fn device(&self) -> Device {
        self.shared().device
    }

    /// Wraps `cudaGraphGetNodes`: how many nodes it has, those included that NCCL and this crate have added.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let mut x = DeviceBuffer::<i32>::zeroed(&stream, 9)?;
    /// let graph = stream.capture(|stream| x.fill(stream, 7))?;
    /// assert!(graph.nodes() >= 1);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "cudaGraphGetNodes")]
    pub fn nodes(&self) -> usize {
        self.shared().nodes
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // CUDA must not be called in host functions, and NCCL waits for the end of what it was captured into.
        if is_off_limits() {
            let device = self.device();
            owners::drop_elsewhere(Box::new(self.shared.take()), device);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.life.take_left());
    }
}

impl Shared {
    /// The uses of its memory.
    pub(super) fn trackers(&self) -> impl Iterator<Item = &Tracker> {
        self.memory.iter().map(|kept| kept.used().tracker())
    }
}

impl Mortal for Shared {
    fn end(&self, cause: &Error) -> Option<Box<dyn Send>> {
        self.life.end(cause).map(|left| Box::new(left) as Box<dyn Send>)
    }

    fn is_alive(&self) -> bool {
        self.life.refusal().is_none()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("device", &self.shared().device)
            .field("nodes", &self.shared().nodes)
            .field("buffers", &self.shared().memory.len())
            .finish_non_exhaustive()
    }
}
