//! Addresses at which several devices are written to at once.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::ptr::NonNull;

use crate::cuda::devices::device::Device;
use crate::cuda::memory::basics::range::{or_panic, resolve};
use crate::cuda::memory::bracket::{Lend, LentUses};
use crate::cuda::order::uses::Access;
use crate::element::{self, Element};

/// Elements of several devices at one address: an argument of kernels, for PTX's instructions `multimem`, which store to all devices, add to
/// all, or load what all have together. PTX leaves open what any other instruction does there, and the driver's documentation says nothing of
/// copies: so there is no way to read it here, nor to copy to it. Each device finds its own part where the memory is mapped that was bound.
///
/// It is lent to [`Stream::launch`](crate::Stream::launch), by `&` where the kernel loads, by `&mut` where it stores. The launch is then ordered
/// beside other uses of the memory that *this process* has bound, and that is not let go of before it is done. What other processes do with
/// the object, nobody here sees: kernels of different processes, and what reads the memory of one device while another device stores to all,
/// are kept apart by the program, as with any memory that [processes share](crate::cuda::vmm#order); threads of one process that use the memory
/// in different ways at the same time, too. What a launch was lent, no other launch can be lent within it.
///
/// It comes from [`Multicast`](super::Multicast::ptr), from NCCL (`Communicator::multimem_ptr`) and from NVSHMEM (`MulticastView::ptr`). A capture
/// cannot have one of [`Multicast`](super::Multicast). Of the latter two, uses are not known by it: what it is of is lent beside it, and says
/// whether a capture can have that.
///
/// ```
/// # use gpucomm::cuda::multicast::Multicast;
/// # use gpucomm::cuda::vmm::PhysicalMemory;
/// # use gpucomm::{Device, Result, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
/// # let devices = Device::all()?;
/// # let complete = Multicast::single_process(&devices, 1 << 20)?;
/// # let bytes = complete.properties().bytes();
/// # let memory = devices.iter().map(|device| PhysicalMemory::new(*device, bytes)).collect::<Result<Vec<_>>>()?;
/// # let mapped = complete.bind_all(&memory)?.map()?;
/// let stream = Stream::new(devices[0])?;
/// let mut all = mapped.ptr::<f32>(stream.device())?;
/// stream.launch(&mut all, |stream, all| {
///     // Launch a kernel of yours here, with these.
///     println!("{} elements at {:p}, on {:p}", all.len(), all.as_raw(), stream.as_raw());
/// })?;
/// # drop(all);
/// # mapped.close()?;
/// # Ok(())
/// # }
/// ```
pub struct McPtr<'m, T: Element> {
    address: NonNull<c_void>,
    len: usize,
    of: Of<'m>,
    _elements: PhantomData<fn() -> T>,
}

/// Whose an address is.
#[derive(Clone, Copy)]
pub(crate) enum Of<'m> {
    /// Of an object of this crate, mapped for a device.
    Object(Device, &'m dyn Noted),
    /// Of another library.
    #[cfg(any(nccl_ge_2_29, feature = "nvshmem"))]
    Others,
    /// It is lent to a launch, which has noted what it uses: another one would not.
    Lent,
}

/// What an address is of: it says what a launch uses.
pub(crate) trait Noted: Sync {
    fn note<'s>(&'s self, uses: &mut LentUses<'s>, access: Access);
}

// SAFETY: a number, which nothing here follows, and a reference to what is shared by threads.
unsafe impl<T: Element> Send for McPtr<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for McPtr<'_, T> {}

impl<'m, T: Element> McPtr<'m, T> {
    /// An address that is not null.
    pub(crate) fn of(address: *mut c_void, len: usize, of: Of<'m>) -> Self {
        let address = NonNull::new(address).expect("an address of a multicast object");
        Self { address, len, of, _elements: PhantomData }
    }

    /// How many elements, of each device.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// As C has it, never null: for kernels alone. The host must not follow it.
    pub fn as_raw(&self) -> *mut c_void {
        self.address.as_ptr()
    }

    /// A part of it.
    ///
    /// # Panics
    /// Where the range does not lie within.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, BindSource};
    /// # use gpucomm::cuda::vmm::PhysicalMemory;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// # let device = Device::new(0)?;
    /// # let complete = Multicast::single_process(&[device], 1 << 20)?;
    /// # let memory = PhysicalMemory::new(device, complete.properties().bytes())?;
    /// # let mapped = complete.bind(BindSource::memory(&memory))?.map()?;
    /// let all = mapped.ptr::<f32>(device)?;
    /// let some = all.slice(100..300);
    /// assert_eq!((some.len(), some.as_raw().addr() - all.as_raw().addr()), (200, 400));
    /// assert!(all.slice(..0).is_empty());
    /// # mapped.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let range = or_panic(resolve("McPtr::slice", &range, self.len));
        Self::of(self.as_raw().wrapping_byte_add(range.start * size_of::<T>()), range.len(), self.of)
    }

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>, access: Access) {
        match self.of {
            Of::Object(device, of) => {
                uses.add_only_for(Some(device));
                of.note(uses, access);
            }
            #[cfg(any(nccl_ge_2_29, feature = "nvshmem"))]
            Of::Others => {}
            Of::Lent => uses.add_only_for(None),
        }
    }

    /// For the closure of a launch.
    fn lend<'l>(&self) -> McPtr<'l, T> {
        McPtr { address: self.address, len: self.len, of: Of::Lent, _elements: PhantomData }
    }
}

impl<T: Element> Lend for &McPtr<'_, T> {
    type Lent<'l> = McPtr<'l, T>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        McPtr::uses(self, uses, Access::Read);
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {
        self.lend()
    }
}

impl<T: Element> Lend for &mut McPtr<'_, T> {
    type Lent<'l> = McPtr<'l, T>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        McPtr::uses(self, uses, Access::Write);
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {
        self.lend()
    }
}

impl<T: Element> fmt::Debug for McPtr<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McPtr<{}>({} elements at {:p})", element::name::<T>(), self.len, self.address)
    }
}
