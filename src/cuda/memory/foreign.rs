//! Memory of others: device memory that this crate did not allocate.

use std::ffi::c_void;
use std::sync::OnceLock;

use super::allocated::allocation::{Allocation, FreeHook, Freed, Owner};
use super::basics::address::Address;
use super::basics::bytes::bytes_of;
use super::buffers::buffer::DeviceBuffer;
use super::views::slice::Slice;
use super::views::slice_mut::SliceMut;
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::{driver, owners};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::lock::Mutex;
use crate::sys;

impl<T: Element> DeviceBuffer<T> {
    /// Wraps `cudaPointerGetAttributes`: `len` elements at `ptr`, in memory of `device` that somebody else allocated, as a buffer like any
    /// other.
    ///
    /// `owner` keeps the memory alive, a tensor of another library, say, or a value whose destructor frees it; `()` where something else
    /// does. It is dropped when the last buffer over this memory is gone *and the device is done with it*: by the thread that drops the
    /// buffer where that is so already, else later by a thread of this crate, on which `device` is current. Neither waits for the other, but
    /// a destructor that waits holds up those of other owners. A panic of it ends there. Forgotten buffers keep their owners, and so do
    /// those that are dropped within a host function of a stream. Memory that was mapped, and part of a graph with operations of a communicator,
    /// stays for longer: see [`Communicator::reclaim`](crate::Communicator::reclaim).
    ///
    /// No elements lie nowhere: then `ptr` is not looked at.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # struct Tensor(DeviceBuffer<f32>);
    /// # impl Tensor {
    /// #     fn data_ptr(&self) -> *mut std::ffi::c_void { self.0.as_raw() }
    /// #     fn numel(&self) -> usize { self.0.len() }
    /// # }
    /// use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream};
    ///
    /// fn sum(comm: &Communicator, stream: &Stream, tensor: Tensor) -> Result<Vec<f32>> {
    ///     let (ptr, len) = (tensor.data_ptr(), tensor.numel());
    ///     // SAFETY: `tensor` owns so many elements at `ptr`, and nobody else uses them; the stream is behind what wrote them.
    ///     let mut buffer = unsafe { DeviceBuffer::<f32>::from_raw_parts(comm.device(), ptr, len, tensor)? };
    ///     comm.all_reduce(InPlace(&mut buffer), ReduceOp::Sum, stream)?;
    ///     buffer.to_vec(stream)
    /// }
    /// # fn main() -> Result<()> {
    /// # let clique = gpucomm::Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// #     let stream = Stream::new(comm.device())?;
    /// #     let theirs = DeviceBuffer::from_slice(&stream, &[1.0; 100])?;
    /// #     stream.synchronize()?;
    /// #     assert_eq!(sum(comm, &stream, Tensor(theirs))?, [comm.size() as f32; 100]);
    /// #     Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// - From `ptr` on there are `len` elements of device memory, allocated until `owner` is dropped, and for ever if it is not.
    /// - What others do with this memory, another buffer that was made of it in this way among them, is ordered by the caller: before the
    ///   first use here and, as long as there are buffers, between their uses; it does not happen at the same time as uses here,
    ///   unless all of them read. For more than one buffer over the same memory there is [`DeviceBuffer::alias`].
    /// - It is no memory of a [`CommBuffer`](crate::CommBuffer), and nobody registers it with a communicator, as a window or otherwise,
    ///   but by way of this buffer.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for a null pointer, one that is not aligned for `T`, one that is no memory
    /// of `device`, as far as CUDA knows its first and its last byte, or reaches beyond what was allocated there, and for a length whose
    /// bytes cannot be counted;
    /// [`InvalidUsage`](crate::Error::InvalidUsage) within a host function, or where no thread can be started; what CUDA says. The
    /// owner is dropped then.
    #[doc(alias = "cudaPointerGetAttributes")]
    pub unsafe fn from_raw_parts(
        device: Device,
        ptr: *mut c_void,
        len: usize,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        const OPERATION: &str = "DeviceBuffer::from_raw_parts";
        let (address, bytes) = check::<T>(OPERATION, device, ptr, len)?;
        let free = hook(OPERATION, owner)?;
        Ok(Self::of(Allocation::external(address, bytes, device, Owner::Anybody, free), len))
    }
}

