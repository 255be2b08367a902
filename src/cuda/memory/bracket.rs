//! What a bracket lends: memory, for as long as its closure runs, and what is noted of that.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use smallvec::SmallVec;

use super::allocated::allocation::Allocation;
use super::host::memory::PinnedMemory;
use super::host::pinned::PinnedBuffer;
use super::host::slice::PinnedSlice;
use super::host::slice_mut::PinnedSliceMut;
use super::views::slice::Slice;
use super::views::slice_mut::SliceMut;
use crate::cuda::devices::device::Device;
use crate::cuda::order::ranged::Span;
use crate::cuda::order::recording::{self, Used};
use crate::cuda::order::stream::Stream;
use crate::cuda::order::turns::{Turns, Waits};
use crate::cuda::order::uses::Access;
use crate::cuda::works::carry;
use crate::cuda::works::work::Origins;
use crate::element::{self, Element};
use crate::error::{Error, Result};

/// What [`Stream::launch`] takes: memory that a launch reads (`&x`, [`Slice`]) and memory that it writes (`&mut x`, [`SliceMut`]), in
/// device memory of any kind, or pinned; tuples, arrays and vectors of such, and `()`.
///
/// The compiler sees to it that what is written is borrowed once. Nobody else can implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory that a launch can be lent",
    note = "lend buffers and slices, of devices or pinned, by `&` to be read and by `&mut` to be written; several as a tuple"
)]
pub trait Lend {
    /// What the closure is given of it.
    type Lent<'l>;

    #[doc(hidden)]
    fn uses<'s>(&'s self, uses: &mut LentUses<'s>);

    #[doc(hidden)]
    fn lent<'l>(&self) -> Self::Lent<'l>;
}

/// Elements that a launch may read: an address of the device, which is good within the closure of [`Stream::launch`] only.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # use gpucomm::sys;
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// let x = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3])?;
/// let mut y = DeviceBuffer::<u8>::zeroed(&stream, 3)?;
/// stream.launch((&x, &mut y), |stream, (x, mut y)| {
///     // A kernel of yours gets the addresses and the lengths. This is a copy.
///     if x.is_empty() || y.is_empty() {
///         return;
///     }
///     let (bytes, kind) = (x.len().min(y.len()), sys::cudaMemcpyKind::cudaMemcpyDeviceToDevice);
///     // SAFETY: one launch on this stream, within the lengths of both.
///     unsafe { sys::cudaMemcpyAsync(y.as_mut_ptr().cast(), x.as_ptr().cast(), bytes, kind, stream.as_raw()) };
/// })?;
/// assert_eq!(y.to_vec(&stream)?, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
pub struct Lent<'l, T: Element> {
    ptr: *const T,
    len: usize,
    _bracket: PhantomData<&'l T>,
}

/// Elements that a launch may write, and read; see [`Lent`].
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # use gpucomm::sys;
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// let mut x = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
/// stream.launch(&mut x, |stream, mut x| {
///     if !x.is_empty() {
///         // SAFETY: one launch on this stream, which writes `x.len()` bytes.
///         unsafe { sys::cudaMemsetAsync(x.as_mut_ptr().cast(), 7, x.len(), stream.as_raw()) };
///     }
/// })?;
/// assert_eq!(x.to_vec(&stream)?, [7; 100]);
/// # Ok(())
/// # }
/// ```
pub struct LentMut<'l, T: Element> {
    ptr: *mut T,
    len: usize,
    _bracket: PhantomData<&'l mut T>,
}

impl<T: Element> Lent<'_, T> {
    /// The address on the device, which the host must not read through; null where the whole buffer is empty.
    pub fn as_ptr(&self) -> *const T {
        self.ptr
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Element> LentMut<'_, T> {
    /// The address on the device, which the host must not read or write through; null where the whole buffer is empty.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.ptr
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Element> fmt::Debug for Lent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent<{}>({} elements)", element::name::<T>(), self.len)
    }
}

impl<T: Element> fmt::Debug for LentMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentMut<{}>({} elements)", element::name::<T>(), self.len)
    }
}

impl<T: Element> Lent<'_, T> {
    pub(crate) fn of(ptr: *const T, len: usize) -> Self {
        Self { ptr, len, _bracket: PhantomData }
    }
}

