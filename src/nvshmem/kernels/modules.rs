//! Modules and libraries of CUDA with kernels in which NVSHMEM's device functions are linked.

use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::wait_state::Awaited;
use crate::sys;

/// Kernels that call NVSHMEM find what they need in a variable of their module, which the library fills.
impl Context {
    /// Wraps `nvshmemx_cumodule_init`: tells the kernels of a module of this PE's device where symmetric memory is. To be called before they are
    /// launched; waits for all work on the device.
    ///
    /// # Safety
    /// `module` is loaded on this PE's device, with the device functions of this version of NVSHMEM, and stays so until
    /// [`finalize_cumodule`](Self::finalize_cumodule) or the end of the context: the library writes to it again later.
    ///
    /// # Errors
    /// [`Error::Nvshmem`](crate::Error::Nvshmem) where it has no such functions, or those of another version;
    /// [`Error::Timeout`](crate::Error::Timeout) if other work on the device does not end in time.
    #[doc(alias = "nvshmemx_cumodule_init")]
    pub unsafe fn init_cumodule(&self, module: sys::CUmodule) -> Result<()> {
        const C: &str = "nvshmemx_cumodule_init";
        self.inner().idle(C, &Awaited::Nobody, &self.inner().deadline())?;
        // SAFETY: as the caller promises.
        check(C, self.inner().on_quiet_device(C, &Awaited::Nobody, || unsafe { sys::nvshmemx_cumodule_init(module) })?)
    }

    /// Wraps `nvshmemx_cumodule_finalize`: the library forgets the module, which can be unloaded then.
    ///
    /// # Safety
    /// `module` was given to [`init_cumodule`](Self::init_cumodule), and is still loaded.
    ///
    /// # Errors
    /// [`Error::Nvshmem`](crate::Error::Nvshmem) where the library does not know it.
    #[doc(alias = "nvshmemx_cumodule_finalize")]
    pub unsafe fn finalize_cumodule(&self, module: sys::CUmodule) -> Result<()> {
        const C: &str = "nvshmemx_cumodule_finalize";
        // SAFETY: as the caller promises.
        check(
            C,
            self.inner().on_quiet_device(C, &Awaited::Nobody, || unsafe { sys::nvshmemx_cumodule_finalize(module) })?,
        )
    }

    /// Wraps `nvshmemx_culibrary_init`: the same as [`init_cumodule`](Self::init_cumodule) for a library of CUDA, whose kernels are loaded on first use.
    ///
    /// # Safety
    /// As there, with [`finalize_culibrary`](Self::finalize_culibrary).
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "nvshmemx_culibrary_init")]
    #[cfg(nvshmem_ge_3_3)]
    pub unsafe fn init_culibrary(&self, library: sys::CUlibrary) -> Result<()> {
        const C: &str = "nvshmemx_culibrary_init";
        self.inner().idle(C, &Awaited::Nobody, &self.inner().deadline())?;
        // SAFETY: as the caller promises.
        check(
            C,
            self.inner().on_quiet_device(C, &Awaited::Nobody, || unsafe { sys::nvshmemx_culibrary_init(library) })?,
        )
    }

    /// Wraps `nvshmemx_culibrary_finalize`: the library forgets the library of CUDA, which can be unloaded then.
    ///
    /// # Safety
    /// `library` was given to [`init_culibrary`](Self::init_culibrary), and is still loaded.
    ///
    /// # Errors
    /// As [`finalize_cumodule`](Self::finalize_cumodule).
    #[doc(alias = "nvshmemx_culibrary_finalize")]
    #[cfg(nvshmem_ge_3_3)]
    pub unsafe fn finalize_culibrary(&self, library: sys::CUlibrary) -> Result<()> {
        const C: &str = "nvshmemx_culibrary_finalize";
        // SAFETY: as the caller promises.
        check(
            C,
            self.inner()
                .on_quiet_device(C, &Awaited::Nobody, || unsafe { sys::nvshmemx_culibrary_finalize(library) })?,
        )
    }
}
