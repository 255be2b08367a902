//! Where NVSHMEM is found, what is staged of it, and the exact text when it is not there.

use std::path::Path;

use crate::headers::Version;
use crate::library::{CUDA, Library, NVSHMEM};
use crate::link;
use crate::machine::{ARM, Machine, X86, expected};

const FOR_12: Library = Library { for_cuda: Some(12), ..NVSHMEM };
const FOR_13: Library = Library { for_cuda: Some(13), ..NVSHMEM };
const V: Version = Version(3, 4, 5);

fn header(Version(major, minor, patch): Version) -> String {
    format!(
        "#define NVSHMEM_VENDOR_MAJOR_VERSION {major}\n#define NVSHMEM_VENDOR_MINOR_VERSION {minor}\n\
         #define NVSHMEM_VENDOR_PATCH_VERSION {patch}\n#define NVSHMEM_BUILD_VARS \"CUDA_HOME=/x NVSHMEM_PREFIX=/y\"\n"
    )
}

impl Machine {
    /// Headers and library, with all names in `lib`, and plug-ins beside it.
    fn nvshmem(&self, include: &str, lib: &str, version: Version) {
        self.file(&format!("{include}/non_abi/nvshmem_version.h"), &header(version));
        for name in ["nvshmem.h", "nvshmem_host.h", "host/nvshmem_api.h", "device_host/nvshmem_types.h"] {
            self.file(&format!("{include}/{name}"), "");
        }
        self.library(&format!("{lib}/libnvshmem_host.so.{version}"));
        self.link(&format!("{lib}/libnvshmem_host.so.3"), &format!("libnvshmem_host.so.{version}"));
        self.link(&format!("{lib}/libnvshmem_host.so"), "libnvshmem_host.so.3");
        self.library(&format!("{lib}/nvshmem_bootstrap_uid.so.3.0.0"));
        self.link(&format!("{lib}/nvshmem_bootstrap_uid.so.3"), "nvshmem_bootstrap_uid.so.3.0.0");
    }

    /// As the wheel has it: one name of the library.
    fn nvshmem_wheel(&self, prefix: &str, version: Version) {
        self.file(&format!("{prefix}/include/non_abi/nvshmem_version.h"), &header(version));
        self.library(&format!("{prefix}/lib/libnvshmem_host.so.3"));
        self.library(&format!("{prefix}/lib/nvshmem_transport_ibrc.so.7"));
    }
}

#[test]
fn debian_packages_for_two_versions_of_cuda() {
    for (target, dir) in [(X86, "x86_64-linux-gnu"), (ARM, "aarch64-linux-gnu")] {
        let machine = Machine::on(target);
        for (major, version) in [(12, Version(3, 2, 5)), (13, V)] {
            let lib = format!("usr/lib/{dir}/nvshmem/{major}");
            machine.nvshmem(&format!("usr/include/nvshmem_{major}"), &lib, version);
        }
        for (library, major) in [(FOR_12, 12), (FOR_13, 13)] {
            let include = format!("usr/include/nvshmem_{major}");
            let file = format!("usr/lib/{dir}/nvshmem/{major}/libnvshmem_host.so.3");
            assert_eq!(machine.found(&library), expected(&include, &file, "usr"));
        }
        assert_eq!(machine.find(&FOR_13).expect("it is there").version, V);
    }
}

#[test]
fn those_for_another_version_of_cuda_are_not_taken() {
    let machine = Machine::new();
    machine.nvshmem("usr/include/nvshmem_12", "usr/lib64/nvshmem/12", V);
    let text = machine.failure(&FOR_13);
    assert!(text.contains("ROOT/usr/include/nvshmem_13/non_abi/nvshmem_version.h  missing\n"), "{text}");
}

#[test]
fn rpm_packages() {
    let machine = Machine::new();
    machine.nvshmem("usr/include/nvshmem_13", "usr/lib64/nvshmem/13", V);
    let file = "usr/lib64/nvshmem/13/libnvshmem_host.so.3";
    assert_eq!(machine.found(&FOR_13), expected("usr/include/nvshmem_13", file, "usr"));
}

