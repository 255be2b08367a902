//! A kernel of one's own between two collectives: gradients are summed over all ranks, then each rank takes a step with them.
//!
//! `Stream::launch` is the bracket around it: the buffers are lent for as long as the closure runs, and the kernel counts as a use of
//! them like any copy. On GPUs that is `axpy.ptx`, launched by way of the driver. The emulator has no GPU to run it; there a
//! function of the host does the same, put on the stream by `cudaLaunchHostFunc`.
//!
//! Without a GPU: `cargo run --example own_kernel --features emulator`.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr;

use gpucomm::{
    Backend, Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, backend, sys,
};

const LEN: usize = 100_001;
const RATE: f32 = -0.125;

fn main() -> Result<()> {
    let clique = Clique::init_all(&Device::all()?)?;
    let sizes = clique.spmd(train)?;
    println!("{} ranks took a step with a kernel of their own, over {LEN} weights", sizes.len());
    Ok(())
}

fn train(comm: &Communicator) -> Result<usize> {
    let stream = Stream::new(comm.device())?;
    let mut axpy = Axpy::load(comm.device())?;
    let mine: Vec<f32> = (0..LEN).map(|at| (at % 64 + comm.rank()) as f32).collect();
    let mut gradients = comm.alloc_from(&stream, &mine)?;
    let mut weights = DeviceBuffer::from_slice(&stream, &vec![1f32; LEN])?;

    comm.all_reduce(InPlace(&mut gradients), ReduceOp::Sum, &stream)?;
    let code = stream.launch((&gradients, &mut weights), |stream, (x, mut y)| {
        // SAFETY: both have `x.len()` elements, and the one launch reads the first and writes the second.
        unsafe { axpy.launch(RATE, x.as_ptr(), y.as_mut_ptr(), x.len(), stream.as_raw()) }
    })?;
    succeed("axpy", code)?;

    let ranks = comm.size();
    let expected = |at: usize| 1.0 + RATE * (ranks * (at % 64) + ranks * (ranks - 1) / 2) as f32;
    let weights = weights.to_vec(&stream)?;
    assert!(weights.iter().enumerate().all(|(at, weight)| *weight == expected(at)));
    Ok(weights.len())
}

/// What adds a multiple of one vector to another.
enum Axpy {
    Kernel { function: *mut c_void, launch: LaunchKernel },
    Host,
}

/// Arguments of the function of the host.
struct Step {
    a: f32,
    x: *const f32,
    y: *mut f32,
    len: usize,
}

impl Axpy {
    /// Loads the kernel for `device`; it stays for as long as the process.
    fn load(device: Device) -> Result<Self> {
        if backend() == Backend::Emulator {
            return Ok(Self::Host);
        }
        const IMAGE: &str = concat!(include_str!("axpy.ptx"), "\0");
        let _current = device.set_current()?;
        // SAFETY: takes an integer. It binds the context of the device to this thread, which the driver's functions want.
        succeed("cudaSetDevice", unsafe { sys::cudaSetDevice(device.ordinal()) }.0 as c_uint)?;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the driver's functions of these names and versions have these types; the image is PTX that ends in a zero.
        unsafe {
            let load: ModuleLoadData = std::mem::transmute(entry(c"cuModuleLoadData", 2000)?);
            let get: ModuleGetFunction = std::mem::transmute(entry(c"cuModuleGetFunction", 2000)?);
            succeed("cuModuleLoadData", load(&raw mut module, IMAGE.as_ptr().cast()))?;
            succeed("cuModuleGetFunction", get(&raw mut function, module, c"axpy".as_ptr()))?;
            let launch: LaunchKernel = std::mem::transmute(entry(c"cuLaunchKernel", 4000)?);
            Ok(Self::Kernel { function, launch })
        }
    }

    /// Enqueues `y[i] += a * x[i]` for `len` elements: one launch. What the driver or the runtime answers.
    ///
    /// # Safety
    /// Both are memory of so many elements on the device of `stream`, which is current, until it is done with them.
    unsafe fn launch(&mut self, a: f32, x: *const f32, y: *mut f32, len: usize, stream: sys::cudaStream_t) -> c_uint {
        match self {
            Self::Host => {
                let step: *mut Step = Box::into_raw(Box::new(Step { a, x, y, len }));
                // SAFETY: `step_on_host` takes over what it is given, once.
                unsafe { sys::cudaLaunchHostFunc(stream, Some(step_on_host), step.cast()) }.0 as c_uint
            }
            Self::Kernel { function, launch } => {
                let (mut n, mut a, mut x, mut y) = (len as u64, a, x, y);
                let mut arguments: [*mut c_void; 4] =
                    [(&raw mut n).cast(), (&raw mut a).cast(), (&raw mut x).cast(), (&raw mut y).cast()];
                let blocks = len.div_ceil(256) as c_uint;
                // SAFETY: these are the arguments that the kernel takes, which the driver copies; it looks at no more than `n`.
                unsafe {
                    launch(*function, blocks, 1, 1, 256, 1, 1, 0, stream, arguments.as_mut_ptr(), ptr::null_mut())
                }
            }
        }
    }
}

/// The function of the host. Memory of the emulator's devices is memory of the process, which host functions can read and write.
///
/// # Safety
/// `step` is a `Step` from `Box::into_raw`, whose memory nobody else uses now.
unsafe extern "C" fn step_on_host(step: *mut c_void) {
    // SAFETY: as the caller promises; the elements are as many as `launch` was promised.
    unsafe {
        let step = Box::from_raw(step.cast::<Step>());
        for at in 0..step.len {
            let y = step.y.add(at);
            *y = step.a.mul_add(*step.x.add(at), *y);
        }
    }
}

type ModuleLoadData = unsafe extern "C" fn(module: *mut *mut c_void, image: *const c_void) -> c_uint;
type ModuleGetFunction = unsafe extern "C" fn(*mut *mut c_void, module: *mut c_void, name: *const c_char) -> c_uint;
type LaunchKernel = unsafe extern "C" fn(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: sys::cudaStream_t,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_uint;

/// The driver's function of this name, as of this version of CUDA: the program links no libcuda.
fn entry(name: &CStr, version: c_uint) -> Result<*mut c_void> {
    let mut function = ptr::null_mut();
    // SAFETY: writes one pointer to the address given, and reads a C string.
    let code = unsafe { sys::gpucommDriverEntryPoint(&raw mut function, name.as_ptr(), version) };
    succeed("cudaGetDriverEntryPoint", code.0 as c_uint)?;
    if function.is_null() { Err(failed("cudaGetDriverEntryPoint", 500)) } else { Ok(function) }
}

fn succeed(operation: &'static str, code: c_uint) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failed(operation, code)) }
}

fn failed(operation: &'static str, code: c_uint) -> Error {
    Error::InvalidUsage { operation, reason: format!("CUDA answered {code}") }
}
