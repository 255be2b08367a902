//! The codes of errors that libraries return.

use std::fmt;

macro_rules! code {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i32);

        impl $name {
            /// Returns the code as the number that the library returned.
            ///
            /// ```
            #[doc = concat!("use gpucomm::", stringify!($name), ";")]
            ///
            #[doc = concat!("assert_eq!(", stringify!($name), "(2).as_raw(), 2);")]
            /// ```
            #[must_use]
            pub const fn as_raw(self) -> i32 {
                self.0
            }
        }

        /// The number.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl PartialEq<i32> for $name {
            fn eq(&self, other: &i32) -> bool {
                self.0 == *other
            }
        }
    };
}

code! {
    /// The code of an error of CUDA, of [`Error::Cuda`](crate::Error::Cuda) and [`Error::DeviceLost`](crate::Error::DeviceLost): a
    /// `cudaError_t`. It displays as a number, can be compared with one, and matched on:
    ///
    /// ```
    /// use gpucomm::{CudaCode, Error};
    ///
    /// fn is_not_permitted(error: &Error) -> bool {
    ///     matches!(error, Error::Cuda { code: CudaCode(800), .. })
    /// }
    ///
    /// assert_eq!((CudaCode(800).to_string(), CudaCode(800) == 800), ("800".to_owned(), true));
    /// # assert!(!is_not_permitted(&Error::Cancelled { operation: "submit" }));
    /// ```
    CudaCode
}

code! {
    /// The code of an error of NCCL, of [`Error::Nccl`](crate::Error::Nccl): an `ncclResult_t`. It displays as a number, can be
    /// compared with one, and matched on:
    ///
    /// ```
    /// use gpucomm::{Error, NcclCode};
    ///
    /// fn is_remote(error: &Error) -> bool {
    ///     matches!(error, Error::Nccl { code: NcclCode(6), .. })
    /// }
    ///
    /// assert_eq!((NcclCode(6).to_string(), NcclCode(6) == 6), ("6".to_owned(), true));
    /// # assert!(!is_remote(&Error::Cancelled { operation: "submit" }));
    /// ```
    NcclCode
}

code! {
    /// The code of an error of NVSHMEM, of [`Error::Nvshmem`](crate::Error::Nvshmem): what the function returned. It displays as a
    /// number, can be compared with one, and matched on:
    ///
    /// ```
    /// use gpucomm::{Error, NvshmemCode};
    ///
    /// fn is_internal(error: &Error) -> bool {
    ///     matches!(error, Error::Nvshmem { code: NvshmemCode(7), .. })
    /// }
    ///
    /// assert_eq!((NvshmemCode(7).to_string(), NvshmemCode(7) == 7), ("7".to_owned(), true));
    /// # assert!(!is_internal(&Error::Cancelled { operation: "submit" }));
    /// ```
    NvshmemCode
}
