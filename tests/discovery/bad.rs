//! Files that are not what their names say: one reason each, which names the file.

use crate::headers::Version;
use crate::library::{CUDA, NCCL};
use crate::machine::{ARM, Machine, NEW, archive, cuda_h, elf, nccl_h};

/// A machine whose `NCCL_HOME` has the headers.
fn home() -> Machine {
    let mut machine = Machine::new();
    machine.file("nccl/include/nccl.h", &nccl_h(NEW));
    machine.set("NCCL_HOME", "nccl");
    machine
}

/// The text where `NCCL_HOME` is refused for `reason`.
fn refused(reason: &str) -> String {
    format!(
        "\
error: NCCL not found through NCCL_HOME (need nccl.h >= 2.19 and libnccl.so[.2])
  NCCL_INCLUDE_DIR / NCCL_LIB_DIR  unset
  NCCL_HOME=ROOT/nccl  {reason}
  fix: apt install libnccl-dev | correct or unset NCCL_HOME | --features gpucomm/emulator for the CPU emulator
"
    )
}

#[test]
fn a_text_as_a_library() {
    let machine = home();
    machine.file("nccl/lib/libnccl.so", "NCCL goes here\n");
    let text = refused("ROOT/nccl/lib/libnccl.so is no ELF file and no linker script");
    assert_eq!(machine.failure(&NCCL), text);
    machine.bytes("nccl/lib/libnccl.so", &[0xff; 100]);
    assert_eq!(machine.failure(&NCCL), text);
    machine.file("nccl/lib/libnccl.so", "");
    assert_eq!(machine.failure(&NCCL), text);
}

#[test]
fn a_32_bit_library() {
    let machine = home();
    machine.bytes("nccl/lib/libnccl.so.2", &elf(1, 3));
    let text = refused("ROOT/nccl/lib/libnccl.so.2 is a 32-bit library for x86, the target is x86_64");
    assert_eq!(machine.failure(&NCCL), text);
    // Of 32 bits, but for this machine.
    machine.bytes("nccl/lib/libnccl.so.2", &elf(1, 62));
    let text = refused("ROOT/nccl/lib/libnccl.so.2 is a 32-bit library for x86_64, the target is x86_64");
    assert_eq!(machine.failure(&NCCL), text);
    machine.bytes("nccl/lib/libnccl.so.2", &elf(2, 62)[..10]);
    let text = refused("ROOT/nccl/lib/libnccl.so.2 ends within its ELF header");
    assert_eq!(machine.failure(&NCCL), text);
}

#[test]
fn a_library_for_another_machine() {
    let mut machine = home();
    machine.bytes("nccl/lib/libnccl.so.2", &elf(2, 183));
    let text = refused("ROOT/nccl/lib/libnccl.so.2 is a 64-bit library for aarch64, the target is x86_64");
    assert_eq!(machine.failure(&NCCL), text);
    machine.bytes("nccl/lib/libnccl.so.2", &elf(2, 8));
    let text = refused("ROOT/nccl/lib/libnccl.so.2 is a 64-bit library for machine 8, the target is x86_64");
    assert_eq!(machine.failure(&NCCL), text);
    machine.bytes("nccl/lib/libnccl.so.2", &elf(2, 183));
    (machine.target, machine.host) = (ARM, ARM);
    assert_eq!(machine.found(&NCCL).1, "nccl/lib/libnccl.so.2");
}

#[test]
fn a_directory_that_no_run_path_can_hold() {
    for (name, sign) in [("nccl,2", "','"), ("nccl:2", "':'")] {
        let mut machine = Machine::new();
        machine.file(&format!("{name}/include/nccl.h"), &nccl_h(NEW));
        machine.library(&format!("{name}/lib/libnccl.so.2"));
        machine.set("NCCL_HOME", name);
        let text = refused(&format!("ROOT/{name}/lib has a {sign}, which the run path of a program cannot hold"));
        assert_eq!(machine.failure(&NCCL), text.replace("NCCL_HOME=ROOT/nccl ", &format!("NCCL_HOME=ROOT/{name} ")));
        // An archive leaves no path in the program.
        machine.bytes(&format!("{name}/lib/libnccl_static.a"), &archive(&elf(2, 62)));
        machine.env.insert("NCCL_STATIC".into(), "1".into());
        assert!(machine.find(&NCCL).is_ok());
    }
}

#[test]
fn of_two_libraries_the_one_that_fits() {
    let machine = home();
    machine.bytes("nccl/lib64/libnccl.so.2", &elf(1, 3));
    machine.library("nccl/lib/x86_64-linux-gnu/libnccl.so.2");
    assert_eq!(machine.found(&NCCL).1, "nccl/lib/x86_64-linux-gnu/libnccl.so.2");
}

