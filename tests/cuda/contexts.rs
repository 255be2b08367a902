//! Contexts: a process has one on each device that it uses, of some hundred megabytes, and on no other.

use std::ffi::{c_int, c_uint, c_void};
use std::thread;

use gpucomm::{Device, DeviceBuffer, Event, PinnedBuffer, Result, Stream, sys};

use crate::child::child;

/// What `cuDevicePrimaryCtxGetState` says.
fn is_used(device: Device) -> bool {
    type State = unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_uint;
    let mut entry: *mut c_void = std::ptr::null_mut();
    // SAFETY: a place for the answer, and the name of a function, which has this type since CUDA 7.0.
    let state = unsafe {
        let code = sys::gpucommDriverEntryPoint(&raw mut entry, c"cuDevicePrimaryCtxGetState".as_ptr(), 7000);
        assert_eq!(code, sys::cudaError::cudaSuccess);
        std::mem::transmute::<*mut c_void, Option<State>>(entry)
    };
    let (mut flags, mut active) = (0, 0);
    // SAFETY: places for the answers.
    let code = unsafe { state.expect("the function")(device.ordinal(), &raw mut flags, &raw mut active) };
    assert_eq!(code, 0);
    active != 0
}

/// All that a program does on one device, some of it on a thread that has done nothing yet.
fn uses(device: Device) -> Result<()> {
    let stream = Stream::new(device)?;
    let x = DeviceBuffer::from_slice(&stream, &[3u32; 99])?;
    let fresh = || -> Result<Vec<u32>> {
        let mut y = DeviceBuffer::<u32>::zeroed(&stream, 99)?;
        y.copy_from(&stream, &x)?;
        let event = Event::new(device)?;
        event.record(&stream)?;
        event.synchronize()?;
        let mut host = PinnedBuffer::zeroed(99)?;
        y.copy_to_pinned(&stream, &mut host)?;
        stream.synchronize()?;
        Ok(host.as_slice()?.to_vec())
    };
    let on_a_thread = |call: &(dyn Fn() -> Result<Vec<u32>> + Sync)| thread::scope(|scope| scope.spawn(call).join());
    assert_eq!(on_a_thread(&fresh).expect("no panic")?, [3; 99]);
    thread::scope(|scope| scope.spawn(|| stream.launch_host(|| ())).join()).expect("no panic")?;
    thread::scope(|scope| scope.spawn(|| x.to_vec(&stream)).join()).expect("no panic")?;
    thread::scope(|scope| scope.spawn(move || drop(x)).join()).expect("no panic");
    #[cfg(feature = "nccl")]
    thread::scope(|scope| scope.spawn(|| works(device)).join()).expect("no panic")?;
    stream.synchronize()
}

/// A communicator, made and used by threads of its own.
#[cfg(feature = "nccl")]
fn works(device: Device) -> Result<()> {
    use gpucomm::{Clique, ReduceOp};

    let clique = Clique::init_all(&[device])?;
    let one = |comm: &gpucomm::Communicator| {
        let stream = Stream::new(comm.device())?;
        comm.all_reduce_scalar(1u32, ReduceOp::Sum, &stream)
    };
    assert_eq!(clique.spmd(one)?, [1]);
    thread::scope(|scope| scope.spawn(|| one(clique.rank(0))).join()).expect("no panic")?;
    clique.close_timeout(gpucomm::default_timeout())
}

/// Threads that never chose a device have device 0, which nothing here concerns.
#[test]
fn devices_that_are_not_used_have_none() {
    let name = "contexts::devices_that_are_not_used_have_none";
    let ended = child(name, &[], || {
        let devices = Device::all().unwrap();
        let Some(&last) = devices.last().filter(|last| last.ordinal() > 0) else { return };
        assert!(!devices.iter().any(|&device| is_used(device)), "before anything was done");
        uses(last).unwrap();
        let used: Vec<_> = devices.iter().map(|&device| is_used(device)).collect();
        assert_eq!(used.iter().position(|&used| used), Some(devices.len() - 1), "{used:?}");
        // Back from a device to one that nobody uses: it is left where it is.
        thread::spawn(move || drop(last.set_current().unwrap())).join().unwrap();
        assert!(!is_used(devices[0]));
        uses(devices[0]).unwrap();
        assert!(is_used(devices[0]));
    });
    assert!(ended.status.success(), "{}", ended.text);
}
