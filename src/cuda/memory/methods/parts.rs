//! Parts of memory: the methods of device memory and of pinned memory alike.

/// Methods for parts of memory.
///
/// The type has a field `len`, and lends a view by the methods that are named. The examples stand
/// between the lines `$begin` and `$end`, where `x` holds the numbers 1 to 4: `$get` copies elements
/// into a vector, and `$fill` sets all elements to 7.
macro_rules! part_methods {
    (read [$($generics:tt)*] $Type:ty, $View:ident<$lent:lifetime> by $view:ident, ($begin:expr, $end:expr, $get:literal)) => {
        impl<$($generics)*> $Type {
            /// Returns the number of elements.
            #[inline]
            pub fn len(&self) -> usize {
                self.len
            }

            /// Returns true if there are no elements.
            #[inline]
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Borrows the elements of `range`, to read.
            ///
            /// ```
            #[doc = $begin]
            #[doc = concat!("assert_eq!(x.slice(1..3)", $get, ", [2, 3]);")]
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `range` does not lie within the elements.
            #[track_caller]
            pub fn slice(&self, range: impl std::ops::RangeBounds<usize>) -> $View<$lent, T> {
                let part = self.$view().slice_for(concat!(stringify!($View), "::slice"), &range);
                $crate::cuda::or_panic(part)
            }

            /// Borrows the elements of `range`, to read.
            ///
            /// ```
            #[doc = $begin]
            /// assert_eq!(x.try_slice(3..)?.len(), 1);
            /// assert!(x.try_slice(3..5).is_err());
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns [`InvalidArgument`](crate::Error::InvalidArgument) if `range` does not lie within
            /// the elements.
            pub fn try_slice(&self, range: impl std::ops::RangeBounds<usize>) -> $crate::Result<$View<$lent, T>> {
                self.$view().slice_for(concat!(stringify!($View), "::try_slice"), &range)
            }

            /// Borrows the elements before `mid`, and those from `mid` on, to read.
            ///
            /// ```
            #[doc = $begin]
            /// let (front, back) = x.split_at(3);
            #[doc = concat!("assert_eq!((front", $get, ", back", $get, "), (vec![1, 2, 3], vec![4]));")]
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `mid` is greater than the length.
            #[track_caller]
            pub fn split_at(&self, mid: usize) -> ($View<$lent, T>, $View<$lent, T>) {
                self.$view().halves(concat!(stringify!($View), "::split_at"), mid)
            }

            /// Borrows parts of `each` elements, to read. The last part may be shorter.
            ///
            /// ```
            #[doc = $begin]
            /// let lengths: Vec<_> = x.chunks(3).map(|part| part.len()).collect();
            /// assert_eq!(lengths, [3, 1]);
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `each` is 0.
            #[track_caller]
            pub fn chunks(&self, each: usize) -> $crate::cuda::Chunks<$View<$lent, T>> {
                $crate::cuda::Chunks::new(self.$view(), each)
            }

            /// Borrows parts of exactly `each` elements, and the rest at the end, to read.
            ///
            /// ```
            #[doc = $begin]
            /// let (parts, rest) = x.chunks_exact(3);
            #[doc = concat!("assert_eq!((parts.len(), rest", $get, "), (1, vec![4]));")]
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `each` is 0.
            #[track_caller]
            pub fn chunks_exact(&self, each: usize) -> ($crate::cuda::Chunks<$View<$lent, T>>, $View<$lent, T>) {
                $crate::cuda::Chunks::exact(self.$view(), each)
            }

            /// Borrows the bytes of the elements, to read.
            ///
            /// ```
            #[doc = $begin]
            #[doc = concat!("assert_eq!(x.as_bytes().slice(4..8)", $get, ", 2i32.to_ne_bytes());")]
            #[doc = $end]
            /// ```
            pub fn as_bytes(&self) -> $View<$lent, u8> {
                self.$view().bytes()
            }
        }
    };

    (write [$($generics:tt)*] $Type:ty, $View:ident by $view:ident, ($begin:expr, $end:expr, $get:literal, $fill:literal)) => {
        impl<$($generics)*> $Type {
            /// Borrows the elements of `range`, to write.
            ///
            /// ```
            #[doc = $begin]
            #[doc = concat!("x.slice_mut(1..3)", $fill, ";")]
            #[doc = concat!("assert_eq!(x", $get, ", [1, 7, 7, 4]);")]
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `range` does not lie within the elements.
            #[track_caller]
            pub fn slice_mut(&mut self, range: impl std::ops::RangeBounds<usize>) -> $View<'_, T> {
                let part = self.$view().into_range(concat!(stringify!($View), "::slice_mut"), &range);
                $crate::cuda::or_panic(part)
            }

            /// Borrows the elements of `range`, to write.
            ///
            /// ```
            #[doc = $begin]
            #[doc = concat!("x.try_slice_mut(2..)?", $fill, ";")]
            /// assert!(x.try_slice_mut(2..5).is_err());
            #[doc = concat!("assert_eq!(x", $get, ", [1, 2, 7, 7]);")]
            #[doc = $end]
            /// ```
            ///
            /// # Errors
            /// Returns [`InvalidArgument`](crate::Error::InvalidArgument) if `range` does not lie within
            /// the elements.
            pub fn try_slice_mut(&mut self, range: impl std::ops::RangeBounds<usize>) -> $crate::Result<$View<'_, T>> {
                self.$view().into_range(concat!(stringify!($View), "::try_slice_mut"), &range)
            }

            /// Borrows the elements before `mid`, and those from `mid` on, to write.
            ///
            /// You may use both parts at the same time, on different streams and threads. The order of
            /// uses is kept for the memory as a whole: if two streams use it and one of them writes,
            /// their uses come one after the other on the device, even of different parts.
            ///
            /// ```
            #[doc = $begin]
            /// let (mut front, mut back) = x.split_at_mut(3);
            #[doc = concat!("front.slice_mut(1..)", $fill, ";")]
            #[doc = concat!("back", $fill, ";")]
            #[doc = concat!("assert_eq!(x", $get, ", [1, 7, 7, 7]);")]
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `mid` is greater than the length.
            #[track_caller]
            pub fn split_at_mut(&mut self, mid: usize) -> ($View<'_, T>, $View<'_, T>) {
                self.$view().into_halves(concat!(stringify!($View), "::split_at_mut"), mid)
            }

            /// Borrows parts of `each` elements, to write. The last part may be shorter.
            ///
            /// ```
            #[doc = $begin]
            /// for mut part in x.chunks_mut(3) {
            #[doc = concat!("    part.slice_mut(..1)", $fill, ";")]
            /// }
            #[doc = concat!("assert_eq!(x", $get, ", [7, 2, 3, 7]);")]
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `each` is 0.
            #[track_caller]
            pub fn chunks_mut(&mut self, each: usize) -> $crate::cuda::Chunks<$View<'_, T>> {
                $crate::cuda::Chunks::new(self.$view(), each)
            }

            /// Borrows parts of exactly `each` elements, and the rest at the end, to write.
            ///
            /// ```
            #[doc = $begin]
            /// let (parts, mut rest) = x.chunks_exact_mut(3);
            /// assert_eq!(parts.len(), 1);
            #[doc = concat!("rest", $fill, ";")]
            #[doc = concat!("assert_eq!(x", $get, ", [1, 2, 3, 7]);")]
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `each` is 0.
            #[track_caller]
            pub fn chunks_exact_mut(&mut self, each: usize) -> ($crate::cuda::Chunks<$View<'_, T>>, $View<'_, T>) {
                $crate::cuda::Chunks::exact(self.$view(), each)
            }

            /// Borrows the bytes of the elements, to write. Bytes that are no value of a type which has
            /// invalid ones, such as `bool`, are refused when the elements are read on the host.
            ///
            /// ```
            #[doc = $begin]
            #[doc = concat!("x.as_bytes_mut().slice_mut(4..8)", $fill, ";")]
            #[doc = concat!("assert_eq!(x", $get, ", [1, 0x0707_0707, 3, 4]);")]
            #[doc = $end]
            /// ```
            pub fn as_bytes_mut(&mut self) -> $View<'_, u8> {
                self.$view().into_bytes()
            }
        }
    };

    (view $View:ident over $memory:ident: $Memory:ty, $As:ident) => {
        impl<'a, T: Element> $View<'a, T> {
            /// `len` elements of the memory, shown at `address`.
            #[inline]
            pub(crate) fn of($memory: &'a $Memory, address: Address, len: usize) -> Self {
                debug_assert!(len * size_of::<T>() <= $memory.bytes());
                Self { $memory, address, len, _elements: PhantomData }
            }

            /// The elements of `range`, for `operation`.
            pub(crate) fn slice_for(
                &self,
                operation: &'static str,
                range: &impl std::ops::RangeBounds<usize>,
            ) -> $crate::Result<Self> {
                let range = $crate::cuda::resolve(operation, range, self.len)?;
                Ok(Self { address: self.address.add(range.start * size_of::<T>()), len: range.len(), ..*self })
            }

            /// The elements before `mid` and those from it on, for `operation`.
            ///
            /// # Panics
            /// If `mid` is greater than the length.
            #[track_caller]
            pub(crate) fn halves(self, operation: &'static str, mid: usize) -> (Self, Self) {
                let (front, back) = (self.slice_for(operation, &(..mid)), self.slice_for(operation, &(mid..)));
                ($crate::cuda::or_panic(front), $crate::cuda::or_panic(back))
            }

            /// The bytes of the elements.
            pub(crate) fn bytes(self) -> $View<'a, u8> {
                $View::of(self.$memory, self.address, self.len * size_of::<T>())
            }
        }

        impl<T: Element> $crate::cuda::Cut for $View<'_, T> {
            fn count(&self) -> usize {
                self.len
            }

            fn cut(self, mid: usize) -> (Self, Self) {
                self.split_at(mid)
            }
        }

        impl<T: Element> Clone for $View<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T: Element> Copy for $View<'_, T> {}

        impl<'a, T: Element> $As<'a, T> for $View<'a, T> {}
        impl<'a, T: Element> $As<'a, T> for &$View<'a, T> {}

        impl<'a, T: Element> From<&$View<'a, T>> for $View<'a, T> {
            fn from(view: &$View<'a, T>) -> Self {
                *view
            }
        }
    };

    (view_mut $View:ident over $memory:ident: $Memory:ty, $As:ident, $Read:ident, $AsRead:ident, ($begin:expr, $end:expr, $get:literal, $fill:literal)) => {
        impl<'a, T: Element> $View<'a, T> {
            /// Returns the `len` elements at `address`. The caller lets nothing else refer to them meanwhile.
            #[inline]
            pub(crate) fn of($memory: &'a $Memory, address: Address, len: usize) -> Self {
                debug_assert!(len * size_of::<T>() <= $memory.bytes());
                Self { $memory, address, len, _elements: PhantomData }
            }

            /// Borrows this view for a shorter time. Pass the result to a call that takes a view by
            /// value, and use this view again afterwards.
            ///
            /// ```
            #[doc = $begin]
            /// let mut view = x.slice_mut(1..);
            /// let mut shorter = view.reborrow();
            #[doc = concat!("shorter", $fill, ";")]
            #[doc = concat!("assert_eq!(view", $get, ", [7, 7, 7]);")]
            #[doc = $end]
            /// ```
            pub fn reborrow(&mut self) -> $View<'_, T> {
                $View::of(self.$memory, self.address, self.len)
            }

            /// The elements of `range`, for `operation`.
            pub(crate) fn into_range(
                self,
                operation: &'static str,
                range: &impl std::ops::RangeBounds<usize>,
            ) -> $crate::Result<Self> {
                let range = $crate::cuda::resolve(operation, range, self.len)?;
                Ok(Self { address: self.address.add(range.start * size_of::<T>()), len: range.len(), ..self })
            }

            /// The elements before `mid` and those from it on, for `operation`.
            ///
            /// # Panics
            /// If `mid` is greater than the length.
            #[track_caller]
            pub(crate) fn into_halves(self, operation: &'static str, mid: usize) -> (Self, Self) {
                let other = Self { ..self };
                let (front, back) = (self.into_range(operation, &(..mid)), other.into_range(operation, &(mid..)));
                ($crate::cuda::or_panic(front), $crate::cuda::or_panic(back))
            }

            /// Like [`split_at_mut`](Self::split_at_mut), for parts that live as long as the memory is
            /// borrowed, such as those that a group borrows.
            ///
            /// ```
            #[doc = $begin]
            /// let (mut front, mut back) = x.slice_mut(1..).into_split(1);
            #[doc = concat!("back", $fill, ";")]
            #[doc = concat!("assert_eq!(x", $get, ", [1, 2, 7, 7]);")]
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `mid` is greater than the length.
            #[track_caller]
            pub fn into_split(self, mid: usize) -> (Self, Self) {
                self.into_halves(concat!(stringify!($View), "::into_split"), mid)
            }

            /// Like [`chunks_mut`](Self::chunks_mut), for parts that live as long as the memory is
            /// borrowed, such as those that a group borrows.
            ///
            /// ```
            #[doc = $begin]
            /// for mut part in x.slice_mut(1..).into_chunks(2) {
            #[doc = concat!("    part.slice_mut(..1)", $fill, ";")]
            /// }
            #[doc = concat!("assert_eq!(x", $get, ", [1, 7, 3, 7]);")]
            #[doc = $end]
            /// ```
            ///
            /// # Panics
            /// Panics if `each` is 0.
            #[track_caller]
            pub fn into_chunks(self, each: usize) -> $crate::cuda::Chunks<Self> {
                $crate::cuda::Chunks::new(self, each)
            }

            /// Like [`as_bytes_mut`](Self::as_bytes_mut), for as long as the memory is borrowed.
            ///
            /// ```
            #[doc = $begin]
            /// let mut bytes = x.slice_mut(1..2).into_bytes();
            #[doc = concat!("bytes", $fill, ";")]
            #[doc = concat!("assert_eq!(x", $get, ", [1, 0x0707_0707, 3, 4]);")]
            #[doc = $end]
            /// ```
            pub fn into_bytes(self) -> $View<'a, u8> {
                $View::of(self.$memory, self.address, self.len * size_of::<T>())
            }
        }

        impl<T: Element> $crate::cuda::Cut for $View<'_, T> {
            fn count(&self) -> usize {
                self.len
            }

            fn cut(self, mid: usize) -> (Self, Self) {
                self.into_split(mid)
            }
        }

        impl<'a, T: Element> $AsRead<'a, T> for $View<'a, T> {}
        impl<'a, T: Element> $AsRead<'a, T> for &'a $View<'_, T> {}
        impl<'a, T: Element> $As<'a, T> for $View<'a, T> {}
        impl<'a, T: Element> $As<'a, T> for &'a mut $View<'_, T> {}

        impl<'a, T: Element> From<$View<'a, T>> for $Read<'a, T> {
            fn from(view: $View<'a, T>) -> Self {
                $Read::of(view.$memory, view.address, view.len)
            }
        }

        impl<'a, T: Element> From<&'a $View<'_, T>> for $Read<'a, T> {
            fn from(view: &'a $View<'_, T>) -> Self {
                $Read::of(view.$memory, view.address, view.len)
            }
        }

        impl<'a, T: Element> From<&'a mut $View<'_, T>> for $View<'a, T> {
            fn from(view: &'a mut $View<'_, T>) -> Self {
                view.reborrow()
            }
        }
    };

    // Conversions of buffers, so that they can be passed where a view is expected.
    (convert [$($generics:tt)*] $Type:ty, $Read:ident, $AsRead:ident, $view:ident, $Write:ident, $AsWrite:ident, $view_mut:ident) => {
        impl<'view, $($generics)*> $crate::cuda::$AsRead<'view, T> for &'view $Type {}
        impl<'view, $($generics)*> $crate::cuda::$AsRead<'view, T> for &'view mut $Type {}
        impl<'view, $($generics)*> $crate::cuda::$AsWrite<'view, T> for &'view mut $Type {}

        impl<'view, $($generics)*> From<&'view $Type> for $Read<'view, T> {
            fn from(buffer: &'view $Type) -> Self {
                buffer.$view()
            }
        }

        impl<'view, $($generics)*> From<&'view mut $Type> for $Read<'view, T> {
            fn from(buffer: &'view mut $Type) -> Self {
                buffer.$view()
            }
        }

        impl<'view, $($generics)*> From<&'view mut $Type> for $Write<'view, T> {
            fn from(buffer: &'view mut $Type) -> Self {
                buffer.$view_mut()
            }
        }
    };
}

pub(crate) use part_methods;
