//! What is refused, and the exact text.

use crate::find::{Failure, Package};
use crate::headers::{self, Version};
use crate::library::{CUDA, NCCL};
use crate::machine::{ARM, Machine, NEW, X86, cuda_h, nccl_h};

#[test]
fn nothing_anywhere() {
    let mut machine = Machine::new();
    machine.set("CONDA_PREFIX", "opt/conda");
    machine.nccl("usr/include", "usr/lib64", Version(2, 18, 5));
    machine.set("VIRTUAL_ENV", "venv");
    machine.file("venv/lib/python3.12/site-packages/nvidia/nccl/include/nccl.h", "no version");
    machine.file("opt/conda/include/zlib.h", "");
    let text = "\
error: NCCL not found (need nccl.h >= 2.19 and libnccl.so[.2])
  NCCL_INCLUDE_DIR / NCCL_LIB_DIR  unset
  NCCL_HOME, NCCL_ROOT  unset
  CUDA_PATH, CUDA_HOME, CUDA_TOOLKIT_PATH  unset
  pkg-config nccl  not installed
  NVHPC_ROOT  unset
  CONDA_PREFIX=ROOT/opt/conda  include/nccl.h missing
  CONDA_PREFIX=ROOT/opt/conda  no wheel of NVIDIA in site-packages
  VIRTUAL_ENV=ROOT/venv  ROOT/venv/lib/python3.12/site-packages/nvidia/nccl/include/nccl.h does not say its version
  ROOT/usr/include/nccl.h  2.18.5 (too old)
  ROOT/usr/local/include/nccl.h  missing
  ROOT/usr/local/cuda/include/nccl.h  missing
  ROOT/usr/local/nccl/include/nccl.h  missing
  fix: apt install libnccl-dev | export NCCL_HOME=/path | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&NCCL), text);
}

#[test]
fn nothing_of_cuda() {
    let mut machine = Machine::new();
    machine.cuda("usr/include", "usr/lib64", 11, 8);
    machine.set("VIRTUAL_ENV", "venv");
    machine.file("venv/lib/python3.12/site-packages/numpy/__init__.py", "");
    let text = "\
error: CUDA runtime not found (need cuda_runtime_api.h >= 12.0 and libcudart.so[.N])
  CUDA_INCLUDE_DIR / CUDA_LIB_DIR  unset
  CUDA_PATH, CUDA_HOME, CUDA_TOOLKIT_PATH  unset
  pkg-config cudart, cudart-13.5 … cudart-12.0  not installed
  NVHPC_ROOT  unset
  CONDA_PREFIX  unset
  VIRTUAL_ENV=ROOT/venv  no wheel of NVIDIA in site-packages
  ROOT/usr/local/cuda/include/cuda_runtime_api.h  missing
  ROOT/opt/cuda/include/cuda_runtime_api.h  missing
  ROOT/usr/include/cuda_runtime_api.h  11.8 (too old)
";
    assert!(machine.failure(&CUDA).starts_with(text), "{}", machine.failure(&CUDA));
}

#[test]
fn one_of_the_pair_is_an_error_by_name() {
    let mut machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", NEW);
    machine.set("NCCL_LIB_DIR", "usr/lib64");
    let text = "\
error: NCCL not searched for: NCCL_LIB_DIR is given without NCCL_INCLUDE_DIR (need nccl.h >= 2.19 and libnccl.so[.2])
  NCCL_LIB_DIR=ROOT/usr/lib64  NCCL_INCLUDE_DIR is unset: the two must be given together
  fix: apt install libnccl-dev | correct or unset NCCL_LIB_DIR | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&NCCL), text);
}

#[test]
fn a_wrong_explicit_value_does_not_fall_through() {
    let mut machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", NEW);
    machine.set("NCCL_HOME", "opt/nothing");
    let text = "\
error: NCCL not found through NCCL_HOME (need nccl.h >= 2.19 and libnccl.so[.2])
  NCCL_INCLUDE_DIR / NCCL_LIB_DIR  unset
  NCCL_HOME=ROOT/opt/nothing  no such directory
  fix: apt install libnccl-dev | correct or unset NCCL_HOME | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&NCCL), text);
    machine.set("NCCL_INCLUDE_DIR", "opt/nothing");
    machine.set("NCCL_LIB_DIR", "usr/lib64");
    let text = machine.failure(&NCCL);
    assert!(text.starts_with("error: NCCL not found through NCCL_INCLUDE_DIR (need"), "{text}");
    machine.file("opt/nothing/zlib.h", "");
    let text = machine.failure(&NCCL);
    assert!(text.starts_with("error: NCCL not found through NCCL_INCLUDE_DIR and NCCL_LIB_DIR (need"), "{text}");
}

