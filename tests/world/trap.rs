//! What takes a device away.

#[cfg(not(all(feature = "cudarc", not(feature = "emulator"))))]
pub use none::Trap;
#[cfg(all(feature = "cudarc", not(feature = "emulator")))]
pub use set::Trap;

#[cfg(all(feature = "cudarc", not(feature = "emulator")))]
mod set {
    use std::ffi::CStr;
    use std::ptr::null_mut;
    use std::sync::Arc;

    use cudarc::driver::{CudaContext, result, sys};
    use gpucomm::Device;

    const PTX: &CStr = c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry fall() { trap; }\n";

    /// A kernel that takes the context of its device with it.
    pub struct Trap {
        kernel: sys::CUfunction,
        context: Arc<CudaContext>,
    }

    impl Trap {
        /// Whether devices are lost here.
        pub const SOME: bool = true;

        pub fn on(device: Device) -> Self {
            let context = CudaContext::new(usize::try_from(device.ordinal()).unwrap()).unwrap();
            context.bind_to_thread().unwrap();
            // SAFETY: a module's text, which ends with a zero, and which has a function of this name; it is never unloaded.
            let kernel = unsafe {
                let module = result::module::load_data(PTX.as_ptr().cast()).unwrap();
                result::module::get_function(module, c"fall".to_owned()).unwrap()
            };
            Self { kernel, context }
        }

        pub fn spring(self) {
            self.context.bind_to_thread().unwrap();
            // SAFETY: it has no parameters.
            unsafe { result::launch_kernel(self.kernel, (1, 1, 1), (1, 1, 1), 0, null_mut(), &mut []) }.unwrap();
            // There is nothing left to be released.
            std::mem::forget(self.context);
        }
    }
}

#[cfg(not(all(feature = "cudarc", not(feature = "emulator"))))]
mod none {
    use gpucomm::Device;

    /// The emulator takes devices away by itself: `GPUCOMM_EMULATOR_FAULTS`.
    pub struct Trap;

    impl Trap {
        pub const SOME: bool = cfg!(feature = "emulator");

        pub fn on(_: Device) -> Self {
            Self
        }

        pub fn spring(self) {}
    }
}
