//! What can be lent to operations: memory of cudarc, and tuples and lists of it.

use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

use super::lent_memory::{LentMemory, Place};
use crate::cuda::memory::views::slice::Slice;
use crate::cuda::memory::views::slice_mut::SliceMut;
use crate::element::Element;
use crate::error::Result;

/// What [`SharedStream::lend`](super::SharedStream::lend) takes: memory to read (`&slice`, `CudaView`), which is lent as a [`Slice`], and memory
/// to write (`&mut slice`, `CudaViewMut`), as a [`SliceMut`]; tuples, arrays and vectors of such.
///
/// ```no_run
/// use cudarc::driver::CudaSlice;
/// use gpucomm::cuda::cudarc::SharedStream;
/// use gpucomm::{Communicator, Result};
///
/// /// Each rank's front to all.
/// fn gather(comm: &Communicator, shared: &SharedStream, x: &CudaSlice<f32>, all: &mut CudaSlice<f32>) -> Result<()> {
///     let len = all.len() / comm.size();
///     shared.lend((x.slice(..len), all), |(x, mut all)| comm.all_gather((x, &mut all), shared))
/// }
/// ```
///
/// Nobody else can implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory of cudarc that can be lent",
    label = "expected `&slice`, `&mut slice`, a view such as `slice.slice(..8)`, or tuples of these, with elements of this crate"
)]
pub trait Lendable<'m>: sealed::Sealed {
    /// What the closure gets.
    type Lent<'l>;

    /// Where it lies on the lent.
    #[doc(hidden)]
    type Place;

    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn enter(self, lent: &mut LentMemory<'m>) -> Result<Self::Place>;

    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn lent<'l>(place: Self::Place, lent: &'l LentMemory<'_>) -> Self::Lent<'l>;
}

mod sealed {
    pub trait Sealed {}
}

impl<T> sealed::Sealed for CudaView<'_, T> {}
impl<T> sealed::Sealed for CudaViewMut<'_, T> {}
impl<T> sealed::Sealed for &CudaSlice<T> {}
impl<T> sealed::Sealed for &mut CudaSlice<T> {}

impl<'m, T: Element> Lendable<'m> for CudaView<'m, T> {
    type Lent<'l> = Slice<'l, T>;
    type Place = Place;

    #[allow(private_interfaces)]
    fn enter(self, lent: &mut LentMemory<'m>) -> Result<Place> {
        lent.put(self)
    }

    #[allow(private_interfaces)]
    fn lent<'l>(place: Place, lent: &'l LentMemory<'_>) -> Slice<'l, T> {
        Slice::of(lent.allocation(place), place.address, place.len)
    }
}

impl<'m, T: Element> Lendable<'m> for CudaViewMut<'m, T> {
    type Lent<'l> = SliceMut<'l, T>;
    type Place = Place;

    #[allow(private_interfaces)]
    fn enter(self, lent: &mut LentMemory<'m>) -> Result<Place> {
        lent.put(self)
    }

    #[allow(private_interfaces)]
    fn lent<'l>(place: Place, lent: &'l LentMemory<'_>) -> SliceMut<'l, T> {
        SliceMut::of(lent.allocation(place), place.address, place.len)
    }
}

/// What is lent as a view of it is.
macro_rules! as_views {
    ($($type:ty => $view:ty, $as:ident;)*) => {$(
        impl<'m, T: Element> Lendable<'m> for $type {
            type Lent<'l> = <$view as Lendable<'m>>::Lent<'l>;
            type Place = Place;

            #[allow(private_interfaces)]
            fn enter(self, lent: &mut LentMemory<'m>) -> Result<Place> {
                lent.put(self.$as())
            }

            #[allow(private_interfaces)]
            fn lent<'l>(place: Place, lent: &'l LentMemory<'_>) -> Self::Lent<'l> {
                <$view>::lent(place, lent)
            }
        }
    )*};
}

as_views! {
    &'m CudaSlice<T> => CudaView<'m, T>, as_view;
    &'m mut CudaSlice<T> => CudaViewMut<'m, T>, as_view_mut;
}

impl<M: sealed::Sealed> sealed::Sealed for Vec<M> {}

impl<'m, M: Lendable<'m>> Lendable<'m> for Vec<M> {
    type Lent<'l> = Vec<M::Lent<'l>>;
    type Place = Vec<M::Place>;

    #[allow(private_interfaces)]
    fn enter(self, lent: &mut LentMemory<'m>) -> Result<Self::Place> {
        self.into_iter().map(|one| one.enter(lent)).collect()
    }

    #[allow(private_interfaces)]
    fn lent<'l>(place: Self::Place, lent: &'l LentMemory<'_>) -> Self::Lent<'l> {
        place.into_iter().map(|one| M::lent(one, lent)).collect()
    }
}

impl<M: sealed::Sealed, const N: usize> sealed::Sealed for [M; N] {}

impl<'m, M: Lendable<'m>, const N: usize> Lendable<'m> for [M; N] {
    type Lent<'l> = [M::Lent<'l>; N];
    type Place = [Option<M::Place>; N];

    #[allow(private_interfaces)]
    fn enter(self, lent: &mut LentMemory<'m>) -> Result<Self::Place> {
        let mut places = [const { None }; N];
        for (place, one) in places.iter_mut().zip(self) {
            *place = Some(one.enter(lent)?);
        }
        Ok(places)
    }

    #[allow(private_interfaces)]
    fn lent<'l>(place: Self::Place, lent: &'l LentMemory<'_>) -> Self::Lent<'l> {
        place.map(|one| M::lent(one.expect("each has a place"), lent))
    }
}

macro_rules! tuples {
    ($(($($name:ident $at:tt)*))*) => {$(
        impl<$($name: sealed::Sealed),*> sealed::Sealed for ($($name,)*) {}

        impl<'m, $($name: Lendable<'m>),*> Lendable<'m> for ($($name,)*) {
            type Lent<'l> = ($($name::Lent<'l>,)*);
            type Place = ($($name::Place,)*);

            #[allow(private_interfaces)]
            fn enter(self, lent: &mut LentMemory<'m>) -> Result<Self::Place> {
                Ok(($(self.$at.enter(lent)?,)*))
            }

            #[allow(private_interfaces)]
            fn lent<'l>(place: Self::Place, lent: &'l LentMemory<'_>) -> Self::Lent<'l> {
                ($($name::lent(place.$at, lent),)*)
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0 B 1)
    (A 0 B 1 C 2)
    (A 0 B 1 C 2 D 3)
    (A 0 B 1 C 2 D 3 E 4)
    (A 0 B 1 C 2 D 3 E 4 F 5)
}
