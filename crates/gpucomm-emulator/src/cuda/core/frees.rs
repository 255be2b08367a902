//! The ends of allocations: at once, or on their way in the order of a stream.

use super::device::{self, Device};
use super::line::{Line, Ticket};
use crate::cuda::core::device::PerDevice;
use crate::lock::Mutex;
use crate::memory::heap::Block;
use crate::report;
use crate::sys::cudaError;
use std::sync::Arc;

/// An allocation that is freed in stream order, but the stream is not there yet.
#[derive(Debug)]
struct Pending {
    block: Arc<Block>,
    free: Ticket,
}

static PENDING: PerDevice<Mutex<Vec<Pending>>> = PerDevice::new();

/// A new allocation in memory that is freed in `line` before anything that is enqueued there now.
pub(crate) fn reuse(device: &'static Device, bytes: u64, line: &Arc<Line>) -> Option<Arc<Block>> {
    succeed(device, bytes, |free| free.is_of(line)).map(|(block, _)| block)
}

/// A new allocation in memory that is freed when the ticket is done.
pub(crate) fn steal(device: &'static Device, bytes: u64) -> Option<(Arc<Block>, Ticket)> {
    succeed(device, bytes, |_| true)
}

fn succeed(device: &'static Device, bytes: u64, usable: impl Fn(&Ticket) -> bool) -> Option<(Arc<Block>, Ticket)> {
    // Held until the new block is there, so that the old one is not buried meanwhile.
    let mut pending = PENDING.of(device).lock();
    let found = pending.iter().position(|pending| pending.block.fits(bytes) && usable(&pending.free))?;
    let Pending { block: old, free } = pending.swap_remove(found);
    Some((device.heap.succeed(&old, bytes), free))
}

/// A free that is on its way, if there is one.
pub(crate) fn any(device: &Device) -> Option<Ticket> {
    PENDING.of(device).lock().first().map(|pending| pending.free.clone())
}

/// Makes a condemned block of `device` known as one whose free is on its way, unless that came already.
pub(crate) fn expect(device: &Device, block: Arc<Block>, free: Ticket) {
    let mut pending = PENDING.of(device).lock();
    if device.heap.holds(&block) {
        pending.push(Pending { block, free });
    }
}

/// Ends the life of a condemned block in the order of its stream, and looks whether anybody still uses it.
///
/// The memory is there again before [`any`] knows no more of the free: who finds none on its way asks for memory once more.
pub(crate) fn release(block: Arc<Block>, operation: &str) {
    let Some(device) = refuse_uses(&block, operation) else { return };
    let mut pending = PENDING.of(device).lock();
    let known = pending.iter().position(|pending| Arc::ptr_eq(&pending.block, &block));
    let gone = known.map(|known| pending.swap_remove(known));
    device.heap.bury(&block);
    drop((gone, block));
}

/// Reports who still uses a block whose life ends, and takes the device away. The device that it belongs to.
pub(crate) fn refuse_uses(block: &Block, operation: &str) -> Option<&'static Device> {
    let device = device::device(block.ground.ordinal).ok()?;
    let uses = block.uses();
    if uses > 0 {
        report::violation(format!(
            "{operation} frees {} bytes at offset {:#x} of device {} while they are in use by {uses} queued or running operations \
             of other streams, or windows or registrations",
            block.bytes, block.offset, device.ordinal,
        ));
        device.fail(cudaError::cudaErrorIllegalAddress);
    }
    Some(device)
}
