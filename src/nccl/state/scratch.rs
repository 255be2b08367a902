//! Memory of a communicator for operations whose result nobody reads.

use std::sync::OnceLock;

use crate::cuda::{DeviceBuffer, Region, Stream};
use crate::error::Result;

/// One byte on the device, allocated when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Scratch(OnceLock<DeviceBuffer<u8>>);

impl Scratch {
    /// The byte, to be read and written by operations of its communicator: those come one after the other, whoever enqueues them.
    pub(crate) fn get(&self, stream: &Stream) -> Result<Region<'_>> {
        if let Some(buffer) = self.0.get() {
            return Ok(buffer.as_slice().region());
        }
        let made = DeviceBuffer::zeroed(stream, 1)?;
        Ok(self.0.get_or_init(|| made).as_slice().region())
    }
}
