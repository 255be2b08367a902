//! Kernels from PTX, by way of the driver: for GPUs only.

use std::ffi::{CStr, c_char, c_uint, c_void};

use gpucomm::{Device, sys};

type LoadData = unsafe extern "C" fn(module: *mut *mut c_void, image: *const c_void) -> c_uint;
type GetFunction = unsafe extern "C" fn(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) -> c_uint;
type Launch = unsafe extern "C" fn(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: sys::cudaStream_t,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_uint;

/// A kernel of a module that stays loaded.
#[derive(Debug)]
pub struct Kernel {
    function: *mut c_void,
    launch: Launch,
}

/// The driver function of this name and version.
fn entry(symbol: &CStr, version: c_uint) -> *mut c_void {
    let mut function = std::ptr::null_mut();
    // SAFETY: writes one pointer to the address given and reads a C string.
    let code = unsafe { sys::gpucommDriverEntryPoint(&raw mut function, symbol.as_ptr().cast(), version) };
    assert!(code == sys::cudaError::cudaSuccess && !function.is_null(), "{symbol:?}");
    function
}

impl Kernel {
    /// The kernel `name` of `image`, PTX that ends in a zero.
    pub fn load(device: Device, image: &str, name: &CStr) -> Self {
        assert!(image.ends_with('\0'));
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the driver's functions of these names and versions have these types, and the image ends in a zero.
        let launch = unsafe {
            let load: LoadData = std::mem::transmute(entry(c"cuModuleLoadData", 2000));
            let get: GetFunction = std::mem::transmute(entry(c"cuModuleGetFunction", 2000));
            assert_eq!(sys::cudaSetDevice(device.ordinal()), sys::cudaError::cudaSuccess);
            assert_eq!(load(&raw mut module, image.as_ptr().cast()), 0, "cuModuleLoadData");
            assert_eq!(get(&raw mut function, module, name.as_ptr()), 0, "cuModuleGetFunction");
            std::mem::transmute::<*mut c_void, Launch>(entry(c"cuLaunchKernel", 4000))
        };
        Self { function, launch }
    }

    /// Enqueues it.
    ///
    /// # Safety
    /// `arguments` are those that the kernel takes, and what it does with them is allowed; the stream is alive, and its device current.
    pub unsafe fn launch(
        &self,
        blocks: usize,
        threads: usize,
        stream: sys::cudaStream_t,
        arguments: &mut [*mut c_void],
    ) {
        let (blocks, threads) = (blocks as c_uint, threads as c_uint);
        // SAFETY: as the caller promises.
        let code = unsafe {
            (self.launch)(
                self.function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        assert_eq!(code, 0, "cuLaunchKernel");
    }
}
