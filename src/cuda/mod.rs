//! Devices, streams, events and memory: a safe layer over the CUDA runtime.
//!
//! Three rules hold everywhere in it:
//!
//! - **Device memory is never a Rust place.** There is no `&[T]` over it; values move by copies.
//! - **Nothing is freed or overwritten while the device may use it.** Each allocation remembers which streams used it
//!   last, and every access, the free included, is ordered after the accesses that it conflicts with. Programs on one
//!   stream pay a comparison for that; nothing depends on a destructor being run.
//! - **Nothing waits without a deadline.** Methods that wait and take no timeout use
//!   [`default_timeout`](crate::default_timeout).
//!
//! The current device of a thread, of which CUDA makes so much, is of no importance here: every object knows its
//! device.

mod allocation;
mod attribute;
mod block;
mod buffer;
pub(crate) mod carry;
mod check;
mod copy;
mod device;
mod driver;
mod event;
mod fill;
mod history;
mod host_function;
mod in_flight;
mod later;
mod lineage;
mod mark;
mod panics;
mod pinned;
mod pool;
mod settle;
mod slice;
mod staging;
mod stream;
mod tracker;
mod uses;
mod work;

#[cfg(feature = "nccl")]
#[allow(unused_imports)]
pub(crate) use allocation::{Allocation, FreeHook, Freed, Region, WindowTag};
pub use attribute::{DeviceAttribute, P2pAttribute};
pub use block::trim_pinned;
pub use buffer::DeviceBuffer;
#[cfg(feature = "nccl")]
pub(crate) use carry::Form;
#[cfg(feature = "nccl")]
#[allow(unused_imports)]
pub(crate) use check::check;
#[cfg(feature = "nccl")]
pub(crate) use device::in_host_function;
pub use device::{CurrentDevice, Device, MemoryInfo, driver_version, runtime_version};
pub use event::Event;
#[cfg(feature = "nccl")]
#[allow(unused_imports)]
pub(crate) use in_flight::{LAUNCH, MOST_LAUNCHES};
pub use pinned::PinnedBuffer;
#[cfg(feature = "nccl")]
pub(crate) use settle::settle;
pub use slice::{Slice, SliceMut};
pub use stream::{Stream, StreamOptions};
#[cfg(feature = "nccl")]
#[allow(unused_imports)]
pub(crate) use uses::{Access, Uses};
#[cfg(feature = "nccl")]
pub(crate) use work::{Fate, Work, Worker};