#[test]
fn by_each_of_its_names() {
    for name in ["NVSHMEM_HOME", "NVSHMEM_DIR", "NVSHMEM_PREFIX", "X86_64_UNKNOWN_LINUX_GNU_NVSHMEM_HOME"] {
        let mut machine = Machine::new();
        machine.nvshmem("usr/include/nvshmem_13", "usr/lib64/nvshmem/13", Version(3, 8, 0));
        machine.nvshmem("opt/nvshmem/include", "opt/nvshmem/lib", V);
        machine.set(name, "opt/nvshmem");
        let file = "opt/nvshmem/lib/libnvshmem_host.so.3";
        assert_eq!(machine.found(&FOR_13), expected("opt/nvshmem/include", file, name));
    }
    // A package's prefix will do as well.
    let mut machine = Machine::new();
    machine.nvshmem("opt/include/nvshmem_13", "opt/lib/x86_64-linux-gnu/nvshmem/13", V);
    machine.set("NVSHMEM_HOME", "opt");
    assert_eq!(machine.found(&FOR_13).0, "opt/include/nvshmem_13");
    assert!(machine.find(&FOR_12).is_err());
}

#[test]
fn hpc_sdk_conda_spack_and_the_exact_directories() {
    let mut machine = Machine::new();
    machine.nvshmem("opt/nvhpc/comm_libs/nvshmem/include", "opt/nvhpc/comm_libs/nvshmem/lib", V);
    machine.set("NVHPC_ROOT", "opt/nvhpc");
    assert_eq!(machine.found(&FOR_13).2, "NVHPC_ROOT");

    let mut machine = Machine::new();
    machine.nvshmem("opt/conda/include", "opt/conda/lib", V);
    machine.set("CONDA_PREFIX", "opt/conda");
    assert_eq!(machine.found(&FOR_13).1, "opt/conda/lib/libnvshmem_host.so.3");

    let mut machine = Machine::new();
    machine.nvshmem("spack/nvshmem-3.4.5-abcdefg/include", "spack/nvshmem-3.4.5-abcdefg/lib", V);
    machine.set("NVSHMEM_HOME", "spack/nvshmem-3.4.5-abcdefg");
    assert_eq!(machine.found(&FOR_13).0, "spack/nvshmem-3.4.5-abcdefg/include");

    let mut machine = Machine::new();
    machine.nvshmem("a b/headers", "elsewhere", V);
    machine.set("NVSHMEM_INCLUDE_DIR", "a b/headers");
    machine.set("NVSHMEM_LIB_DIR", "elsewhere");
    let origin = "NVSHMEM_INCLUDE_DIR and NVSHMEM_LIB_DIR";
    assert_eq!(machine.found(&FOR_13), expected("a b/headers", "elsewhere/libnvshmem_host.so.3", origin));
}

#[test]
fn a_wheel_and_what_is_staged_of_it() {
    let mut machine = Machine::new();
    let prefix = "venv/lib/python3.12/site-packages/nvidia/nvshmem";
    machine.nvshmem_wheel(prefix, V);
    machine.file(&format!("{prefix}/include/cuda.h"), "of another version");
    machine.set("VIRTUAL_ENV", "venv");
    let found = machine.find(&FOR_13).expect("it is there");
    let staged = machine.root.join("out");
    link::stage_library(&found, &staged).expect("links can be made");
    let real = machine.root.join(prefix).join("lib");
    for (name, file) in [
        ("libnvshmem_host.so", "libnvshmem_host.so.3"),
        ("libnvshmem_host.so.3", "libnvshmem_host.so.3"),
        // It loads its plug-ins from the directory that it was loaded from.
        ("nvshmem_transport_ibrc.so.7", "nvshmem_transport_ibrc.so.7"),
    ] {
        assert_eq!(std::fs::read_link(staged.join(name)).expect(name), real.join(file));
    }
    // A directory of links holds the library alone.
    machine.file(&format!("farm/include/{}", NVSHMEM.header), &header(V));
    std::fs::create_dir(machine.root.join("farm/lib")).expect("a directory");
    machine.link("farm/lib/libnvshmem_host.so.3", &machine.at(&format!("{prefix}/lib/libnvshmem_host.so.3")));
    machine.set("NVSHMEM_HOME", "farm");
    let farm = machine.root.join("out of the farm");
    link::stage_library(&machine.find(&FOR_13).expect("it is there"), &farm).expect("links can be made");
    assert!(farm.join("nvshmem_transport_ibrc.so.7").is_file());

    let headers = machine.root.join("headers");
    link::stage_headers(&found, &headers).expect("links can be made");
    assert!(headers.join("non_abi/nvshmem_version.h").is_file() && !headers.join("cuda.h").exists());

    machine.cuda("cuda/include", "cuda/lib64", 13, 0);
    machine.set("CUDA_HOME", "cuda");
    let cuda = machine.find(&CUDA).expect("it is there");
    let lines = link::directives(&[&found, &cuda], Path::new("/out/lib"));
    assert_eq!(lines[1], "cargo::rustc-link-lib=dylib=nvshmem_host");
    assert!(lines.contains(&format!("cargo::rustc-link-arg=-Wl,-rpath,{}", real.display())), "{lines:?}");
    let lines = link::report(&[&found, &cuda]).join("\n");
    assert!(lines.contains("GPUCOMM_NVSHMEM_ORIGIN=VIRTUAL_ENV"), "{lines}");
    let lines = link::versions(cuda.version, None, Some(found.version), false);
    assert!(lines.contains(&"cargo::metadata=NVSHMEM_VERSION=30405".to_string()), "{lines:?}");
}

