//! Device memory for operations whose result nobody reads.

use std::sync::Arc;

use crate::cuda::{DeviceBuffer, Stream};
use crate::error::Result;
use crate::lock::{Mutex, MutexGuard};

/// One byte on the device, allocated when it is first needed, until the communicator ends.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    byte: Option<Arc<DeviceBuffer<u8>>>,
    /// Whether the communicator has ended.
    over: bool,
}

impl Scratch {
    /// The byte, which operations of the communicator read and write. They run one after the other,
    /// whichever thread enqueues them.
    pub(crate) fn get(&self, stream: &Stream) -> Result<Arc<DeviceBuffer<u8>>> {
        let mut kept = self.kept();
        if let Some(byte) = &kept.byte {
            return Ok(Arc::clone(byte));
        }
        // Nothing is allocated in a capture.
        let beside = stream.records().then(|| Stream::new(stream.device())).transpose()?;
        let made = Arc::new(DeviceBuffer::zeroed(beside.as_ref().unwrap_or(stream), 1)?);
        if !kept.over {
            kept.byte = Some(Arc::clone(&made));
        }
        Ok(made)
    }

    /// Frees the byte: the communicator has ended. The streams that have used it still exist, if
    /// their owners wait for the end.
    pub(crate) fn clear(&self) {
        let byte = {
            let mut kept = self.kept();
            kept.over = true;
            kept.byte.take()
        };
        drop(byte);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock()
    }
}
