//! What is found, and what cargo is told of it.

use std::path::Path;

use crate::find::Package;
use crate::headers::Version;
use crate::library::{CUDA, NCCL};
use crate::link;
use crate::machine::{ARM, Machine, NEW, X86, archive, cuda_h, elf, expected, nccl_h};

#[test]
fn debian_amd64_and_arm64() {
    for (target, dir) in [(X86, "x86_64-linux-gnu"), (ARM, "aarch64-linux-gnu")] {
        let machine = Machine::on(target);
        machine.nccl("usr/include", &format!("usr/lib/{dir}"), NEW);
        machine.cuda("usr/include", &format!("usr/lib/{dir}"), 12, 4);
        let lib = format!("usr/lib/{dir}");
        assert_eq!(machine.found(&NCCL), expected("usr/include", &format!("{lib}/libnccl.so.2"), "usr"));
        assert_eq!(machine.found(&CUDA), expected("usr/include", &format!("{lib}/libcudart.so.12"), "usr"));
    }
}

#[test]
fn libraries_of_another_architecture_are_not_found() {
    let machine = Machine::on(ARM);
    machine.nccl("usr/include", "usr/lib/x86_64-linux-gnu", NEW);
    assert!(
        machine
            .failure(&NCCL)
            .contains("ROOT/usr/include/nccl.h  headers of 2.28.9, but no libnccl.so[.2] beside them")
    );
}

#[test]
fn rpm() {
    let machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", NEW);
    assert_eq!(machine.found(&NCCL), expected("usr/include", "usr/lib64/libnccl.so.2", "usr"));
}

#[test]
fn cuda_container_image() {
    let machine = Machine::new();
    machine.cuda(
        "usr/local/cuda-13.0/targets/x86_64-linux/include",
        "usr/local/cuda-13.0/targets/x86_64-linux/lib",
        13,
        0,
    );
    machine.link("usr/local/cuda", "cuda-13.0");
    machine.nccl("usr/include", "usr/lib/x86_64-linux-gnu", NEW);
    let targets = "usr/local/cuda/targets/x86_64-linux";
    let found = expected(&format!("{targets}/include"), &format!("{targets}/lib/libcudart.so.13"), "usr/local/cuda");
    assert_eq!(machine.found(&CUDA), found);
    machine.link("usr/local/cuda-13.0/include", "targets/x86_64-linux/include");
    machine.link("usr/local/cuda-13.0/lib64", "targets/x86_64-linux/lib");
    let found = expected("usr/local/cuda/include", "usr/local/cuda/lib64/libcudart.so.13", "usr/local/cuda");
    assert_eq!(machine.found(&CUDA), found);
    assert_eq!(machine.found(&NCCL).1, "usr/lib/x86_64-linux-gnu/libnccl.so.2");
}

#[test]
fn toolkit_for_arm_servers() {
    let machine = Machine::on(ARM);
    machine.cuda("usr/local/cuda/targets/sbsa-linux/include", "usr/local/cuda/targets/sbsa-linux/lib", 12, 8);
    assert_eq!(machine.found(&CUDA).1, "usr/local/cuda/targets/sbsa-linux/lib/libcudart.so.12");
}

#[test]
fn stubs_are_never_searched() {
    let machine = Machine::new();
    machine.file("usr/local/cuda/include/cuda_runtime_api.h", &cuda_h(13, 0));
    machine.library("usr/local/cuda/lib64/stubs/libcudart.so");
    assert!(machine.failure(&CUDA).contains("headers of 13.0, but no libcudart.so[.13] beside them"));
}

#[test]
fn hpc_sdk() {
    let mut machine = Machine::new();
    let root = "opt/nvidia/hpc_sdk/Linux_x86_64/25.9";
    machine.nccl(&format!("{root}/comm_libs/nccl/include"), &format!("{root}/comm_libs/nccl/lib"), NEW);
    machine.cuda(&format!("{root}/cuda/include"), &format!("{root}/cuda/lib64"), 13, 0);
    machine.set("NVHPC_ROOT", root);
    assert_eq!(machine.found(&NCCL).1, format!("{root}/comm_libs/nccl/lib/libnccl.so.2"));
    assert_eq!(machine.found(&CUDA).1, format!("{root}/cuda/lib64/libcudart.so.13"));
    assert_eq!(machine.found(&CUDA).2, "NVHPC_ROOT");
}

