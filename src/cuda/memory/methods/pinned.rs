//! The methods of pinned memory.

/// Methods of pinned memory, with those for its parts.
///
/// The type has fields `address` and `len`, and lends views by `view()` and `view_mut()`.
macro_rules! pinned_methods {
    (read [$($generics:tt)*] $Type:ty, $name:literal, $lent:lifetime, *$mut:tt, ($begin:expr, $end:expr)) => {
        $crate::cuda::part_methods! {
            read [$($generics)*] $Type, PinnedSlice<$lent> by view, ($begin, $end, ".to_vec()?")
        }

        impl<$($generics)*> $Type {
            /// Returns the address on the host, which devices use as well. It is null if the whole buffer
            /// is empty.
            ///
            /// The crate does not see what other libraries do with it. Order their calls against the
            /// copies to and from the memory yourself.
            ///
            /// ```
            #[doc = $begin]
            /// assert_eq!(x.slice(1..).as_raw().addr(), x.as_raw().addr() + 4);
            #[doc = $end]
            /// ```
            pub fn as_raw(&self) -> *$mut std::ffi::c_void {
                self.view().address().ptr()
            }

            /// Lends the elements, after the copies to the buffer are done. Waits for those, up to the
            /// default timeout.
            ///
            /// ```
            #[doc = $begin]
            /// assert_eq!(x.as_slice()?.iter().sum::<i32>(), 10);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns
            /// - [`Timeout`](crate::Error::Timeout) if the copies are not done in time,
            /// - [`InvalidArgument`](crate::Error::InvalidArgument) if `T` has invalid values, such as
            ///   `bool`, and one of them is among the elements. Each call checks all of them,
            /// - the error of the communicator, such as [`Aborted`](crate::Error::Aborted), if the
            ///   elements come from an operation that failed,
            /// - an error of CUDA.
            pub fn as_slice(&self) -> $crate::Result<&$lent [T]> {
                self.view().read(concat!($name, "::as_slice"))
            }

            /// Copies the elements into a vector. Waits like [`as_slice`](Self::as_slice).
            ///
            /// ```
            #[doc = $begin]
            /// assert_eq!(x.to_vec()?, [1, 2, 3, 4]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// The errors of [`as_slice`](Self::as_slice).
            pub fn to_vec(&self) -> $crate::Result<Vec<T>> {
                Ok(self.view().read(concat!($name, "::to_vec"))?.to_vec())
            }
        }
    };

    (write [$($generics:tt)*] $Type:ty, $name:literal, ($begin:expr, $end:expr)) => {
        $crate::cuda::part_methods! {
            write [$($generics)*] $Type, PinnedSliceMut by view_mut, ($begin, $end, ".to_vec()?", ".as_slice_mut()?.fill(7)")
        }

        impl<$($generics)*> $Type {
            /// Lends the elements to write, after the copies to and from the buffer are done. Waits for
            /// those, up to the default timeout.
            ///
            /// ```
            #[doc = $begin]
            /// x.as_slice_mut()?[0] = 5;
            /// assert_eq!(x.to_vec()?, [5, 2, 3, 4]);
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// The errors of [`as_slice`](Self::as_slice). To overwrite what a failed operation has left,
            /// call [`PinnedBuffer::accept`](crate::PinnedBuffer::accept) first. To overwrite invalid
            /// values, write [bytes](Self::as_bytes_mut).
            pub fn as_slice_mut(&mut self) -> $crate::Result<&mut [T]> {
                self.view_mut().write(concat!($name, "::as_slice_mut"))
            }
        }
    };
}

pub(crate) use pinned_methods;