impl<T: Element> LentMut<'_, T> {
    pub(crate) fn of(ptr: *mut T, len: usize) -> Self {
        Self { ptr, len, _bracket: PhantomData }
    }
}

/// What a launch uses.
#[derive(Default)]
pub struct LentUses<'s> {
    all: SmallVec<[(&'s dyn Used, Span, Access); 4]>,
    /// Mapped memory, which is open to some devices only.
    mapped: SmallVec<[(&'s Allocation, Access); 1]>,
    /// Pinned memory, which may belong to a graph.
    pinned: SmallVec<[&'s PinnedMemory; 1]>,
    /// Devices for which addresses are that no other device may use; `None` for none any more, as a launch has them.
    only: SmallVec<[Option<Device>; 1]>,
}

impl fmt::Debug for LentUses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LentUses").field(&self.all.len()).finish()
    }
}

impl<'s> LentUses<'s> {
    pub(super) fn of(memory: &'s impl Lend) -> Self {
        let mut uses = Self::default();
        memory.uses(&mut uses);
        uses
    }

    pub(crate) fn add<T: Element>(&mut self, slice: Slice<'s, T>, access: Access) {
        let region = slice.region();
        let alloc = region.alloc;
        self.all.push((alloc, region.span(), access));
        if alloc.shown().is_some() {
            self.mapped.push((alloc, access));
        }
    }

    /// What has no elements here, but an order of uses.
    pub(crate) fn add_used(&mut self, used: &'s dyn Used, access: Access) {
        self.all.push((used, Span::ALL, access));
    }

    /// An address that is mapped for `device` alone; or one that another launch was lent.
    pub(crate) fn add_only_for(&mut self, device: Option<Device>) {
        self.only.push(device);
    }

    pub(crate) fn add_pinned(&mut self, memory: &'s PinnedMemory, access: Access) {
        self.all.push((memory, Span::ALL, access));
        self.pinned.push(memory);
    }

    /// Whether the device of `stream` can get at all of it, as far as that is known: what other devices have opened otherwise is not.
    pub(super) fn check(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        let device = stream.device();
        if let Some(other) = self.only.iter().find(|only| **only != Some(device)) {
            let got = other.map_or("one that another launch was lent".to_owned(), |other| other.to_string());
            return Err(Error::argument(operation, "memory", format_args!("an address for {device}"), got));
        }
        self.pinned.iter().try_for_each(|pinned| pinned.check_use(operation, stream))?;
        match self.mapped.iter().find(|(alloc, access)| !alloc.serves(device, *access)) {
            None => Ok(()),
            Some((alloc, access)) => {
                let use_of = if *access == Access::Read { "read" } else { "write to" };
                let expected = format!("memory that {device} may {use_of}");
                Err(Error::argument(operation, "memory", expected, alloc.who()))
            }
        }
    }

    /// What all of it comes from, on `stream`: a launch may carry anything that it is lent anywhere that it may write. To be asked
    /// before the stream is ordered.
    pub(super) fn origins(&self, stream: &Stream) -> Origins {
        let mut origins = Origins::new();
        for (used, ..) in &self.all {
            origins.merge(&carry::origins(used.lineage(), stream.history()));
        }
        origins
    }

    /// Who launches with it; see [`Turns`].
    pub(super) fn turns(
        &self,
        operation: &'static str,
        timeout: impl FnOnce() -> Duration,
        stream: &Stream,
    ) -> Result<Turns<'s>> {
        stream.turns(Waits { operation, timeout, refusal: || None }, self.all.iter().map(|(used, ..)| used.tracker()))
    }

    /// Before the launch: makes `stream` wait for what conflicts with it. Returns whether it comes after what conflicts with all bytes
    /// of the memory.
    pub(super) fn order(&self, stream: &Stream) -> Result<bool> {
        let order = |all, (used, span, access): &(&dyn Used, Span, Access)| {
            Ok(recording::order(*used, *span, *access, stream)? && all)
        };
        self.all.iter().try_fold(true, order)
    }

    /// After it, or an attempt.
    pub(super) fn note(&self, stream: &Stream, origins: &Origins) {
        self.all.iter().for_each(|(used, span, access)| recording::note(*used, *span, *access, stream));
        if stream.records() {
            // Nothing was done yet.
            return;
        }
        stream.history().cover(origins);
        let written = self.all.iter().filter(|(.., access)| *access == Access::Write);
        written.for_each(|(used, ..)| carry::mingle(origins, used.lineage()));
    }
}

impl<T: Element> Lend for Slice<'_, T> {
    type Lent<'l> = Lent<'l, T>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        uses.add(*self, Access::Read);
    }

    fn lent<'l>(&self) -> Lent<'l, T> {
        Lent::of(self.as_raw().cast(), self.len())
    }
}