#[test]
fn conda() {
    let mut machine = Machine::new();
    machine.nccl("conda/include", "conda/lib", NEW);
    machine.cuda("conda/targets/x86_64-linux/include", "conda/lib", 12, 9);
    machine.set("CONDA_PREFIX", "conda");
    assert_eq!(machine.found(&NCCL), expected("conda/include", "conda/lib/libnccl.so.2", "CONDA_PREFIX"));
    assert_eq!(machine.found(&CUDA).0, "conda/targets/x86_64-linux/include");
    assert_eq!(machine.found(&CUDA).1, "conda/lib/libcudart.so.12");
}

#[test]
fn spack_gives_a_prefix_a_package_by_pkg_config() {
    let mut machine = Machine::new();
    machine.nccl("spack/nccl-2.28.9-abc/include", "spack/nccl-2.28.9-abc/lib", NEW);
    let prefix = machine.root.join("spack/nccl-2.28.9-abc");
    let package = Package { includes: vec![prefix.join("include")], libs: vec![prefix.join("lib")] };
    machine.packages.insert("nccl".into(), package);
    assert_eq!(machine.found(&NCCL).2, "pkg-config nccl");
    machine.cuda("spack/cuda-13.0/include", "spack/cuda-13.0/lib64", 13, 0);
    machine.set("CUDA_HOME", "spack/cuda-13.0");
    assert_eq!(
        machine.found(&CUDA),
        expected("spack/cuda-13.0/include", "spack/cuda-13.0/lib64/libcudart.so.13", "CUDA_HOME")
    );
}

/// Wheels hold no `.so`, only what programs load.
fn wheels(machine: &Machine, nvidia: &str, cuda: &str, major: u32) {
    machine.file(&format!("{nvidia}/nccl/include/nccl.h"), &nccl_h(NEW));
    machine.library(&format!("{nvidia}/nccl/lib/libnccl.so.2"));
    machine.file(&format!("{nvidia}/{cuda}/include/cuda_runtime_api.h"), &cuda_h(major, 0));
    machine.library(&format!("{nvidia}/{cuda}/lib/libcudart.so.{major}"));
}

#[test]
fn wheels_in_a_virtual_environment() {
    for (cuda, major) in [("cu13", 13), ("cuda_runtime", 12)] {
        let mut machine = Machine::new();
        let nvidia = "venv/lib/python3.12/site-packages/nvidia";
        wheels(&machine, nvidia, cuda, major);
        machine.set("VIRTUAL_ENV", "venv");
        let found =
            expected(&format!("{nvidia}/nccl/include"), &format!("{nvidia}/nccl/lib/libnccl.so.2"), "VIRTUAL_ENV");
        assert_eq!(machine.found(&NCCL), found);
        assert_eq!(machine.found(&CUDA).1, format!("{nvidia}/{cuda}/lib/libcudart.so.{major}"));
    }
}

#[test]
fn wheels_as_homes() {
    let mut machine = Machine::new();
    wheels(&machine, "site/nvidia", "cuda_runtime", 12);
    machine.file("site/nvidia/cuda_nvcc/include/crt/host_defines.h", "");
    machine.set("NCCL_HOME", "site/nvidia/nccl");
    machine.set("CUDA_HOME", "site/nvidia/cuda_runtime");
    assert_eq!(machine.found(&NCCL).1, "site/nvidia/nccl/lib/libnccl.so.2");
    let found = machine.find(&CUDA).expect("it is there");
    assert_eq!(found.companions, [machine.root.join("site/nvidia/cuda_nvcc/include")]);
    assert_eq!(found.soname, "libcudart.so.12");
}

#[test]
fn only_the_soname_is_staged_under_both_names() {
    let mut machine = Machine::new();
    wheels(&machine, "site/nvidia", "cu13", 13);
    machine.set("NCCL_HOME", "site/nvidia/nccl");
    let found = machine.find(&NCCL).expect("it is there");
    let staged = machine.root.join("out/lib");
    // Twice: a build script runs again over its own output.
    for _ in 0..2 {
        link::stage_library(&found, &staged).expect("links can be made");
    }
    for name in ["libnccl.so", "libnccl.so.2"] {
        let real = staged.join(name).canonicalize().expect("the link leads somewhere");
        assert_eq!(real, machine.root.join("site/nvidia/nccl/lib/libnccl.so.2"));
    }
}

