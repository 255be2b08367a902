//! Marks: points in the work of a stream that this crate needs for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::queue::Queue;
use crate::cuda::devices::check::{check_on, check_ready};
use crate::cuda::devices::device::Device;
use crate::cuda::devices::pool;
use crate::cuda::devices::settle::undisturbing;
use crate::error::Result;
use crate::sys;

/// Marks behind the uses of some memory: mostly one.
pub(crate) type Marks = SmallVec<[Mark; 1]>;

/// A recorded event from the spare ones of the device, to which it returns. Clones are the same point.
#[derive(Clone)]
pub(crate) struct Mark(Arc<Point>);

struct Point {
    raw: sys::cudaEvent_t,
    device: Device,
    /// That of the stream.
    serial: u64,
    /// Unique in this process, and not 0.
    number: u64,
    /// The cost of what the stream had enqueued before it; see [`InFlight`](crate::cuda::order::in_flight::InFlight).
    position: u64,
    /// Whether it is a point in a graph, which nothing ever passes.
    captured: bool,
}

// SAFETY: the CUDA runtime allows events to be used from any thread, and from several at a time.
unsafe impl Send for Point {}
// SAFETY: as above.
unsafe impl Sync for Point {}

impl Mark {
    /// Wraps `cudaEventRecord`: the point after the work that is on `stream` now. Takes the event of `spare` where
    /// nobody else has that.
    pub(crate) fn record(stream: Queue, spare: Option<Self>) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let device = stream.device;
        device.ready("cudaEventRecord")?;
        let mut spare = spare.filter(|mark| mark.0.device == device);
        let mut point = match spare.take_if(|mark| Arc::get_mut(&mut mark.0).is_some()) {
            Some(Self(point)) => point,
            None => Arc::new(Point {
                raw: pool::take_event(device)?,
                device,
                serial: 0,
                number: 0,
                position: 0,
                captured: false,
            }),
        };
        let _current = stream.hold_device("cudaEventRecord")?;
        // SAFETY: both handles are alive, and of one device.
        check_on(device.ordinal(), "cudaEventRecord", unsafe { sys::cudaEventRecord(point.raw, stream.raw) })?;
        if let Some(point) = Arc::get_mut(&mut point) {
            point.serial = stream.serial;
            point.number = NEXT.fetch_add(1, Ordering::Relaxed);
            point.position = 0;
            point.captured = false;
        }
        Ok(Self(point))
    }

    /// A point in the graph that `stream` is captured into.
    pub(crate) fn in_capture(stream: Queue) -> Result<Self> {
        let mut mark = Self::record(stream, None)?;
        if let Some(point) = Arc::get_mut(&mut mark.0) {
            point.captured = true;
        }
        Ok(mark)
    }

    /// Says where a new mark stands.
    pub(crate) fn set_position(&mut self, position: u64) {
        if let Some(point) = Arc::get_mut(&mut self.0) {
            point.position = position;
        }
    }

    pub(crate) fn position(&self) -> u64 {
        self.0.position
    }

    /// The serial number of the stream that it was recorded on.
    pub(crate) fn serial(&self) -> u64 {
        self.0.serial
    }

    pub(crate) fn device(&self) -> Device {
        self.0.device
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// The event. It lives as long as this value.
    pub(crate) fn raw(&self) -> sys::cudaEvent_t {
        self.0.raw
    }

    /// Wraps `cudaEventQuery`: whether the work before this point is done.
    pub(crate) fn reached(&self) -> Result<bool> {
        if self.0.captured {
            return Ok(false);
        }
        self.0.device.ready("cudaEventQuery")?;
        undisturbing(|| {
            // SAFETY: the handle is alive.
            check_ready(self.0.device.ordinal(), "cudaEventQuery", unsafe { sys::cudaEventQuery(self.0.raw) })
        })
    }
}

impl std::fmt::Debug for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mark({} of {})", self.0.position, self.0.device)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        pool::give_event(self.device, self.raw);
    }
}
