//! Memory of this PE alone, as one end of a transfer.

use std::ffi::c_void;

use crate::cuda::{
    Access, Address, Allocation, AsSlice, AsSliceMut, Device, GraphPinned, LentUses, PinnedBuffer, PinnedMemory,
    PinnedSlice, PinnedSliceMut, Region, Slice, Used,
};
use crate::element::Element;
use crate::error::Result;
use crate::nvshmem::state::known_memory::Key;

/// Elements of device memory, or of pinned memory of the host.
#[derive(Clone, Copy)]
pub struct Local<'m> {
    memory: Memory<'m>,
    address: Address,
    len: usize,
    bytes: usize,
}

#[derive(Clone, Copy)]
enum Memory<'m> {
    Device(&'m Allocation),
    Pinned(&'m PinnedMemory),
}

/// What a put can be given to read on this PE: device memory ([`AsSlice`]), or pinned memory of the host, whole or in part.
///
/// ```
/// # use gpucomm::nvshmem::{AsLocal, Context, Pe, SymmetricBuffer};
/// # use gpucomm::{DeviceBuffer, PinnedBuffer, Result};
/// fn to_all<'a>(ctx: &Context, there: &'a SymmetricBuffer<'_, f32>, mine: impl AsLocal<'a, f32> + Copy) -> Result<()> {
///     (0..ctx.n_pes()).try_for_each(|pe| ctx.put(there, mine, Pe(pe)))
/// }
/// fn both(ctx: &Context, there: &SymmetricBuffer<'_, f32>, x: &DeviceBuffer<f32>, y: &PinnedBuffer<f32>) -> Result<()> {
///     to_all(ctx, there, x)?;
///     to_all(ctx, there, y)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory with elements of type `{T}` that a put can read",
    label = "expected `&buffer` or a part such as `buffer.slice(..8)`, of the device or pinned",
    note = "values of other memory of the host get to a device by `DeviceBuffer::from_slice`, and into pinned memory by `PinnedBuffer::from_slice`"
)]
pub trait AsLocal<'a, T: Element>: Sized {
    #[doc(hidden)]
    fn local_operand(self) -> Local<'a>;
}

/// What a get can be given to write on this PE: device memory ([`AsSliceMut`]), or pinned memory of the host, whole or in part.
///
/// ```
/// # use gpucomm::nvshmem::{AsLocalMut, Context, Pe, SymmetricBuffer};
/// # use gpucomm::Result;
/// fn of_the_first<'a>(ctx: &Context, there: &'a SymmetricBuffer<'_, f32>, here: impl AsLocalMut<'a, f32>) -> Result<()> {
///     ctx.get(here, there, Pe(0))
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory with elements of type `{T}` that a get can write",
    label = "expected `&mut buffer` or a part such as `buffer.slice_mut(..8)`, of the device or pinned"
)]
pub trait AsLocalMut<'a, T: Element>: Sized {
    #[doc(hidden)]
    fn local_operand(self) -> Local<'a>;
}

impl<'a, T: Element, S: AsSlice<'a, T>> AsLocal<'a, T> for S {
    fn local_operand(self) -> Local<'a> {
        let slice: Slice<'a, T> = self.into();
        Local::device(slice.region(), slice.len())
    }
}

impl<'a, T: Element, S: AsSliceMut<'a, T>> AsLocalMut<'a, T> for S {
    fn local_operand(self) -> Local<'a> {
        let slice = self.into();
        let len = slice.len();
        Local::device(slice.into_region(), len)
    }
}

/// Types that are pinned memory, and how each becomes a view of that.
macro_rules! pinned {
    ($($trait:ident by $view:ident: $($type:ty)|+;)*) => {$($(
        impl<'a, T: Element> $trait<'a, T> for $type {
            fn local_operand(self) -> Local<'a> {
                let view: $view<'a, T> = self.into();
                let address = address(view.as_raw());
                Local { memory: Memory::Pinned(view.memory()), address, len: view.len(), bytes: view.len() * size_of::<T>() }
            }
        }
    )+)*};
}

pinned! {
    AsLocal by PinnedSlice: PinnedSlice<'a, T> | &PinnedSlice<'a, T> | &'a PinnedSliceMut<'_, T> | &'a PinnedBuffer<T>
        | &'a mut PinnedBuffer<T> | &'a GraphPinned<T>;
    AsLocalMut by PinnedSliceMut: PinnedSliceMut<'a, T> | &'a mut PinnedSliceMut<'_, T> | &'a mut PinnedBuffer<T> | &'a mut GraphPinned<T>;
}

/// Of either view.
fn address(ptr: *const c_void) -> Address {
    Address::new(ptr.cast_mut())
}

impl<'m> Local<'m> {
    fn device(region: Region<'m>, len: usize) -> Self {
        let Region { alloc, address, bytes } = region;
        Self { memory: Memory::Device(alloc), address, len, bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it begins; null where the whole buffer is empty.
    pub(crate) fn ptr(&self) -> *mut c_void {
        self.address.ptr()
    }

    /// The first `len` elements of `T`, of which there are as many.
    pub(crate) fn first<T: Element>(self, len: usize) -> Self {
        Self { len, bytes: len * size_of::<T>(), ..self }
    }

    /// What the library knows it by.
    pub(crate) fn key(&self) -> Key {
        match self.memory {
            Memory::Device(alloc) => Key::Allocation(alloc.id()),
            Memory::Pinned(memory) => Key::Pinned(memory.address().ptr().addr()),
        }
    }

    /// Whether streams of `device` can get at it in this way: at pinned memory all do.
    pub(crate) fn serves(&self, device: Device, access: Access) -> bool {
        match self.memory {
            Memory::Device(alloc) => alloc.serves(device, access),
            Memory::Pinned(_) => true,
        }
    }

    /// What it is, in words.
    pub(crate) fn who(&self) -> String {
        match self.memory {
            Memory::Device(alloc) => alloc.who(),
            Memory::Pinned(_) => "pinned memory of the host".to_owned(),
        }
    }

    /// Who uses it.
    pub(crate) fn used(&self) -> &'m dyn Used {
        match self.memory {
            Memory::Device(alloc) => alloc,
            Memory::Pinned(memory) => memory,
        }
    }

    /// Fails where the host cannot have it used now, as a graph has it.
    pub(crate) fn check_access(&self, operation: &'static str) -> Result<()> {
        match self.memory {
            Memory::Device(_) => Ok(()),
            Memory::Pinned(memory) => memory.check_access(operation),
        }
    }

    /// What a bracket is lent.
    pub(crate) fn add_to<'s>(&self, uses: &mut LentUses<'s>, access: Access)
    where
        'm: 's,
    {
        match self.memory {
            Memory::Device(alloc) => uses.add(Slice::<u8>::of(alloc, self.address, self.bytes), access),
            Memory::Pinned(memory) => uses.add_pinned(memory, access),
        }
    }
}

impl std::fmt::Debug for Local<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Local({} bytes of {})", self.bytes, self.who())
    }
}
