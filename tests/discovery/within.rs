//! Libraries that lie within an installation of something else: a toolkit, a conda environment.

use crate::headers::Version;
use crate::library::{CUDA, NCCL, NVSHMEM};
use crate::machine::{ARM, Machine, NEW, X86, cuda_h, expected, nccl_h};

#[test]
fn nccl_within_the_toolkit_comes_before_that_of_the_distribution() {
    let mut machine = Machine::new();
    machine.nccl("usr/include", "usr/lib/x86_64-linux-gnu", NEW);
    machine.nccl("opt/toolkit/targets/x86_64-linux/include", "opt/toolkit/targets/x86_64-linux/lib", NEW);
    machine.set("CUDA_HOME", "opt/toolkit");
    let targets = "opt/toolkit/targets/x86_64-linux";
    let toolkit = expected(&format!("{targets}/include"), &format!("{targets}/lib/libnccl.so.2"), "CUDA_HOME");
    assert_eq!(machine.found(&NCCL), toolkit);
    machine.nccl("own/include", "own/lib", NEW);
    machine.set("NCCL_HOME", "own");
    assert_eq!(machine.found(&NCCL).2, "NCCL_HOME");
}

#[test]
fn a_toolkit_without_nccl_is_passed_over() {
    let mut machine = Machine::new();
    machine.cuda("toolkit/include", "toolkit/lib64", 13, 0);
    machine.nccl("usr/include", "usr/lib64", NEW);
    machine.set("CUDA_PATH", "toolkit");
    assert_eq!(machine.found(&NCCL).2, "usr");
    machine.nccl("toolkit/include", "toolkit/lib64", Version(2, 18, 5));
    assert_eq!(machine.found(&NCCL).2, "usr");
    assert_eq!(machine.found(&CUDA).2, "CUDA_PATH");
}

#[test]
fn the_toolkit_of_the_target_holds_for_cross_builds_too() {
    let mut machine = Machine::on(ARM);
    machine.host = X86;
    machine.nccl("sysroot/include", "sysroot/lib", NEW);
    machine.set("AARCH64_UNKNOWN_LINUX_GNU_CUDA_HOME", "sysroot");
    machine.set("CUDA_PATH", "toolkit-of-the-host");
    assert_eq!(machine.found(&NCCL).2, "AARCH64_UNKNOWN_LINUX_GNU_CUDA_HOME");
}

#[test]
fn nvshmem_within_the_toolkit() {
    let mut machine = Machine::new();
    machine.file(
        "toolkit/include/non_abi/nvshmem_version.h",
        "#define NVSHMEM_VENDOR_MAJOR_VERSION 3\n#define NVSHMEM_VENDOR_MINOR_VERSION 4\n#define NVSHMEM_VENDOR_PATCH_VERSION 5\n",
    );
    machine.library("toolkit/lib64/libnvshmem_host.so.3");
    machine.set("CUDA_TOOLKIT_PATH", "toolkit");
    assert_eq!(machine.found(&NVSHMEM).2, "CUDA_TOOLKIT_PATH");
}

#[test]
fn wheels_in_a_conda_environment() {
    let mut machine = Machine::new();
    let nvidia = "conda/envs/train/lib/python3.12/site-packages/nvidia";
    machine.file(&format!("{nvidia}/nccl/include/nccl.h"), &nccl_h(NEW));
    machine.library(&format!("{nvidia}/nccl/lib/libnccl.so.2"));
    machine.file(&format!("{nvidia}/cu13/include/cuda_runtime_api.h"), &cuda_h(13, 0));
    machine.library(&format!("{nvidia}/cu13/lib/libcudart.so.13"));
    machine.set("CONDA_PREFIX", "conda/envs/train");
    let wheel = expected(&format!("{nvidia}/nccl/include"), &format!("{nvidia}/nccl/lib/libnccl.so.2"), "CONDA_PREFIX");
    assert_eq!(machine.found(&NCCL), wheel);
    assert_eq!(machine.found(&CUDA).1, format!("{nvidia}/cu13/lib/libcudart.so.13"));
    // conda's own packages come first.
    machine.nccl("conda/envs/train/include", "conda/envs/train/lib", NEW);
    assert_eq!(machine.found(&NCCL).0, "conda/envs/train/include");
}

#[test]
fn each_place_that_was_looked_at_is_told() {
    let mut machine = Machine::new();
    machine.cuda("toolkit/include", "toolkit/lib64", 13, 0);
    machine.set("CUDA_HOME", "toolkit");
    machine.file("conda/lib/python3.12/site-packages/nvidia/nccl/include/nccl.h", &nccl_h(Version(2, 18, 1)));
    machine.set("CONDA_PREFIX", "conda");
    let text = machine.failure(&NCCL);
    let wanted = "
  NCCL_HOME, NCCL_ROOT  unset
  CUDA_HOME=ROOT/toolkit  include/nccl.h missing
  pkg-config nccl  not installed
  NVHPC_ROOT  unset
  CONDA_PREFIX=ROOT/conda  include/nccl.h missing
  CONDA_PREFIX=ROOT/conda  2.18.1 (too old)
  VIRTUAL_ENV  unset
";
    assert!(text.contains(wanted), "{text}");
}