#[test]
fn an_explicit_home_wins_over_everything_else() {
    let mut machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", Version(2, 30, 4));
    machine.nccl("opt/nccl/include", "opt/nccl/lib", NEW);
    machine.nccl("conda/include", "conda/lib", NEW);
    machine.set("CONDA_PREFIX", "conda");
    assert_eq!(machine.found(&NCCL).2, "CONDA_PREFIX");
    machine.set("NCCL_ROOT", "opt/nccl");
    assert_eq!(machine.found(&NCCL), expected("opt/nccl/include", "opt/nccl/lib/libnccl.so.2", "NCCL_ROOT"));
}

#[test]
fn an_exact_pair_may_cross_prefixes() {
    let mut machine = Machine::new();
    machine.nccl("a/include", "a/lib", NEW);
    machine.nccl("b/include", "b/lib", Version(2, 29, 2));
    machine.set("NCCL_INCLUDE_DIR", "a/include");
    machine.set("NCCL_LIB_DIR", "b/lib");
    machine.set("NCCL_HOME", "nowhere");
    assert_eq!(machine.found(&NCCL), expected("a/include", "b/lib/libnccl.so.2", "NCCL_INCLUDE_DIR and NCCL_LIB_DIR"));
}

#[test]
fn variables_for_the_target_come_first() {
    let mut machine = Machine::new();
    (machine.target, machine.host) = (ARM, X86);
    machine.cuda("x86/include", "x86/lib64", 13, 0);
    machine.cuda("arm/include", "arm/lib64", 12, 9);
    machine.set("CUDA_PATH", "x86");
    machine.set("AARCH64_UNKNOWN_LINUX_GNU_CUDA_HOME", "arm");
    let found = machine.found(&CUDA);
    assert_eq!(found, expected("arm/include", "arm/lib64/libcudart.so.12", "AARCH64_UNKNOWN_LINUX_GNU_CUDA_HOME"));
}

#[test]
fn cuda_path_wins_over_cuda_home_with_a_warning() {
    let mut machine = Machine::new();
    machine.cuda("a/include", "a/lib64", 13, 0);
    machine.cuda("b/include", "b/lib64", 12, 9);
    machine.set("CUDA_HOME", "b");
    machine.set("CUDA_PATH", "a");
    let found = machine.find(&CUDA).expect("both are there");
    assert_eq!(found.version, Version(13, 0, 0));
    let warning =
        format!("CUDA_PATH={} is used; CUDA_HOME={} differs and is ignored", machine.at("a"), machine.at("b"));
    assert_eq!(found.warnings, [warning]);
    machine.link("c", "a");
    machine.set("CUDA_HOME", "c");
    assert!(machine.find(&CUDA).expect("both are one").warnings.is_empty());
}

#[test]
fn two_toolkits_at_once_do_not_mix() {
    let machine = Machine::new();
    // The distribution's 12.4 with its headers; of 13.0 only headers.
    machine.file("usr/local/cuda/include/cuda_runtime_api.h", &cuda_h(13, 0));
    machine.cuda("usr/include", "usr/lib/x86_64-linux-gnu", 12, 4);
    let found = machine.find(&CUDA).expect("one is whole");
    assert_eq!((found.version, found.soname.as_str()), (Version(12, 4, 0), "libcudart.so.12"));
}

#[test]
fn two_installations_of_nccl_at_once() {
    let mut machine = Machine::new();
    machine.nccl("usr/include", "usr/lib/x86_64-linux-gnu", Version(2, 23, 4));
    machine.nccl("usr/local/nccl/include", "usr/local/nccl/lib", Version(2, 30, 4));
    let found = machine.find(&NCCL).expect("both are whole");
    assert_eq!((found.version, found.lib), (Version(2, 23, 4), machine.root.join("usr/lib/x86_64-linux-gnu")));
    machine.set("NCCL_HOME", "usr/local/nccl");
    let found = machine.find(&NCCL).expect("both are whole");
    assert_eq!((found.version, found.lib), (Version(2, 30, 4), machine.root.join("usr/local/nccl/lib")));
    // Two in one prefix: the library that goes with the headers.
    machine.nccl("usr/local/nccl/include", "usr/local/nccl/lib64", Version(2, 23, 4));
    machine.file("usr/local/nccl/include/nccl.h", &nccl_h(Version(2, 30, 4)));
    assert_eq!(machine.found(&NCCL).1, "usr/local/nccl/lib/libnccl.so.2");
}