impl<'a, T: Element> Slice<'a, T> {
    /// Wraps `cudaPointerGetAttributes`: a view of `len` elements at `ptr`, in memory of `device` that somebody else allocated, to read.
    ///
    /// It borrows `owner`, the value that the memory belongs to. For calls here and there on memory that another library looks after;
    /// [`DeviceBuffer::from_raw_parts`] is for memory that this crate is to look after, and costs less in each call. *Nobody keeps
    /// book of this one*: streams are not made to wait for each other, the memory is not kept alive, and what a failed operation has
    /// left there is not marked. Instead a copy from here to the host returns an error where anything has failed that the
    /// stream was given before, and what such memory is copied to is marked then.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # use gpucomm::cuda::Slice;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// struct Tensor {
    ///     ptr: *mut std::ffi::c_void,
    ///     len: usize,
    /// }
    ///
    /// fn copy(tensor: &Tensor, stream: &Stream) -> gpucomm::Result<DeviceBuffer<f32>> {
    ///     // SAFETY: so many elements, which the library has written on this very stream, and frees there.
    ///     let view = unsafe { Slice::<f32>::from_raw_parts(tensor, stream.device(), tensor.ptr, tensor.len)? };
    ///     let mut own = DeviceBuffer::uninit(stream, view.len())?;
    ///     own.copy_from(stream, view)?;
    ///     Ok(own)
    /// }
    /// # let theirs = DeviceBuffer::from_slice(&stream, &[1f32, 2.0])?;
    /// # let tensor = Tensor { ptr: theirs.as_raw(), len: theirs.len() };
    /// # assert_eq!(copy(&tensor, &stream)?.to_vec(&stream)?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// - From `ptr` on there are `len` elements of device memory, allocated until *the device is done* with what is enqueued with this
    ///   view: to drop the view, or `owner`, says nothing of that.
    /// - Uses of the memory by different streams, and those by others, are ordered by the caller.
    /// - It is no memory of a [`CommBuffer`](crate::CommBuffer), nor registered with a communicator, as a window or otherwise.
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_raw_parts`].
    #[doc(alias = "cudaPointerGetAttributes")]
    pub unsafe fn from_raw_parts<O: ?Sized>(
        _owner: &'a O,
        device: Device,
        ptr: *const c_void,
        len: usize,
    ) -> Result<Self> {
        let (address, _) = check::<T>("Slice::from_raw_parts", device, ptr.cast_mut(), len)?;
        Ok(Self::of(untracked(device)?, address, len))
    }
}

impl<'a, T: Element> SliceMut<'a, T> {
    /// Wraps `cudaPointerGetAttributes`: a view of `len` elements at `ptr`, in memory of `device` that somebody else allocated, to write;
    /// see [`Slice::from_raw_parts`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # use gpucomm::cuda::SliceMut;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// struct Tensor {
    ///     ptr: *mut std::ffi::c_void,
    ///     len: usize,
    /// }
    ///
    /// fn clear(tensor: &mut Tensor, stream: &Stream) -> gpucomm::Result<()> {
    ///     let (ptr, len) = (tensor.ptr, tensor.len);
    ///     // SAFETY: so many elements, which the library uses on this very stream, and frees there.
    ///     unsafe { SliceMut::<f32>::from_raw_parts(tensor, stream.device(), ptr, len)? }.fill(stream, 0.0)
    /// }
    /// # let theirs = DeviceBuffer::from_slice(&stream, &[1f32, 2.0])?;
    /// # let mut tensor = Tensor { ptr: theirs.as_raw(), len: theirs.len() };
    /// # clear(&mut tensor, &stream)?;
    /// # assert_eq!(theirs.to_vec(&stream)?, [0.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// As [`Slice::from_raw_parts`]; and as long as this view is there, no other is made of the same elements.
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_raw_parts`].
    #[doc(alias = "cudaPointerGetAttributes")]
    pub unsafe fn from_raw_parts<O: ?Sized>(
        _owner: &'a mut O,
        device: Device,
        ptr: *mut c_void,
        len: usize,
    ) -> Result<Self> {
        let (address, _) = check::<T>("SliceMut::from_raw_parts", device, ptr, len)?;
        Ok(Self::of(untracked(device)?, address, len))
    }
}

/// What drops `owner` when memory that it keeps alive is not used any more.
fn hook(operation: &'static str, owner: impl Send + 'static) -> Result<FreeHook> {
    owners::start(operation)?;
    // A hook is Sync, and an owner need not be: nobody refers to it.
    let owner = Mutex::new(Box::new(owner));
    Ok(Box::new(move |Freed { device, mut uses, .. }| {
        let owner = owner.into_inner();
        owners::drop_when(owner, device, Box::new(move || uses.is_done()));
    }))
}

/// What stands for all memory of `device` that nobody keeps book of.
fn untracked(device: Device) -> Result<&'static Allocation> {
    static ALL: OnceLock<Box<[Allocation]>> = OnceLock::new();
    let all = match ALL.get() {
        Some(all) => all,
        None => {
            let devices = Device::all()?;
            ALL.get_or_init(|| devices.into_iter().map(Allocation::untracked).collect())
        }
    };
    Ok(&all[device.index()])
}