#[test]
fn linker_scripts_are_followed() {
    let scripts = [
        "/* GNU ld script */\nINPUT(libnccl.so.2.28.9)\n",
        "OUTPUT_FORMAT(elf64-x86-64)\nGROUP ( libnccl.so.2.28.9 AS_NEEDED ( -lpthread ) )",
        "INPUT(AS_NEEDED(\"libnccl.so.2.28.9\"), -lm)",
    ];
    for script in scripts {
        let machine = home();
        machine.library("nccl/lib/libnccl.so.2.28.9");
        machine.file("nccl/lib/libnccl.so", script);
        assert_eq!(machine.found(&NCCL).1, "nccl/lib/libnccl.so.2.28.9", "{script}");
    }
    let machine = home();
    machine.library("elsewhere/libnccl.so.2");
    machine.file("nccl/lib/libnccl.so", &format!("INPUT ( {} )", machine.at("elsewhere/libnccl.so.2")));
    // The program has to find it where it is.
    let found = machine.find(&NCCL).expect("the script leads to it");
    assert_eq!(found.lib, machine.root.join("elsewhere"));
}

#[test]
fn linker_scripts_that_lead_nowhere() {
    let machine = home();
    machine.file("nccl/lib/libnccl.so", "INPUT(libnccl.so.2.28.9)");
    let text = refused(
        "ROOT/nccl/lib/libnccl.so names ROOT/nccl/lib/libnccl.so.2.28.9: No such file or directory (os error 2)",
    );
    assert_eq!(machine.failure(&NCCL), text);
    machine.file("nccl/lib/libnccl.so.2.28.9", "no library");
    let text = refused("ROOT/nccl/lib/libnccl.so names ROOT/nccl/lib/libnccl.so.2.28.9, which is no ELF file");
    assert_eq!(machine.failure(&NCCL), text);
    // Itself.
    machine.file("nccl/lib/libnccl.so", "INPUT(-lnccl)");
    let text = refused("ROOT/nccl/lib/libnccl.so names ROOT/nccl/lib/libnccl.so, which is no ELF file");
    assert_eq!(machine.failure(&NCCL), text);
}

#[test]
fn archives_and_shared_libraries_are_not_confused() {
    let mut machine = home();
    machine.bytes("nccl/lib/libnccl.so", &archive(&elf(2, 62)));
    let text = refused("ROOT/nccl/lib/libnccl.so is an archive, not a shared library");
    assert_eq!(machine.failure(&NCCL), text);

    machine.env.insert("NCCL_STATIC".into(), "1".into());
    let refused = |reason: &str| refused(reason).replace("libnccl.so[.2])", "libnccl_static.a, because NCCL_STATIC=1)");
    machine.library("nccl/lib/libnccl_static.a");
    assert_eq!(machine.failure(&NCCL), refused("ROOT/nccl/lib/libnccl_static.a is no archive"));
    machine.bytes("nccl/lib/libnccl_static.a", &archive(&elf(2, 183)));
    let text = refused("ROOT/nccl/lib/libnccl_static.a is a 64-bit library for aarch64, the target is x86_64");
    assert_eq!(machine.failure(&NCCL), text);
    machine.bytes("nccl/lib/libnccl_static.a", &[b"!<arch>\n", &[b' '; 100][..]].concat());
    assert_eq!(machine.failure(&NCCL), refused("ROOT/nccl/lib/libnccl_static.a is a broken archive"));
    machine.bytes("nccl/lib/libnccl_static.a", &archive(&elf(2, 62)));
    assert_eq!(machine.found(&NCCL).1, "nccl/lib/libnccl_static.a");
}

#[test]
fn directories_and_links_in_the_place_of_files() {
    let machine = home();
    machine.file("nccl/lib/libnccl.so.2/inner", "");
    assert_eq!(machine.failure(&NCCL), refused("ROOT/nccl/lib/libnccl.so.2 is not a file"));

    let machine = home();
    machine.file("nccl/lib/README", "");
    machine.link("nccl/lib/libnccl.so.2", "libnccl.so.2.28.9");
    assert_eq!(machine.failure(&NCCL), refused("ROOT/nccl/lib/libnccl.so.2 is a link to nothing"));

    let machine = home();
    machine.link("nccl/lib64", "lib64");
    let text = refused("ROOT/nccl/lib64: Too many levels of symbolic links (os error 40)");
    assert_eq!(machine.failure(&NCCL), text);

    let machine = home();
    machine.file("nccl/lib64", "");
    machine.file("nccl/lib", "");
    assert_eq!(machine.failure(&NCCL), refused("ROOT/nccl/lib64 is not a directory"));
}