#[test]
fn nothing_anywhere() {
    let machine = Machine::new();
    machine.nvshmem("usr/local/include", "usr/local/lib", Version(3, 1, 7));
    machine.file("usr/local/nvshmem/include/non_abi/nvshmem_version.h", &header(V));
    let text = "\
error: NVSHMEM not found (need non_abi/nvshmem_version.h >= 3.2 and libnvshmem_host.so[.3])
  NVSHMEM_INCLUDE_DIR / NVSHMEM_LIB_DIR  unset
  NVSHMEM_HOME, NVSHMEM_DIR, NVSHMEM_PREFIX  unset
  CUDA_PATH, CUDA_HOME, CUDA_TOOLKIT_PATH  unset
  NVHPC_ROOT  unset
  CONDA_PREFIX  unset
  VIRTUAL_ENV  unset
  ROOT/usr/include/nvshmem_13/non_abi/nvshmem_version.h  missing
  ROOT/usr/local/include/nvshmem_13/non_abi/nvshmem_version.h  3.1.7 (too old)
  ROOT/usr/local/nvshmem/include/nvshmem_13/non_abi/nvshmem_version.h  headers of 3.4.5, but no libnvshmem_host.so[.3] beside them
  fix: apt install libnvshmem3-dev-cuda-13 | export NVSHMEM_HOME=/path | --features gpucomm/emulator for the CPU emulator | leave out the feature nvshmem
";
    assert_eq!(machine.failure(&FOR_13), text);
    assert!(machine.failure(&FOR_12).contains("libnvshmem3-dev-cuda-12 |"));
}

#[test]
fn an_archive_is_refused() {
    let mut machine = Machine::new();
    machine.nvshmem("opt/nvshmem/include", "opt/nvshmem/lib", V);
    machine.set("NVSHMEM_HOME", "opt/nvshmem");
    machine.env.insert("NVSHMEM_STATIC".into(), "1".into());
    let text = "\
error: NVSHMEM cannot be linked statically: unset NVSHMEM_STATIC (need non_abi/nvshmem_version.h >= 3.2 and libnvshmem_host.so[.3])
  NVSHMEM_STATIC=1  there is no archive of it, libnvshmem_host.so only
  fix: apt install libnvshmem3-dev-cuda-13 | correct or unset NVSHMEM_STATIC | --features gpucomm/emulator for the CPU emulator | leave out the feature nvshmem
";
    assert_eq!(machine.failure(&FOR_13), text);
    machine.env.insert("NVSHMEM_STATIC".into(), "0".into());
    assert_eq!(machine.find(&FOR_13).expect("it is there").version, V);
}

#[test]
fn headers_newer_than_the_library() {
    let mut machine = Machine::new();
    machine.nvshmem("opt/nvshmem/include", "opt/nvshmem/lib", V);
    machine.file("opt/nvshmem/include/non_abi/nvshmem_version.h", &header(Version(3, 8, 0)));
    machine.set("NVSHMEM_DIR", "opt/nvshmem");
    let text = machine.failure(&FOR_13);
    let line = "NVSHMEM_DIR=ROOT/opt/nvshmem  headers of 3.8, but the library is ROOT/opt/nvshmem/lib/libnvshmem_host.so.3.4.5\n";
    assert!(text.contains(line), "{text}");
}
