//! Launches of a kernel by all PEs, whose blocks wait for those of other PEs.

use std::ffi::c_void;

use crate::cuda::{Lend, Stream};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::order::OrderUse;
use crate::nvshmem::state::wait_state::Awaited;
use crate::sys;

/// How a kernel is launched: how many blocks there are, how many threads each of them has, and how much shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks in each dimension; all zero is as many as the device has room for at a time.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// Bytes of shared memory of each block, beside what the kernel itself has.
    pub shared_bytes: usize,
}

impl Context {
    /// Wraps `nvshmemx_collective_launch`: launches `kernel` on `stream`, in a way that all its blocks are on the device at a time, so that those of one PE may
    /// wait for those of another. Collective: all PEs launch the same kernel.
    ///
    /// `memory` is ordered and tracked as that of [`Stream::launch`] is; `args` are the arguments, as `cuLaunchKernel` takes them. Not within a capture.
    ///
    /// # Safety
    /// `kernel` is a kernel of CUDA's driver for this PE's device (`CUkernel`, as `cuLibraryGetKernel` returns it: the library has a runtime of its own, which
    /// does not know functions that were compiled into the program), its module was given to [`init_cumodule`](Self::init_cumodule) or
    /// [`init_culibrary`](Self::init_culibrary), and `args` has a pointer to a valid value for each of its parameters. It uses memory as [`Stream::launch`]
    /// wants it, and all PEs launch it here.
    ///
    /// # Errors
    /// [`Error::Nvshmem`] where the blocks do not fit on the device at a time; [`Error::InvalidUsage`] within a capture; as [`Stream::launch`].
    #[doc(alias = "nvshmemx_collective_launch")]
    pub unsafe fn collective_launch(
        &self,
        kernel: *const c_void,
        shape: &LaunchShape,
        args: &[*mut c_void],
        memory: impl Lend,
        stream: &Stream,
    ) -> Result<()> {
        let LaunchShape { grid, block, shared_bytes } = *shape;
        self.launch_together("Context::collective_launch", "nvshmemx_collective_launch", memory, stream, |raw| {
            let args = args.as_ptr().cast_mut();
            // SAFETY: three numbers each; the stream is one of this PE's device; the rest is as the caller promises. The arguments are read.
            unsafe {
                sys::gpucommNvshmemCollectiveLaunch(kernel, grid.as_ptr(), block.as_ptr(), args, shared_bytes, raw)
            }
        })
    }

    /// Wraps `nvshmemx_collective_launch_attr`: the same with a configuration of CUDA's, which has room for clusters, priorities and what else
    /// there is. `stream` is the one of the configuration.
    ///
    /// # Safety
    /// As [`collective_launch`](Self::collective_launch); and `config` points to a valid `cudaLaunchConfig_t`, whose stream is `stream`.
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "nvshmemx_collective_launch_attr")]
    pub unsafe fn collective_launch_config(
        &self,
        kernel: *const c_void,
        config: *const c_void,
        args: &[*mut c_void],
        memory: impl Lend,
        stream: &Stream,
    ) -> Result<()> {
        let operation = "Context::collective_launch_config";
        self.launch_together(operation, "nvshmemx_collective_launch_attr", memory, stream, |_| {
            // SAFETY: as the caller promises; the arguments are read.
            unsafe { sys::gpucommNvshmemCollectiveLaunchConfig(config, kernel, args.as_ptr().cast_mut()) }
        })
    }

    /// Wraps `nvshmemx_collective_launch_query_gridsize`: how many blocks of that shape, whose grid does not matter, the device has room for at a time.
    ///
    /// # Safety
    /// `kernel` is as [`collective_launch`](Self::collective_launch) wants it.
    ///
    /// # Errors
    /// [`Error::Nvshmem`] where the library or CUDA refuses the kernel.
    #[doc(alias = "nvshmemx_collective_launch_query_gridsize")]
    pub unsafe fn collective_launch_grid(&self, kernel: *const c_void, shape: &LaunchShape) -> Result<usize> {
        let mut blocks = 0;
        let LaunchShape { block, shared_bytes, .. } = *shape;
        let code = self.inner().on_host("Context::collective_launch_grid", || {
            // SAFETY: three numbers, and a place for one; the kernel is as the caller promises.
            unsafe { sys::gpucommNvshmemCollectiveLaunchGrid(kernel, block.as_ptr(), shared_bytes, &mut blocks) }
        })?;
        check("nvshmemx_collective_launch_query_gridsize", code)?;
        Ok(usize::try_from(blocks).unwrap_or(0))
    }

    fn launch_together(
        &self,
        operation: &'static str,
        c: &'static str,
        memory: impl Lend,
        stream: &Stream,
        f: impl FnOnce(sys::cudaStream_t) -> i32,
    ) -> Result<()> {
        // The blocks of PEs that share a device without MPS are not there at a time.
        self.inner().check_whole(operation)?;
        // A stream of the library's own would join the capture.
        stream.no_part_of_capture(operation)?;
        let memory = (memory, OrderUse::shared(&*self.inner().waits));
        check(c, self.inner().together_on_stream(operation, stream, memory, &Awaited::All, f)?)
    }
}
