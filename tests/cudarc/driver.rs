//! The driver as cudarc knows it, of which the emulator has what this crate needs, under the names of the runtime: a `libcuda.so` that passes
//! cudarc's calls on to this program.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

use gpucomm::sys;
use gpucomm::sys::cudaMemcpyKind as Kind;

type Code = c_uint;
type Stream = sys::cudaStream_t;
type Event = sys::cudaEvent_t;
type Context = *mut c_void;
type Function = unsafe extern "C" fn();

const INVALID_DEVICE: Code = 101;
const NOT_READY: Code = 600;
const MEMORY_POOLS_SUPPORTED: c_int = 115;

/// A stream on which events are recorded late: other threads go first.
pub static HESITANT: AtomicUsize = AtomicUsize::new(0);

/// Contexts are numbers, from 1 on.
fn context_of(device: c_int) -> Context {
    ptr::without_provenance_mut(usize::try_from(device).unwrap() + 1)
}

/// An address as the emulator has it.
fn at(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap())
}

fn until_ready(stream: Stream) -> Code {
    loop {
        // SAFETY: a stream that cudarc has made, or the null stream.
        match unsafe { sys::cudaStreamQuery(stream) }.0 {
            NOT_READY => std::thread::yield_now(),
            code => return code,
        }
    }
}

fn device_now() -> c_int {
    let mut device = 0;
    // SAFETY: writes a number to the place given.
    assert_eq!(unsafe { sys::cudaGetDevice(&raw mut device) }.0, 0);
    device
}

fn devices() -> c_int {
    let mut count = 0;
    // SAFETY: writes a number to the place given.
    assert_eq!(unsafe { sys::cudaGetDeviceCount(&raw mut count) }.0, 0);
    count
}

/// The pool from which memory of the current device comes.
fn pool() -> sys::cudaMemPool_t {
    static POOLS: Mutex<Vec<(c_int, usize)>> = Mutex::new(Vec::new());
    let (device, mut pools) = (device_now(), POOLS.lock().unwrap());
    let known = pools.iter().find(|(of, _)| *of == device).map(|(_, pool)| *pool);
    ptr::with_exposed_provenance_mut(known.unwrap_or_else(|| {
        let mut pool = ptr::null_mut();
        // SAFETY: writes a handle to the place given.
        assert_eq!(unsafe { sys::gpucommPoolCreate(&raw mut pool, device) }.0, 0);
        pools.push((device, pool.expose_provenance()));
        pool.expose_provenance()
    }))
}

macro_rules! driver {
    ($($name:ident($($arg:ident: $type:ty),*) $body:block)*) => {
        $(#[allow(non_snake_case, unused_unsafe)]
        unsafe extern "C" fn $name($($arg: $type),*) -> Code {
            // SAFETY: cudarc calls it with what C declares, and that is passed on.
            unsafe { $body }
        })*

        const FUNCTIONS: &[(&str, Function)] = &[$((
            stringify!($name),
            // SAFETY: only the C below calls it, with the arguments that it was called with itself.
            unsafe { std::mem::transmute::<unsafe extern "C" fn($($type),*) -> Code, Function>($name) },
        )),*];
    };
}