/// The address and the bytes of `len` elements at `ptr`, as far as that can be checked.
fn check<T: Element>(
    operation: &'static str,
    device: Device,
    ptr: *mut c_void,
    len: usize,
) -> Result<(Address, usize)> {
    let bytes = bytes_of::<T>(operation, len)?;
    device.ready(operation)?;
    if bytes == 0 {
        return Ok((Address::new(std::ptr::null_mut()), 0));
    }
    let wrong = |expected: &dyn std::fmt::Display, got: &dyn std::fmt::Display| {
        Error::argument(operation, "pointer", expected, got)
    };
    if ptr.is_null() {
        return Err(wrong(&"an address", &"null"));
    }
    if !ptr.addr().is_multiple_of(align_of::<T>()) {
        return Err(wrong(&format_args!("a multiple of {}", align_of::<T>()), &format_args!("{ptr:p}")));
    }
    if ptr.addr().checked_add(bytes).is_none() {
        return Err(wrong(&format_args!("an address with {bytes} bytes behind it"), &format_args!("{ptr:p}")));
    }
    let last = ptr.wrapping_byte_add(bytes - 1);
    for (at, which) in [(ptr, "first"), (last, "last")] {
        let found = what_lies_at(device, at)?;
        if found != Found::Device(device.ordinal()) {
            let expected = format!("memory of {device}");
            return Err(wrong(&expected, &format_args!("{found} at {at:p}, the {which} of {bytes} bytes")));
        }
    }
    let _current = device.bind(operation)?;
    match reach(device, ptr, bytes)? {
        Some(reach) if reach < bytes => {
            Err(wrong(&format_args!("{bytes} bytes that were allocated together"), &format_args!("{reach} at {ptr:p}")))
        }
        _ => Ok((Address::new(ptr), bytes)),
    }
}

/// How many bytes there are from `ptr` on that were allocated together, or mapped one behind the other on `device`, if CUDA says so; no
/// further than `bytes`. The device is bound.
fn reach(device: Device, ptr: *mut c_void, bytes: usize) -> Result<Option<usize>> {
    let mut reach = 0;
    while reach < bytes {
        let at = ptr.wrapping_byte_add(reach);
        let Some((base, length)) = driver::range(at) else { return Ok(None) };
        reach = base.saturating_add(length).saturating_sub(ptr.addr());
        let next = ptr.wrapping_byte_add(reach);
        let goes_on = || -> Result<bool> {
            Ok(driver::mapping(at).is_some() && what_lies_at(device, next)? == Found::Device(device.ordinal()))
        };
        if reach < bytes && !goes_on()? {
            break;
        }
    }
    Ok(Some(reach))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Unknown,
    Host,
    Device(i32),
    Managed,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("memory that CUDA does not know, of the host perhaps,"),
            Self::Host => f.write_str("pinned memory of the host"),
            Self::Device(ordinal) => write!(f, "memory of device {ordinal}"),
            Self::Managed => f.write_str("managed memory"),
        }
    }
}

/// Wraps `cudaPointerGetAttributes`.
fn what_lies_at(device: Device, ptr: *const c_void) -> Result<Found> {
    let mut info = sys::gpucommPointerInfo_t { kind: 0, device: 0 };
    // SAFETY: writes to the place given; any address may be asked for.
    let code = unsafe { sys::gpucommPointerInfo(&raw mut info, ptr) };
    check_on(device.ordinal(), "cudaPointerGetAttributes", code)?;
    Ok(match info.kind {
        1 => Found::Host,
        2 => Found::Device(info.device),
        3 => Found::Managed,
        _ => Found::Unknown,
    })
}

/// Wraps `cudaPointerGetAttributes`: the ordinal of the device whose memory lies at `address`, if it is that of one.
#[cfg(feature = "nvshmem")]
pub(crate) fn memory_at(device: Device, address: usize) -> Result<Option<i32>> {
    let _current = device.bind("cudaPointerGetAttributes")?;
    Ok(match what_lies_at(device, std::ptr::without_provenance(address))? {
        Found::Device(ordinal) => Some(ordinal),
        _ => None,
    })
}

/// Whether CUDA knows of memory at `address`, of whatever kind.
#[cfg(feature = "nvshmem")]
pub(crate) fn is_mapped(device: Device, address: usize) -> Result<bool> {
    let _current = device.bind("cudaPointerGetAttributes")?;
    match what_lies_at(device, std::ptr::without_provenance(address)) {
        Ok(found) => Ok(!matches!(found, Found::Unknown)),
        // Addresses that are reserved, with nothing behind them.
        Err(Error::Cuda { code, .. }) if code.as_raw() == sys::cudaError::cudaErrorInvalidValue.0 as i32 => Ok(false),
        Err(error) => Err(error),
    }
}