#[test]
fn each_of_the_pair_alone_and_for_the_target() {
    let mut machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", NEW);
    machine.set("X86_64_UNKNOWN_LINUX_GNU_NCCL_INCLUDE_DIR", "usr/include");
    let text = "\
error: NCCL not searched for: X86_64_UNKNOWN_LINUX_GNU_NCCL_INCLUDE_DIR is given without NCCL_LIB_DIR (need nccl.h >= 2.19 and libnccl.so[.2])
  X86_64_UNKNOWN_LINUX_GNU_NCCL_INCLUDE_DIR=ROOT/usr/include  NCCL_LIB_DIR is unset: the two must be given together
  fix: apt install libnccl-dev | correct or unset X86_64_UNKNOWN_LINUX_GNU_NCCL_INCLUDE_DIR | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&NCCL), text);
    // One for the target and one for all make a pair.
    machine.set("NCCL_LIB_DIR", "usr/lib64");
    assert_eq!(machine.found(&NCCL).1, "usr/lib64/libnccl.so.2");
}

/// The last lines of the text where nothing was set: the places of distributions.
fn places(lines: [&str; 4]) -> String {
    format!(
        "\
error: NCCL not found (need nccl.h >= 2.19 and libnccl.so[.2])
  NCCL_INCLUDE_DIR / NCCL_LIB_DIR  unset
  NCCL_HOME, NCCL_ROOT  unset
  CUDA_PATH, CUDA_HOME, CUDA_TOOLKIT_PATH  unset
  pkg-config nccl  not installed
  NVHPC_ROOT  unset
  CONDA_PREFIX  unset
  VIRTUAL_ENV  unset
  ROOT/usr/include/nccl.h  {}
  ROOT/usr/local/include/nccl.h  {}
  ROOT/usr/local/cuda/include/nccl.h  {}
  ROOT/usr/local/nccl/include/nccl.h  {}
  fix: apt install libnccl-dev | export NCCL_HOME=/path | --features gpucomm/emulator for the CPU emulator
",
        lines[0], lines[1], lines[2], lines[3]
    )
}

#[test]
fn a_library_without_headers_and_headers_elsewhere_do_not_add_up() {
    let mut machine = Machine::new();
    machine.library("usr/lib64/libnccl.so.2");
    assert_eq!(machine.failure(&NCCL), places(["missing"; 4]));
    machine.file("usr/local/include/nccl.h", &nccl_h(NEW));
    let reason = "headers of 2.28.9, but no libnccl.so[.2] beside them";
    assert_eq!(machine.failure(&NCCL), places(["missing", reason, "missing", "missing"]));
    machine.set("NCCL_HOME", "usr");
    let text = "\
error: NCCL not found through NCCL_HOME (need nccl.h >= 2.19 and libnccl.so[.2])
  NCCL_INCLUDE_DIR / NCCL_LIB_DIR  unset
  NCCL_HOME=ROOT/usr  include/nccl.h missing
  fix: apt install libnccl-dev | correct or unset NCCL_HOME | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&NCCL), text);
}

#[test]
fn headers_that_are_too_old() {
    let mut machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", Version(2, 18, 5));
    machine.nccl("usr/local/nccl/include", "usr/local/nccl/lib", Version(1, 3, 5));
    let text = places(["2.18.5 (too old)", "missing", "missing", "1.3.5 (too old)"]);
    assert_eq!(machine.failure(&NCCL), text);
    machine.cuda("opt/cuda/include", "opt/cuda/lib64", 11, 8);
    machine.set("CUDA_PATH", "opt/cuda");
    let text = "\
error: CUDA runtime not found through CUDA_PATH (need cuda_runtime_api.h >= 12.0 and libcudart.so[.N])
  CUDA_INCLUDE_DIR / CUDA_LIB_DIR  unset
  CUDA_PATH=ROOT/opt/cuda  11.8 (too old)
  fix: apt install cuda-cudart-dev-13-0 cuda-crt-13-0 | correct or unset CUDA_PATH | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&CUDA), text);
    // The oldest that will do.
    let machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", Version(2, 19, 3));
    assert_eq!(machine.found(&NCCL).0, "usr/include");
}

