//! Multicast objects: what a kernel stores at one address comes to memory of several devices, by the switches between them.
//!
//! A [`Multicast`] says in its type how far it is. Devices are added while it is [`Building`]; memory cannot be bound before it is [`Complete`], nor
//! can it be mapped before it is [`Bound`], as the driver would block until the last device comes, perhaps for ever. [`Mapped`], it has an
//! [address](McPtr) for kernels.
//!
//! | | wraps | |
//! |---|---|---|
//! | [`Multicast::supported`], [`Multicast::why_not`], [`Multicast::probe`] | `cuDeviceGetAttribute` | whether there is multicast: as attributes say, and as a trial does |
//! | [`ObjectProperties`] | `cuMulticastGetGranularity` | what an object is to be like, and in which steps |
//! | [`Multicast::single_process`], [`Multicast::create`], [`Multicast::add`] | `cuMulticastCreate`, `cuMulticastAddDevice` | one process, all of whose devices are added |
//! | [`Multicast::join`], or [`Multicast::export_fd`] and its kin, and [`Multicast::agree`] | `cuMemExportToShareableHandle`, `cuMemImportFromShareableHandle` | many processes, each of which adds its own |
//! | [`Multicast::bind`], [`BindSource`] | `cuMulticastBindMem`, `cuMulticastBindAddr` | memory by its handle or its address, whole or in parts |
//! | [`Multicast::map`], [`McPtr`] | `cuMemMap`, `cuMemSetAccess` | the address |
//! | [`Multicast::close`] | `cuMemUnmap`, `cuMulticastUnbind`, `cuMemRelease` | the end, in this order |
//!
//! ```
//! # fn main() -> gpucomm::Result<()> {
//! use gpucomm::cuda::multicast::Multicast;
//! use gpucomm::cuda::vmm::{Access, PhysicalMemory};
//! use gpucomm::{Device, DeviceBuffer, Result, Stream, sys};
//!
//! # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
//! let devices = Device::all()?;
//! let complete = Multicast::single_process(&devices, 1 << 20)?;
//! let bytes = complete.properties().bytes();
//! let memory = devices.iter().map(|device| PhysicalMemory::new(*device, bytes)).collect::<Result<Vec<_>>>()?;
//! let mapped = complete.bind_all(&memory)?.map()?;
//!
//! let stream = Stream::new(devices[0])?;
//! let mut all = mapped.ptr::<u8>(stream.device())?;
//! stream.launch(&mut all, |stream, all| {
//!     // A kernel of yours stores with `multimem.st`. The emulator has no kernels, and takes a fill for one.
//!     // SAFETY: one launch on this stream, which writes `all.len()` bytes.
//!     unsafe { sys::cudaMemsetAsync(all.as_raw(), 7, all.len(), stream.as_raw()) }
//! })?;
//! stream.synchronize()?;
//! # drop(all);
//!
//! for memory in memory {
//!     let device = memory.device();
//!     let own: DeviceBuffer<u8> = memory.map(&[Access::read_write(device)])?.into_buffer();
//!     assert_eq!(own.slice(..3).to_vec(&Stream::new(device)?)?, [7, 7, 7]);
//! }
//! mapped.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Several processes
//!
//! All ranks of an [`Exchange`](crate::exchange::Exchange) call [`Multicast::join`], bind memory of their devices, and call [`Multicast::map`].
//! They vote when all have imported the object, when all have added their devices, and when all have mapped it: nobody enters a call of the
//! driver that waits for a rank which is not there, and where one cannot go on, all learn of it. What they do with the exchange they do in
//! the same order on all ranks.
//!
//! # When there is none
//!
//! [`Error::Multicast`](crate::Error::Multicast) has a [`Refusal`] for each reason, with what to do about it. A program that can do without goes on
//! without: nothing is left of an object that was refused.
//!
//! # Order
//!
//! See [`McPtr`].
#![doc = concat!("\n\n", include_str!("../../../docs/multicast.md"))]

mod binding;
mod bound;
mod building;
mod functions;
mod mapping;
mod object;
mod part;
mod patience;
mod pointer;
mod properties;
mod share;
mod state;
mod support;
mod team;
mod votes;

pub use crate::refusal::Refusal;
pub use part::BindSource;
pub use pointer::McPtr;
#[allow(unused_imports, reason = "not every library is built in")]
pub(crate) use pointer::Of;
pub use properties::ObjectProperties;
pub use state::{Bound, Building, Complete, Mapped, Multicast, Stage};
pub use team::Channel;