#[test]
fn wheels_of_two_pythons() {
    let mut machine = Machine::new();
    wheels(&machine, "venv/lib/python3.11/site-packages/nvidia", "cuda_runtime", 12);
    wheels(&machine, "venv/lib/python3.12/site-packages/nvidia", "cu13", 13);
    machine.set("VIRTUAL_ENV", "venv");
    // The first that is whole, for both libraries.
    assert_eq!(machine.find(&CUDA).expect("two are there").version, Version(12, 0, 0));
    assert_eq!(machine.found(&NCCL).0, "venv/lib/python3.11/site-packages/nvidia/nccl/include");
}

#[test]
fn empty_variables_are_unset() {
    let mut machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", NEW);
    for name in ["NCCL_HOME", "NCCL_LIB_DIR", "NCCL_STATIC", "CONDA_PREFIX", "VIRTUAL_ENV", "NVHPC_ROOT"] {
        machine.env.insert(name.into(), String::new());
    }
    assert_eq!(machine.found(&NCCL).2, "usr");
}

#[test]
fn archives() {
    let mut machine = Machine::new();
    machine.nccl("opt/nccl/include", "opt/nccl/lib", NEW);
    machine.set("NCCL_HOME", "opt/nccl");
    machine.env.insert("NCCL_STATIC".into(), "1".into());
    let absent = "\
error: NCCL not found through NCCL_HOME (need nccl.h >= 2.19 and libnccl_static.a, because NCCL_STATIC=1)
  NCCL_INCLUDE_DIR / NCCL_LIB_DIR  unset
  NCCL_HOME=ROOT/opt/nccl  headers of 2.28.9, but no libnccl_static.a beside them
  fix: apt install libnccl-dev | correct or unset NCCL_HOME | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&NCCL), absent);
    machine.bytes("opt/nccl/lib/libnccl_static.a", &archive(&elf(2, 62)));
    let found = machine.find(&NCCL).expect("it is there now");
    assert!(found.fixed && found.file.ends_with("libnccl_static.a"));
    machine.cuda("opt/cuda/include", "opt/cuda/lib64", 13, 0);
    let cuda = machine.find(&CUDA).expect("it is there");
    let lines = link::directives(&[&found, &cuda], Path::new("/out/lib")).join("\n");
    assert!(lines.contains("rustc-link-lib=static:-bundle=nccl_static"), "{lines}");
    for name in ["cudart", "stdc++", "dl", "rt", "pthread"] {
        assert!(lines.contains(&format!("rustc-link-lib=dylib={name}")), "{lines}");
    }
    machine.env.insert("NCCL_STATIC".into(), "0".into());
    assert!(!machine.find(&NCCL).expect("it is there").fixed);
    machine.env.insert("NCCL_STATIC".into(), "yes".into());
    let wrong = "\
error: NCCL not searched for: NCCL_STATIC is wrong (need nccl.h >= 2.19 and libnccl.so[.2])
  NCCL_STATIC=yes  neither 0 nor 1
  fix: apt install libnccl-dev | correct or unset NCCL_STATIC | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&NCCL), wrong);
}

#[test]
fn the_archive_of_the_runtime_by_both_names() {
    for name in ["CUDART_STATIC", "CUDA_STATIC", "X86_64_UNKNOWN_LINUX_GNU_CUDART_STATIC"] {
        let mut machine = Machine::new();
        machine.cuda("usr/local/cuda/include", "usr/local/cuda/lib64", 13, 0);
        machine.env.insert(name.into(), "1".into());
        let absent = format!(
            "error: CUDA runtime not found (need cuda_runtime_api.h >= 12.0 and libcudart_static.a, because {name}=1)\n"
        );
        let text = machine.failure(&CUDA);
        assert!(text.starts_with(&absent), "{text}");
        let line = "  ROOT/usr/local/cuda/include/cuda_runtime_api.h  headers of 13.0, but no libcudart_static.a beside them\n";
        assert!(text.contains(line), "{text}");
        machine.bytes("usr/local/cuda/lib64/libcudart_static.a", &archive(&elf(2, 62)));
        let cuda = machine.find(&CUDA).expect("it is there now");
        let lines = link::directives(&[&cuda], Path::new("/out/lib")).join("\n");
        assert!(lines.contains("rustc-link-lib=static:-bundle=cudart_static"), "{lines}");
        // An archive needs no run path.
        assert!(!lines.contains("rpath") && !lines.contains("dylib=cudart"), "{lines}");
    }
}