impl<T: Element> Lend for SliceMut<'_, T> {
    type Lent<'l> = LentMut<'l, T>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        uses.add(self.as_slice(), Access::Write);
    }

    fn lent<'l>(&self) -> LentMut<'l, T> {
        LentMut::of(self.as_raw().cast(), self.len())
    }
}

/// Pinned memory, of which the uses of the whole buffer are kept.
macro_rules! pinned {
    ($($type:ty => $lent:ident, $access:ident;)*) => {$(
        impl<T: Element> Lend for $type {
            type Lent<'l> = $lent<'l, T>;

            fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
                uses.add_pinned(self.memory(), Access::$access);
            }

            fn lent<'l>(&self) -> $lent<'l, T> {
                $lent::of(self.as_raw().cast(), self.len())
            }
        }
    )*};
}

pinned! {
    PinnedSlice<'_, T> => Lent, Read;
    PinnedSliceMut<'_, T> => LentMut, Write;
    &PinnedSlice<'_, T> => Lent, Read;
    &PinnedSliceMut<'_, T> => Lent, Read;
    &mut PinnedSliceMut<'_, T> => LentMut, Write;
    &PinnedBuffer<T> => Lent, Read;
    &mut PinnedBuffer<T> => LentMut, Write;
}

/// What is shown by a slice is lent as that is.
macro_rules! as_slices {
    ($($(#[$attribute:meta])* $type:ty => $lent:ident, $access:ident;)*) => {$(
        $(#[$attribute])*
        impl<T: Element> Lend for $type {
            type Lent<'l> = $lent<'l, T>;

            fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
                uses.add(self.slice(..), Access::$access);
            }

            fn lent<'l>(&self) -> $lent<'l, T> {
                $lent::of(self.as_raw().cast(), self.len())
            }
        }
    )*};
}

as_slices! {
    &Slice<'_, T> => Lent, Read;
    &SliceMut<'_, T> => Lent, Read;
    &mut SliceMut<'_, T> => LentMut, Write;
}

impl<M: Lend> Lend for Option<M> {
    type Lent<'l> = Option<M::Lent<'l>>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        if let Some(memory) = self {
            memory.uses(uses);
        }
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {
        self.as_ref().map(M::lent)
    }
}

impl<M: Lend> Lend for Vec<M> {
    type Lent<'l> = Vec<M::Lent<'l>>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.iter().for_each(|one| one.uses(uses));
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {
        self.iter().map(M::lent).collect()
    }
}

impl<M: Lend, const N: usize> Lend for [M; N] {
    type Lent<'l> = [M::Lent<'l>; N];

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.iter().for_each(|one| one.uses(uses));
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {
        std::array::from_fn(|at| self[at].lent())
    }
}

macro_rules! tuples {
    ($(($($name:ident $at:tt)*))*) => {$(
        impl<$($name: Lend),*> Lend for ($($name,)*) {
            type Lent<'l> = ($($name::Lent<'l>,)*);

            fn uses<'s>(&'s self, _uses: &mut LentUses<'s>) {
                $(self.$at.uses(_uses);)*
            }

            #[allow(clippy::unused_unit)]
            fn lent<'l>(&self) -> Self::Lent<'l> {
                ($(self.$at.lent(),)*)
            }
        }
    )*};
}

tuples! {
    ()
    (A 0)
    (A 0 B 1)
    (A 0 B 1 C 2)
    (A 0 B 1 C 2 D 3)
    (A 0 B 1 C 2 D 3 E 4)
    (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)
}
