//! Tests of what newer versions of NCCL have: the emulator can stand for one.

use gpucomm::{Backend, Version};

use super::alone::{alone_with, is_alone};
use super::harness::{skip, watched};
use super::slower::slower;

/// Runs a test where NCCL is that new, under the watchdog; on the emulator in a process of its own, if need be.
pub fn since(first: Version, seconds: f64, body: impl FnOnce() + Send + 'static) {
    let has = gpucomm::nccl::version().unwrap() >= first;
    if gpucomm::backend() == Backend::Nvidia && !has {
        return skip(&format!("NCCL is older than {first}"));
    }
    if has || is_alone() {
        return watched(seconds, body);
    }
    let thread = std::thread::current();
    let test = thread.name().expect("the name of the test");
    let end = alone_with(test, &[("GPUCOMM_EMULATOR_NCCL", "2.32.3")]).finish(slower(seconds) + slower(30.0));
    end.assert_success();
    assert!(end.text.contains("1 passed"), "{}: not run\n{}", end.what, end.text);
}