#[test]
fn programs_find_the_libraries_where_they_were_and_never_libcuda() {
    let machine = Machine::new();
    machine.nccl("usr/include", "usr/lib64", NEW);
    machine.cuda("usr/local/cuda/include", "usr/local/cuda/lib64", 13, 0);
    let (nccl, cuda) = (machine.find(&NCCL).expect("NCCL"), machine.find(&CUDA).expect("CUDA"));
    let lines = link::directives(&[&nccl, &cuda], Path::new("/out/lib"));
    let wanted = [
        "cargo::rustc-link-search=native=/out/lib".to_string(),
        "cargo::rustc-link-lib=dylib=nccl".into(),
        "cargo::rustc-link-lib=dylib=cudart".into(),
        "cargo::rustc-link-arg=-Wl,--enable-new-dtags".into(),
        format!("cargo::rustc-link-arg=-Wl,-rpath,{}", machine.at("usr/lib64")),
        format!("cargo::rustc-link-arg=-Wl,-rpath,{}", machine.at("usr/local/cuda/lib64")),
    ];
    assert_eq!(lines[..6], wanted);
    assert!(!lines.iter().any(|line| line.contains("lib=dylib=cuda\n") || line.ends_with("=cuda")), "{lines:?}");
}

#[test]
fn dependents_are_told_how_to_find_the_libraries() {
    let mut machine = Machine::new();
    machine.nccl("nccl/include", "nccl/lib", NEW);
    machine.cuda("a b's/cuda/include", "a b's/cuda/lib64", 13, 0);
    machine.cuda("cuda/include", "cuda/lib64", 13, 0);
    machine.set("NCCL_HOME", "nccl");
    for (home, setting) in [
        ("cuda", "RUSTFLAGS=\"-C link-arg=-Wl,-rpath,ROOT/nccl/lib -C link-arg=-Wl,-rpath,ROOT/cuda/lib64\""),
        (
            "a b's/cuda",
            "CARGO_ENCODED_RUSTFLAGS=$'-Clink-arg=-Wl,-rpath,ROOT/nccl/lib\\x1f-Clink-arg=-Wl,-rpath,ROOT/a b\\'s/cuda/lib64'",
        ),
    ] {
        machine.set("CUDA_HOME", home);
        let (nccl, cuda) = (machine.find(&NCCL).expect("NCCL"), machine.find(&CUDA).expect("CUDA"));
        let last = link::directives(&[&nccl, &cuda], Path::new("/out/lib")).pop().expect("lines");
        let wanted = format!(
            "gpucomm: programs of dependent packages, started without cargo, need {setting} or LD_LIBRARY_PATH"
        );
        assert_eq!(last.replace(&machine.root.display().to_string(), "ROOT"), wanted);
    }
}

#[test]
fn cfgs_are_cumulative_and_declared() {
    let lines = link::reached(Version(12, 4, 0), Some(Version(2, 22, 3)), Some(Version(3, 4, 5)));
    let wanted = [
        "cuda_ge_12_1",
        "cuda_ge_12_2",
        "cuda_ge_12_3",
        "cuda_ge_12_4",
        "nccl_ge_2_20",
        "nccl_ge_2_21",
        "nccl_ge_2_22",
        "nvshmem_ge_3_3",
        "nvshmem_ge_3_4",
    ];
    assert_eq!(lines, wanted.map(|name| format!("cargo::rustc-cfg={name}")));
    let declared = link::declared();
    let newest = Version(99, 0, 0);
    for line in link::reached(newest, Some(newest), Some(newest)) {
        let name = line.trim_start_matches("cargo::rustc-cfg=");
        assert!(declared.contains(&format!("cargo::rustc-check-cfg=cfg({name})")), "{name}");
    }
    assert!(link::reached(Version(12, 0, 0), None, None).is_empty());
}