#[test]
fn an_older_library_under_newer_headers_is_refused() {
    let machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", Version(2, 23, 4));
    machine.file("usr/include/nccl.h", &nccl_h(Version(2, 27, 3)));
    let reason = "headers of 2.27.3, but the library is ROOT/usr/lib64/libnccl.so.2.23.4";
    assert_eq!(machine.failure(&NCCL), places([reason, "missing", "missing", "missing"]));
    let mut machine = Machine::new();
    machine.cuda("cuda/include", "cuda/lib64", 12, 4);
    machine.file("cuda/include/cuda_runtime_api.h", &cuda_h(13, 0));
    machine.set("CUDA_INCLUDE_DIR", "cuda/include");
    machine.set("CUDA_LIB_DIR", "cuda/lib64");
    let text = "\
error: CUDA runtime not found through CUDA_INCLUDE_DIR and CUDA_LIB_DIR (need cuda_runtime_api.h >= 12.0 and libcudart.so[.N])
  CUDA_INCLUDE_DIR=ROOT/cuda/include / CUDA_LIB_DIR=ROOT/cuda/lib64  headers of 13.0, but the library is ROOT/cuda/lib64/libcudart.so.12.4.96
  fix: apt install cuda-cudart-dev-13-0 cuda-crt-13-0 | correct or unset CUDA_INCLUDE_DIR and CUDA_LIB_DIR | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&CUDA), text);
    // A newer library under older headers will do.
    let machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", Version(2, 30, 4));
    machine.file("usr/include/nccl.h", &nccl_h(Version(2, 27, 3)));
    assert_eq!(machine.find(&NCCL).expect("compatible").version, Version(2, 27, 3));
}

#[test]
fn cross_builds_take_explicit_places_or_pkg_config() {
    let mut machine = Machine::new();
    (machine.target, machine.host) = (ARM, X86);
    machine.nccl("usr/include", "usr/lib/aarch64-linux-gnu", NEW);
    let text = machine.failure(&NCCL);
    let line = "  known installations  not searched: they are for x86_64-unknown-linux-gnu, the target is aarch64-unknown-linux-gnu\n";
    assert!(text.contains(line), "{text}");
    let prefix = machine.root.join("usr");
    let package = Package { includes: vec![prefix.join("include")], libs: vec![prefix.join("lib/aarch64-linux-gnu")] };
    machine.packages.insert("nccl".into(), package);
    assert_eq!(machine.found(&NCCL).1, "usr/lib/aarch64-linux-gnu/libnccl.so.2");
}

#[test]
fn versions_of_headers() {
    assert_eq!(headers::nccl(&nccl_h(NEW)), Some(NEW));
    assert_eq!(headers::cudart("# define CUDART_VERSION 12080 /* 12.8 */"), Some(Version(12, 8, 0)));
    assert_eq!(headers::nccl("#define NCCL_MAJOR 2\n#define NCCL_MINOR x"), None);
    assert_eq!(headers::of_file_name("libnccl.so.2.28.9"), [2, 28, 9]);
    assert!(headers::of_file_name("libnccl.so").is_empty());
}

#[test]
fn reasons_stand_in_a_column() {
    let tried = [("NCCL_HOME", "unset"), ("/a/place/with/a/name/of/42/characters/long", "missing")];
    let failure = Failure {
        summary: "NCCL not found".into(),
        tried: tried.map(|(place, reason)| (place.to_string(), reason.to_string())).to_vec(),
        fixes: ["a".into(), "b".into(), "c".into()],
    };
    let text = "\
error: NCCL not found
  NCCL_HOME                                   unset
  /a/place/with/a/name/of/42/characters/long  missing
  fix: a | b | c
";
    assert_eq!(failure.to_string(), text);
}