#[test]
fn homes_that_are_no_directories() {
    let mut machine = Machine::new();
    machine.set("NCCL_HOME", "nccl");
    assert_eq!(machine.failure(&NCCL), refused("no such directory"));
    machine.link("nccl", "gone");
    assert_eq!(machine.failure(&NCCL), refused("a link to nothing"));
    machine.file("gone", "");
    assert_eq!(machine.failure(&NCCL), refused("not a directory"));
    machine.link("loop", "loop");
    machine.set("NCCL_HOME", "loop");
    let text = refused("Too many levels of symbolic links (os error 40)").replace("ROOT/nccl", "ROOT/loop");
    assert_eq!(machine.failure(&NCCL), text);
    machine.env.insert("NCCL_HOME".into(), "some/where".into());
    let text = refused("no such directory: an absolute path is needed").replace("ROOT/nccl", "some/where");
    assert_eq!(machine.failure(&NCCL), text);
    machine.env.insert("NCCL_HOME".into(), "tests".into());
    let text = refused("a relative path: an absolute path is needed").replace("ROOT/nccl", "tests");
    assert_eq!(machine.failure(&NCCL), text);
}

#[test]
fn directories_that_must_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let machine = home();
    machine.library("nccl/lib/libnccl.so.2");
    let closed = machine.root.join("nccl/lib");
    let mode = |mode| std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).expect("own directory");
    mode(0o000);
    let root = std::fs::read_dir(&closed).is_ok();
    // Root may read everything, and finds it.
    let result = if root { Ok(machine.found(&NCCL).1) } else { Err(machine.failure(&NCCL)) };
    mode(0o755);
    match result {
        Ok(found) => assert_eq!(found, "nccl/lib/libnccl.so.2"),
        Err(text) => assert_eq!(text, refused("ROOT/nccl/lib/libnccl.so.2: Permission denied (os error 13)")),
    }
}

#[test]
fn known_places_that_are_broken_are_told_and_passed_over() {
    let mut machine = Machine::new();
    machine.file("usr/local/README", "");
    machine.link("usr/local/cuda", "cuda-13.0");
    machine.file("opt/cuda", "");
    machine.set("CONDA_PREFIX", "conda");
    machine.set("VIRTUAL_ENV", "opt/cuda");
    let text = "\
error: CUDA runtime not found (need cuda_runtime_api.h >= 12.0 and libcudart.so[.N])
  CUDA_INCLUDE_DIR / CUDA_LIB_DIR  unset
  CUDA_PATH, CUDA_HOME, CUDA_TOOLKIT_PATH  unset
  pkg-config cudart, cudart-13.5 … cudart-12.0  not installed
  NVHPC_ROOT  unset
  CONDA_PREFIX=ROOT/conda  no such directory
  VIRTUAL_ENV=ROOT/opt/cuda  not a directory
  ROOT/usr/local/cuda/include/cuda_runtime_api.h  ROOT/usr/local/cuda is a link to nothing
  ROOT/opt/cuda/include/cuda_runtime_api.h  ROOT/opt/cuda is not a directory
  ROOT/usr/include/cuda_runtime_api.h  missing
  fix: apt install cuda-cudart-dev-13-0 cuda-crt-13-0 | export CUDA_HOME=/path | --features gpucomm/emulator for the CPU emulator
";
    assert_eq!(machine.failure(&CUDA), text);
    machine.cuda("usr/include", "usr/lib64", 12, 8);
    assert_eq!(machine.found(&CUDA).2, "usr");
}

#[test]
fn headers_that_are_something_else() {
    let machine = home();
    machine.file("nccl/include/nccl.h", "#pragma once\n#include \"nccl_real.h\"\n");
    assert_eq!(machine.failure(&NCCL), refused("ROOT/nccl/include/nccl.h does not say its version"));
    machine.bytes("nccl/include/nccl.h", &[0xff, 0xfe, 0, 0]);
    assert_eq!(machine.failure(&NCCL), refused("ROOT/nccl/include/nccl.h does not say its version"));
    machine.file("nccl/include/nccl.h", "#define NCCL_MAJOR 2\n#define NCCL_MINOR 99999999999\n#define NCCL_PATCH 0\n");
    assert_eq!(machine.failure(&NCCL), refused("ROOT/nccl/include/nccl.h does not say its version"));
}

#[test]
fn spaces_and_other_letters_in_paths() {
    let mut machine = Machine::new();
    for prefix in ["a b/nccl", "ü/$HOME/(nccl)"] {
        machine.nccl(&format!("{prefix}/include"), &format!("{prefix}/lib"), Version(2, 30, 4));
        machine.set("NCCL_HOME", prefix);
        assert_eq!(machine.found(&NCCL).1, format!("{prefix}/lib/libnccl.so.2"));
    }
    machine.file("a b/cuda/include/cuda_runtime_api.h", &cuda_h(13, 0));
    machine.set("CUDA_HOME", "a b/cuda");
    let text = machine.failure(&CUDA);
    assert!(
        text.contains("  CUDA_HOME=ROOT/a b/cuda  headers of 13.0, but no libcudart.so[.13] beside them\n"),
        "{text}"
    );
}
