//! What the driver calls undefined, and the safe layer has no way to: by calls of the driver.

use gpucomm::cuda::multicast::{BindSource, McPtr};
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::{CudaCode, DeviceBuffer, Error, Stream, emulator_violations, sys};

use super::{GRAIN, complete, devices, emulated, fill, mapped, raw};
use crate::Gate;
use crate::child::child;

const NOT_STRICT: &[(&str, &str)] = &[("GPUCOMM_EMULATOR_STRICT", "0")];

/// Runs `wrong` in a process where that is counted: once, in words that have `part`.
fn violates(name: &str, part: &str, wrong: impl FnOnce()) {
    if !emulated() {
        return;
    }
    let end = child(name, NOT_STRICT, || {
        let before = emulator_violations();
        wrong();
        assert_eq!(emulator_violations(), before + 1);
    });
    end.assert_success();
    assert!(end.text.contains(part), "{}", end.text);
}

/// A copy from an address, which is refused.
fn copy_from(stream: &Stream, from: &McPtr<'_, u8>, to: *mut std::ffi::c_void) {
    let copied = stream.launch(from, |stream, from| {
        let kind = sys::cudaMemcpyKind::cudaMemcpyDefault;
        // SAFETY: as many bytes as both have; the emulator refuses it.
        unsafe { sys::cudaMemcpyAsync(to, from.as_raw(), 16, kind, stream.as_raw()) }
    });
    assert!(matches!(copied, Err(Error::Cuda { code: CudaCode(1), .. })), "{copied:?}");
}

#[test]
fn a_read_to_a_device() {
    violates("multicast::violations::a_read_to_a_device", "never read", || {
        let (object, _memory) = mapped(2, GRAIN);
        let stream = Stream::new(devices(1)[0]).unwrap();
        let to = DeviceBuffer::<u8>::zeroed(&stream, 16).unwrap();
        copy_from(&stream, &object.ptr(stream.device()).unwrap(), to.as_raw());
    });
}

#[test]
fn a_read_to_the_host() {
    violates("multicast::violations::a_read_to_the_host", "never read", || {
        let (object, _memory) = mapped(2, GRAIN);
        let stream = Stream::new(devices(1)[0]).unwrap();
        let mut to = [0u8; 16];
        copy_from(&stream, &object.ptr(stream.device()).unwrap(), to.as_mut_ptr().cast());
    });
}

#[test]
fn an_unbind_of_other_numbers() {
    violates("multicast::violations::an_unbind_of_other_numbers", "just what was bound", || {
        let memory = PhysicalMemory::new(devices(1)[0], 2 * GRAIN).unwrap();
        let bound = complete(2, 2 * GRAIN).bind(BindSource::memory(&memory)).unwrap();
        assert_ne!(raw::unbind(bound.as_raw(), devices(1)[0], 0, GRAIN), 0);
        bound.close().unwrap();
    });
}

/// One device has nothing bound: the safe layer does not see it, as the driver was called past it.
#[test]
fn a_write_where_nothing_is_bound() {
    violates("multicast::violations::a_write_where_nothing_is_bound", "nothing bound", || {
        let (object, _memory) = mapped(2, GRAIN);
        let [a, b] = devices(2)[..] else { unreachable!() };
        let stream = Stream::new(a).unwrap();
        let mut all = object.ptr::<u8>(a).unwrap();
        fill(&stream, &mut all, 1);
        stream.synchronize().unwrap();
        assert_eq!(raw::unbind(object.as_raw(), b, 0, GRAIN), 0);
        let filled = stream.launch(&mut all, |stream, all| {
            // SAFETY: the emulator refuses it.
            unsafe { sys::cudaMemsetAsync(all.as_raw(), 2, all.len(), stream.as_raw()) }
        });
        assert!(matches!(filled, Err(Error::Cuda { code: CudaCode(1), .. })), "{filled:?}");
        // Its own unbind would be one more: the process ends without.
        std::mem::forget(object);
    });
}

/// What is bound goes while a device still writes there.
#[test]
fn an_unbind_under_a_write() {
    violates("multicast::violations::an_unbind_under_a_write", "write there", || {
        let (object, _memory) = mapped(2, 2 * GRAIN);
        let stream = Stream::new(devices(1)[0]).unwrap();
        let gate = Gate::close(&stream);
        fill(&stream, &mut object.part::<u8>(stream.device(), GRAIN, GRAIN).unwrap(), 1);
        assert_eq!(raw::unbind(object.as_raw(), devices(2)[1], 0, 2 * GRAIN), 0);
        gate.open();
        stream.synchronize().unwrap();
        // When that is over, it may go.
        assert_eq!(raw::unbind(object.as_raw(), devices(1)[0], 0, 2 * GRAIN), 0);
        std::mem::forget(object);
    });
}

#[test]
fn a_release_of_what_has_memory() {
    violates("multicast::violations::a_release_of_what_has_memory", "is released", || {
        let memory = PhysicalMemory::new(devices(1)[0], GRAIN).unwrap();
        let bound = complete(2, GRAIN).bind(BindSource::memory(&memory)).unwrap();
        raw::release(bound.as_raw());
        std::mem::forget(bound);
    });
}
