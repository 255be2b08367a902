//! Tensors as [DLPack](https://dmlc.github.io/dlpack/latest/) has them, in and out, by the crate [`dlpark`](https://docs.rs/dlpark): memory of PyTorch, JAX,
//! CuPy and others as a [`DeviceBuffer`], and the other way round. With the feature `dlpack`.
//!
//! [`DeviceBuffer::from_dlpack`] takes a tensor, versioned or not, whose elements lie one behind the other on a device of CUDA;
//! [`DeviceBuffer::into_dlpack`] makes one of a buffer. DLPack says nothing of streams: each side is told which one the other has used.
//!
//! ```
//! use dlpark::versioned::Dlpack;
//! use gpucomm::{Device, DeviceBuffer, Stream};
//!
//! # fn main() -> gpucomm::Result<()> {
//! let stream = Stream::new(Device::new(0)?)?;
//! let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let tensor: Dlpack = x.into_dlpack(&stream, &[2, 3])?;
//! assert_eq!(tensor.validate().expect("a tensor").shape(), [2, 3]);
//! // SAFETY: nobody else uses it, and the stream is behind what wrote it.
//! let x = unsafe { DeviceBuffer::<f32>::from_dlpack(tensor)? };
//! assert_eq!(x.to_vec(&stream)?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! # Ok(())
//! # }
//! ```
//!
//! [`DeviceBuffer`]: crate::DeviceBuffer
//! [`DeviceBuffer::from_dlpack`]: crate::DeviceBuffer::from_dlpack
//! [`DeviceBuffer::into_dlpack`]: crate::DeviceBuffer::into_dlpack

mod export;
mod import;
mod typed;

pub use typed::Typed;
