//! The methods of device memory.

/// Methods of device memory, with those for its parts.
///
/// The type has fields `address` and `len`, and a method `allocation()`. Arms `read` and `write` are
/// for any memory, `own` is for buffers: they also have a method `showing(address, len)`, which makes
/// another buffer over the same memory.
macro_rules! device_methods {
    (read [$($generics:tt)*] $Type:ty, $lent:lifetime, *$mut:tt, ($begin:expr, $end:expr)) => {
        $crate::cuda::part_methods! {
            read [$($generics)*] $Type, Slice<$lent> by as_slice, ($begin, $end, ".to_vec(&stream)?")
        }

        impl<$($generics)*> $Type {
            /// Returns the device that holds the memory.
            #[inline]
            pub fn device(&self) -> $crate::Device {
                self.allocation().device()
            }

            /// Returns the address on the device, for calls of other libraries. It is null if the whole
            /// allocation is empty.
            ///
            /// The crate does not see such calls. Order them against the other uses of the memory
            /// yourself.
            ///
            /// ```
            #[doc = $begin]
            /// // After this, another library can read the elements.
            /// stream.synchronize()?;
            /// assert_eq!(x.slice(1..).as_raw().addr(), x.as_raw().addr() + 4);
            #[doc = $end]
            /// ```
            pub fn as_raw(&self) -> *$mut std::ffi::c_void {
                self.address.ptr()
            }

            /// Borrows all elements, to read.
            ///
            /// ```
            #[doc = $begin]
            /// assert_eq!(x.as_slice().to_vec(&stream)?, [1, 2, 3, 4]);
            #[doc = $end]
            /// ```
            #[inline]
            pub fn as_slice(&self) -> Slice<$lent, T> {
                Slice::of(self.allocation(), self.address, self.len)
            }

            /// Borrows the same bytes as elements of type `U`, to read.
            ///
            /// ```
            #[doc = $begin]
            /// assert_eq!(x.cast::<[u32; 2]>()?.to_vec(&stream)?, [[1, 2], [3, 4]]);
            /// assert!(x.cast::<[u32; 3]>().is_err());
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns [`InvalidArgument`](crate::Error::InvalidArgument) if
            /// - the bytes are not a whole number of elements of type `U`,
            /// - the address is not aligned for `U`.
            pub fn cast<U: Element>(&self) -> $crate::Result<Slice<$lent, U>> {
                self.as_slice().cast_for("Slice::cast")
            }

            /// Copies the elements to the host and waits for them, up to the default timeout. Wraps
            /// `cudaMemcpyAsync`.
            ///
            /// The copy comes after the earlier work on `stream`. `values` has the same length.
            ///
            /// ```
            #[doc = $begin]
            /// let mut values = [0; 4];
            /// x.copy_to_slice(&stream, &mut values)?;
            /// assert_eq!(values, [1, 2, 3, 4]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// The errors of [`copy_to_slice_timeout`](Self::copy_to_slice_timeout).
            pub fn copy_to_slice(&self, stream: &$crate::Stream, values: &mut [T]) -> $crate::Result<()> {
                let deadline = $crate::deadline::Deadline::after($crate::default_timeout());
                self.as_slice().copy_to_slice_until("Slice::copy_to_slice", stream, values, &deadline)
            }

            /// Copies the elements to the host and waits for them, up to `timeout`. Wraps
            /// `cudaMemcpyAsync`.
            ///
            /// The copy comes after the earlier work on `stream`. `values` has the same length.
            ///
            /// Elements that an operation of a failed or aborted communicator has left are not returned
            /// as a result, however often you ask. Overwrite the whole buffer, or call `accept`.
            ///
            /// ```
            #[doc = $begin]
            /// let mut values = [0; 4];
            /// match x.copy_to_slice_timeout(&stream, &mut values, Duration::from_secs(10)) {
            ///     Ok(()) => assert_eq!(values, [1, 2, 3, 4]),
            ///     Err(Error::Timeout { .. }) => eprintln!("the stream is late"),
            ///     Err(error) => return Err(error),
            /// }
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns
            /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the lengths differ or `stream`
            ///   belongs to another device,
            /// - [`InvalidArgument`](crate::Error::InvalidArgument) if `T` has invalid values, such as
            ///   `bool`, and one of them arrives. Nothing is written to `values` then,
            /// - [`Timeout`](crate::Error::Timeout) if the copy is not done in time. The first elements
            ///   of `values` may be written then, in whole elements of up to 64 KiB, and no more follow,
            /// - the error of the communicator, such as [`Aborted`](crate::Error::Aborted), if the
            ///   elements come from an operation that failed,
            /// - an error of CUDA.
            pub fn copy_to_slice_timeout(
                &self,
                stream: &$crate::Stream,
                values: &mut [T],
                timeout: std::time::Duration,
            ) -> $crate::Result<()> {
                let deadline = $crate::deadline::Deadline::after(timeout);
                self.as_slice().copy_to_slice_until("Slice::copy_to_slice_timeout", stream, values, &deadline)
            }

            /// Copies the elements into a vector and waits for them, up to the default timeout. Wraps
            /// `cudaMemcpyAsync`.
            ///
            /// The copy comes after the earlier work on `stream`.
            ///
            /// ```
            #[doc = $begin]
            /// assert_eq!(x.to_vec(&stream)?, [1, 2, 3, 4]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// The errors of [`copy_to_slice_timeout`](Self::copy_to_slice_timeout).
            pub fn to_vec(&self, stream: &$crate::Stream) -> $crate::Result<Vec<T>> {
                let deadline = $crate::deadline::Deadline::after($crate::default_timeout());
                self.as_slice().fetch("Slice::to_vec", stream, &deadline)
            }

            /// Copies the elements to pinned memory, a buffer or a part of one. Wraps `cudaMemcpyAsync`.
            ///
            /// The call enqueues the copy on `stream` and returns. Reading `target` waits for it.
            /// `target` has the same length.
            ///
            /// ```
            #[doc = $begin]
            /// let mut pinned = PinnedBuffer::zeroed(4)?;
            /// x.copy_to_pinned(&stream, &mut pinned)?;
            /// // Do something else here. Reading the values waits for the copy.
            /// assert_eq!(pinned.as_slice()?, [1, 2, 3, 4]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns [`InvalidArgument`](crate::Error::InvalidArgument) if the lengths differ or `stream`
            /// belongs to another device, or an error of CUDA.
            pub fn copy_to_pinned<'target>(
                &self,
                stream: &$crate::Stream,
                target: impl $crate::cuda::AsPinnedMut<'target, T>,
            ) -> $crate::Result<()> {
                self.as_slice().copy_to_pinned_for("Slice::copy_to_pinned", stream, target.into())
            }
        }
    };

    (write [$($generics:tt)*] $Type:ty, ($begin:expr, $end:expr)) => {
        $crate::cuda::part_methods! {
            write [$($generics)*] $Type, SliceMut by as_slice_mut, ($begin, $end, ".to_vec(&stream)?", ".fill(&stream, 7)?")
        }

        impl<$($generics)*> $Type {
            /// Borrows all elements, to write.
            ///
            /// ```
            #[doc = $begin]
            /// let mut all = x.as_slice_mut();
            /// all.slice_mut(..1).fill(&stream, 0)?;
            /// all.slice_mut(3..).fill(&stream, 0)?;
            /// assert_eq!(x.to_vec(&stream)?, [0, 2, 3, 0]);
            #[doc = $end]
            /// ```
            #[inline]
            pub fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
                SliceMut::of(self.allocation(), self.address, self.len)
            }

            /// Accepts the elements as they are, even if an operation of a failed or aborted communicator
            /// has written them. Copies to the host no longer return its error.
            ///
            /// Waits until that communicator has stopped. Failures are recorded for whole allocations, so
            /// this has no effect on a part of one.
            ///
            /// ```
            /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
            /// # fn main() -> gpucomm::Result<()> {
            /// # let clique = Clique::init_all(&Device::all()?)?;
            /// # clique.spmd(|comm| {
            /// # let stream = Stream::new(comm.device())?;
            /// let mut x = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32; 10])?;
            /// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
            /// comm.aborter().abort("something else has failed");
            /// // The sum may or may not be there.
            /// assert!(x.to_vec(&stream).is_err());
            /// x.as_slice_mut().accept();
            /// stream.accept();
            /// println!("{:?}", x.to_vec(&stream)?);
            /// # Ok(())
            /// # })?;
            /// # Ok(())
            /// # }
            /// ```
            pub fn accept(&mut self) {
                self.as_slice_mut().accept_as_is();
            }

            /// Borrows the same bytes as elements of type `U`, to write.
            ///
            /// ```
            #[doc = $begin]
            /// x.cast_mut::<[u32; 2]>()?.slice_mut(1..).fill(&stream, [5, 6])?;
            /// assert_eq!(x.to_vec(&stream)?, [1, 2, 5, 6]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns [`InvalidArgument`](crate::Error::InvalidArgument) if
            /// - the bytes are not a whole number of elements of type `U`,
            /// - the address is not aligned for `U`.
            pub fn cast_mut<U: Element>(&mut self) -> $crate::Result<SliceMut<'_, U>> {
                self.as_slice_mut().cast_for("SliceMut::cast_mut")
            }

            /// Copies elements from the host. Wraps `cudaMemcpyAsync`.
            ///
            /// The copy comes after the earlier work on `stream`. `values` has the same length. You may
            /// reuse it when the call returns, even if the device gets the elements later.
            ///
            /// The call waits if earlier copies of the stream fill the memory for staging (64 MiB), up to
            /// the default timeout.
            ///
            /// ```
            #[doc = $begin]
            /// x.copy_from_slice(&stream, &[5, 6, 7, 8])?;
            /// assert_eq!(x.to_vec(&stream)?, [5, 6, 7, 8]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns
            /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the lengths differ or `stream`
            ///   belongs to another device,
            /// - [`Timeout`](crate::Error::Timeout) if no staging memory gets free in time. The first
            ///   elements may be copied then,
            /// - an error of CUDA.
            pub fn copy_from_slice(&mut self, stream: &$crate::Stream, values: &[T]) -> $crate::Result<()> {
                self.as_slice_mut().copy_from_slice_for("SliceMut::copy_from_slice", stream, values)
            }

            /// Copies elements from other device memory. Wraps `cudaMemcpyAsync`, and
            /// `cudaMemcpyPeerAsync` between devices.
            ///
            /// The call enqueues the copy on `stream` and returns. The copy comes after the earlier work
            /// on `stream`, and after earlier uses of both memories on other streams that conflict with
            /// it. `source` has the same length.
            ///
            /// ```
            #[doc = $begin]
            /// let source = DeviceBuffer::from_slice(&stream, &[5, 6, 7])?;
            /// x.slice_mut(2..).copy_from(&stream, source.slice(1..))?;
            /// assert_eq!(x.to_vec(&stream)?, [1, 2, 6, 7]);
            /// // From another device.
            /// let peers = Stream::new(*Device::all()?.last().expect("at least one"))?;
            /// let theirs = DeviceBuffer::from_slice(&peers, &[0; 4])?;
            /// x.copy_from(&stream, &theirs)?;
            /// assert_eq!(x.to_vec(&stream)?, [0; 4]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns
            /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the lengths differ,
            /// - [`InvalidArgument`](crate::Error::InvalidArgument) if `stream` belongs to a third device
            ///   and the memories are not [mapped](crate::cuda::vmm) for it,
            /// - an error of CUDA.
            pub fn copy_from<'source>(
                &mut self,
                stream: &$crate::Stream,
                source: impl $crate::cuda::AsSlice<'source, T>,
            ) -> $crate::Result<()> {
                self.as_slice_mut().copy_from_for("SliceMut::copy_from", stream, source.into())
            }

            /// Copies elements from pinned memory, a buffer or a part of one. Wraps `cudaMemcpyAsync`.
            ///
            /// The call enqueues the copy on `stream` and returns. Writing to `source` waits for it.
            /// `source` has the same length.
            ///
            /// ```
            #[doc = $begin]
            /// let pinned = PinnedBuffer::from_slice(&[5, 6])?;
            /// x.slice_mut(2..).copy_from_pinned(&stream, &pinned)?;
            /// assert_eq!(x.to_vec(&stream)?, [1, 2, 5, 6]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns [`InvalidArgument`](crate::Error::InvalidArgument) if the lengths differ or `stream`
            /// belongs to another device, or an error of CUDA.
            pub fn copy_from_pinned<'source>(
                &mut self,
                stream: &$crate::Stream,
                source: impl $crate::cuda::AsPinned<'source, T>,
            ) -> $crate::Result<()> {
                self.as_slice_mut().copy_from_pinned_for("SliceMut::copy_from_pinned", stream, source.into())
            }

            /// Sets every element to `value`. Wraps `cudaMemsetAsync`, `cuMemsetD16Async`,
            /// `cuMemsetD32Async` and `cuMemsetD2D32Async`.
            ///
            /// The call enqueues the fill on `stream` and returns. If an element has more than eight
            /// bytes, and they are not all equal, the first elements are copied from the host and then
            /// repeated by copies on the device.
            ///
            /// ```
            #[doc = $begin]
            /// x.fill(&stream, 5)?;
            /// assert_eq!(x.to_vec(&stream)?, [5; 4]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns [`InvalidArgument`](crate::Error::InvalidArgument) if `stream` belongs to another
            /// device, or an error of CUDA.
            pub fn fill(&mut self, stream: &$crate::Stream, value: T) -> $crate::Result<()> {
                self.as_slice_mut().fill_for("SliceMut::fill", stream, value)
            }
        }
    };

    (own [$($generics:tt)*] $Type:ty, $name:literal, cast $Cast:ty, ($begin:expr, $end:expr)) => {
        $crate::cuda::device_methods! { read [$($generics)*] $Type, '_, *mut, ($begin, $end) }
        $crate::cuda::device_methods! { write [$($generics)*] $Type, ($begin, $end) }
        $crate::cuda::part_methods! {
            convert [$($generics)*] $Type, Slice, AsSlice, as_slice, SliceMut, AsSliceMut, as_slice_mut
        }

        impl<$($generics)*> $Type {
            /// Splits the buffer into two: the elements before `mid`, and those from `mid` on. The memory
            /// is freed when both are dropped.
            ///
            /// The two can go to different threads. The order of uses is kept for the memory as a whole:
            /// if two streams use it and one of them writes, their uses come one after the other on the
            /// device, even of different parts. If an operation fails, both parts
            /// [report](crate::cuda#failed-work) what it has left, until you [join](Self::join) and
            /// overwrite them.
            ///
            /// ```
            #[doc = $begin]
            /// let (mut left, mut right) = x.into_split(1);
            /// left.fill(&stream, 0)?;
            /// right.fill(&stream, 5)?;
            /// let x = left.join(right)?;
            /// assert_eq!(x.to_vec(&stream)?, [0, 5, 5, 5]);
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `mid` is greater than the length.
            #[track_caller]
            pub fn into_split(self, mid: usize) -> (Self, Self) {
                let (front, back) = self.as_slice().halves(concat!($name, "::into_split"), mid);
                let (begin, middle) = (front.region().address, back.region().address);
                (self.showing(begin, front.len()), self.showing(middle, back.len()))
            }

            /// Splits the buffer into buffers of `each` elements. The last one may be shorter. See
            /// [`into_split`](Self::into_split).
            ///
            /// ```
            #[doc = $begin]
            /// let lengths: Vec<_> = x.into_chunks(3).map(|part| part.len()).collect();
            /// assert_eq!(lengths, [3, 1]);
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `each` is 0.
            #[track_caller]
            pub fn into_chunks(self, each: usize) -> $crate::cuda::Chunks<Self> {
                $crate::cuda::Chunks::new(self, each)
            }

            /// Joins two buffers that were split from one. The elements of `next` lie directly behind
            /// those of this buffer.
            ///
            /// ```
            #[doc = $begin]
            /// let (left, right) = x.into_split(1);
            /// assert_eq!(left.join(right)?.to_vec(&stream)?, [1, 2, 3, 4]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns [`InvalidArgument`](crate::Error::InvalidArgument), and drops both buffers, if the
            /// elements of `next` lie elsewhere.
            pub fn join(self, next: Self) -> $crate::Result<Self> {
                let (one, two) = (self.as_slice().region(), next.as_slice().region());
                if !std::ptr::eq(one.alloc, two.alloc) || two.address != one.address.add(one.bytes) {
                    const EXPECTED: &str = "the buffer that this one was split from, behind it";
                    return Err($crate::Error::argument(concat!($name, "::join"), "next", EXPECTED, "another one"));
                }
                Ok(self.showing(self.address, self.len + next.len))
            }

            /// Converts the buffer into one with elements of type `U`, in the same memory.
            ///
            /// ```
            #[doc = $begin]
            /// let x = x.into_cast::<[u32; 2]>()?;
            /// assert_eq!(x.to_vec(&stream)?, [[1, 2], [3, 4]]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns [`InvalidArgument`](crate::Error::InvalidArgument), and drops the buffer, if
            /// - the bytes are not a whole number of elements of type `U`,
            /// - the address is not aligned for `U`.
            pub fn into_cast<U: Element>(self) -> $crate::Result<$Cast> {
                let len = self.as_slice().cast_for::<U>(concat!($name, "::into_cast"))?.len();
                Ok(self.showing(self.address, len))
            }
        }

        impl<$($generics)*> $crate::cuda::Cut for $Type {
            fn count(&self) -> usize {
                self.len
            }

            fn cut(self, mid: usize) -> (Self, Self) {
                self.into_split(mid)
            }
        }

        impl<$($generics)*> $crate::cuda::Lend for &$Type {
            type Lent<'lent> = $crate::cuda::Lent<'lent, T>;

            fn uses<'used>(&'used self, uses: &mut $crate::cuda::LentUses<'used>) {
                uses.add(self.as_slice(), $crate::cuda::Access::Read);
            }

            fn lent<'lent>(&self) -> $crate::cuda::Lent<'lent, T> {
                $crate::cuda::Lent::of(self.as_raw().cast(), self.len)
            }
        }

        impl<$($generics)*> $crate::cuda::Lend for &mut $Type {
            type Lent<'lent> = $crate::cuda::LentMut<'lent, T>;

            fn uses<'used>(&'used self, uses: &mut $crate::cuda::LentUses<'used>) {
                uses.add(self.as_slice(), $crate::cuda::Access::Write);
            }

            fn lent<'lent>(&self) -> $crate::cuda::LentMut<'lent, T> {
                $crate::cuda::LentMut::of(self.as_raw().cast(), self.len)
            }
        }
    };
}

pub(crate) use device_methods;