driver! {
    cuInit(_flags: c_uint) { 0 }
    cuDeviceGetCount(count: *mut c_int) {
        count.write(devices());
        0
    }
    cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        device.write(ordinal);
        if ordinal < devices() { 0 } else { INVALID_DEVICE }
    }
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) {
        value.write(c_int::from(attribute == MEMORY_POOLS_SUPPORTED));
        0
    }
    cuDevicePrimaryCtxRetain(context: *mut Context, device: c_int) {
        context.write(context_of(device));
        0
    }
    cuDevicePrimaryCtxRelease_v2(_device: c_int) { 0 }
    cuCtxGetCurrent(context: *mut Context) {
        context.write(context_of(device_now()));
        0
    }
    cuCtxSetCurrent(context: Context) { sys::cudaSetDevice(c_int::try_from(context.addr()).unwrap() - 1).0 }
    // Only called where cudarc has no stream yet but this one.
    cuCtxSynchronize() { until_ready(ptr::null_mut()) }
    cuStreamCreate(stream: *mut Stream, flags: c_uint) { sys::cudaStreamCreateWithPriority(stream, flags, 0).0 }
    cuStreamDestroy_v2(stream: Stream) { sys::cudaStreamDestroy(stream).0 }
    cuStreamSynchronize(stream: Stream) { until_ready(stream) }
    cuStreamWaitEvent(stream: Stream, event: Event, flags: c_uint) { sys::cudaStreamWaitEvent(stream, event, flags).0 }
    cuStreamIsCapturing(stream: Stream, status: *mut sys::cudaStreamCaptureStatus) { sys::cudaStreamIsCapturing(stream, status).0 }
    cuStreamBeginCapture_v2(stream: Stream, mode: sys::cudaStreamCaptureMode) { sys::cudaStreamBeginCapture(stream, mode).0 }
    cuEventCreate(event: *mut Event, flags: c_uint) { sys::cudaEventCreateWithFlags(event, flags).0 }
    cuEventDestroy_v2(event: Event) { sys::cudaEventDestroy(event).0 }
    cuEventRecord(event: Event, stream: Stream) {
        if HESITANT.load(Ordering::Relaxed) == stream.addr() {
            std::thread::sleep(Duration::from_millis(300));
        }
        sys::cudaEventRecord(event, stream).0
    }
    cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Stream) {
        let mut ptr = ptr::null_mut();
        let code = sys::cudaMallocFromPoolAsync(&raw mut ptr, bytes, pool(), stream);
        address.write(u64::try_from(ptr.expose_provenance()).unwrap());
        code.0
    }
    cuMemFreeAsync(address: u64, stream: Stream) { sys::cudaFreeAsync(at(address), stream).0 }
    cuMemsetD8Async(to: u64, value: u8, bytes: usize, stream: Stream) {
        sys::cudaMemsetAsync(at(to), value.into(), bytes, stream).0
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Stream) {
        sys::cudaMemcpyAsync(at(to), from, bytes, Kind::cudaMemcpyHostToDevice, stream).0
    }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Stream) {
        sys::cudaMemcpyAsync(to, at(from), bytes, Kind::cudaMemcpyDeviceToHost, stream).0
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Stream) {
        sys::cudaMemcpyAsync(at(to), at(from), bytes, Kind::cudaMemcpyDeviceToDevice, stream).0
    }
    cuGetErrorName(_code: Code, name: *mut *const c_char) {
        name.write(c"an error of the driver".as_ptr());
        0
    }
    cuGetErrorString(_code: Code, text: *mut *const c_char) {
        text.write(c"an error of the driver".as_ptr());
        0
    }
}

/// From now on cudarc finds a driver.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let directory = std::env::temp_dir().join(format!("gpucomm-cudarc-{}", std::process::id()));
        let library = directory.join("libcuda.so");
        std::fs::create_dir_all(&directory).unwrap();
        build(&library);
        load(&library);
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

/// A library of these functions, each of which passes on up to six numbers and addresses.
fn build(library: &Path) {
    let mut source = String::from("typedef long n; static unsigned (**table)(n, n, n, n, n, n);\n");
    source += "void install(void *functions) { table = functions; }\n";
    for (at, (name, _)) in FUNCTIONS.iter().enumerate() {
        source +=
            &format!("unsigned {name}(n a, n b, n c, n d, n e, n f) {{ return table[{at}](a, b, c, d, e, f); }}\n");
    }
    let file = library.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so", "-o"]).arg(library).arg(&file);
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// Who loads `libcuda.so` after this gets it, wherever it lies.
fn load(library: &Path) {
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: a library without initializers.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{} is not loaded", library.display());
    // SAFETY: the handle is that of a loaded library.
    let found = unsafe { libc::dlsym(handle, c"install".as_ptr()) };
    assert!(!found.is_null());
    // SAFETY: the function of this name above, which takes one pointer.
    let install = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*const Function)>(found) };
    let table: Vec<Function> = FUNCTIONS.iter().map(|(_, function)| *function).collect();
    install(table.leak().as_ptr());
}
