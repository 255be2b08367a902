//! What the user sees when it does not work: one message, which names the file.

use crate::headers;
use crate::script::Script;

/// The first message of discovery for NCCL, refused for `reason`.
fn not_found(name: &str, library: &str, value: &str, reason: &str) -> String {
    let place = format!("{name}={value}");
    // The texts stand in columns, which the length of the root moves.
    format!("error: NCCL not found through {name} (need nccl.h >= 2.19 and {library})|{place}|{reason}|")
}

/// The lines of a failure of discovery that say what and where, without the columns.
fn essence(text: &str) -> String {
    let mut lines = text.lines();
    let mut all = vec![lines.next().unwrap_or_default().to_string()];
    let reason = lines.rfind(|line| !line.trim_start().starts_with("fix: ")).unwrap_or_default();
    all.extend(reason.split("  ").map(str::trim).filter(|part| !part.is_empty()).map(String::from));
    all.push(String::new());
    all.join("|")
}

#[cfg(feature = "bindgen")]
#[test]
fn without_libclang() {
    let Some(mut script) = Script::new() else { return };
    script.without_libclang();
    script.set("RUST_BACKTRACE", "1");
    let outcome = script.run();
    assert!(!outcome.success);
    let (ours, theirs) = outcome.stderr.split_once("  (").expect("clang-sys gives a reason");
    assert_eq!(
        ours,
        "\
error: libclang is missing: it reads the headers of CUDA, NCCL and NVSHMEM. Install it with `apt install libclang-dev` or
  `dnf install clang-devel`; on a cluster, `module load llvm` (or clang); without root, `pip install libclang` and
  LIBCLANG_PATH set to the directory of its libclang.so. Without the feature `bindgen`, which is on by default, the committed
  bindings are taken and no libclang is needed: default-features = false, features = [\"nccl\"].
  Nor is it with the emulator: --features gpucomm/emulator.
"
    );
    assert_eq!(theirs.lines().count(), 1, "{theirs}");
}

#[test]
fn the_emulator_that_was_refused() {
    let Some(mut script) = Script::new() else { return };
    script.set("CARGO_FEATURE_EMULATOR", "1");
    script.set("GPUCOMM_NO_EMULATOR", "1");
    let advice = "unset GPUCOMM_NO_EMULATOR and give --features gpucomm/emulator";
    script.without_libclang();
    if cfg!(feature = "bindgen") {
        let text = script.run().stderr;
        assert!(text.contains(&format!("Nor is it with the emulator: {advice}.\n")), "{text}");
    }
    script.set("NCCL_HOME", "/nowhere");
    let text = script.run().stderr;
    assert!(text.contains(&format!(" | {advice} for the CPU emulator\n")), "{text}");
}

#[test]
fn a_header_with_a_syntax_error() {
    let Some(script) = Script::new() else { return };
    script
        .file("sdk/include/nccl.h", b"#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\nint f(;\n}\n");
    let Some(text) = script.failure() else { return };
    // The rest is the compiler's, whose words differ by version.
    assert!(text.starts_with("error: the headers cannot be bound: ROOT/sdk/include/nccl.h:4:7: error: "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let Some(script) = Script::new() else { return };
    script.replace("sdk/include/cuda_runtime_api.h", "cudaError_t cudaGetDevice(", "cudaError_t cudaGetDevice)");
    let text = script.failure().expect("there is a libclang");
    assert!(text.starts_with("error: the headers cannot be bound: ROOT/sdk/include/cuda_runtime_api.h:"), "{text}");
    assert!(text.lines().count() == 1 && text.contains("error: "), "{text}");
}

#[cfg(not(feature = "bindgen"))]
#[test]
fn headers_that_differ_from_the_committed_bindings() {
    let Some(script) = Script::new() else { return };
    script.replace("sdk/include/nccl.h", "  ncclAvg = 4,", "  ncclAvg = 6,");
    let Some(text) = script.failure() else { return };
    let header = std::fs::read_to_string(script.root.join("sdk/include/nccl.h")).expect("a header");
    let line = header.lines().position(|line| line.contains("ncclAvg = 6")).expect("the line is there") + 1;
    assert_eq!(
        text,
        format!(
            "\
error: the bindings that come with gpucomm are not those of the installed headers (NCCL 2.32.3, CUDA runtime 13.0):
  ROOT/sdk/include/nccl.h:{line}: ncclAvg
    expected  4
    found     6
  fix: --features gpucomm/bindgen, so that libclang reads the headers | --features gpucomm/emulator for the CPU emulator
"
        )
    );
}

#[test]
fn a_header_that_is_missing() {
    let Some(script) = Script::new() else { return };
    script.replace("sdk/include/cuda_runtime_api.h", "#include <stddef.h>", "#include <crt/host_defines.h>");
    let Some(text) = script.failure() else { return };
    let (first, fix) = text.split_once('\n').expect("two lines");
    assert!(first.starts_with("error: the headers cannot be bound: ROOT/sdk/include/cuda_runtime_api.h:"), "{text}");
    let (clang, gcc) = ("'crt/host_defines.h' file not found", "crt/host_defines.h: No such file or directory");
    assert!(
        first.ends_with(&format!("fatal error: {}", if cfg!(feature = "bindgen") { clang } else { gcc })),
        "{text}"
    );
    assert_eq!(
        fix,
        "  fix: apt install cuda-crt-13-0 | pip install nvidia-cuda-crt (of CUDA 12: nvidia-cuda-nvcc-cu12)\n"
    );
}

#[test]
fn without_a_compiler() {
    let Some(mut script) = Script::new() else { return };
    if script.lines().is_none() {
        return;
    }
    script.set("CC", "/nowhere/cc");
    let text = script.run().stderr;
    let reason = "failed to find tool \"/nowhere/cc\": No such file or directory (os error 2)";
    assert_eq!(text, format!("error: a C compiler is needed: {reason}; install gcc or clang, or set CC\n"));
}

#[cfg(not(feature = "bindgen"))]
#[test]
fn without_a_compiler_for_nvshmem() {
    let Some(mut script) = Script::new() else { return };
    if script.lines().is_none() {
        return;
    }
    script.nvshmem();
    script.set("CXX", "/nowhere/c++");
    let text = script.run().stderr;
    let reason = "failed to find tool \"/nowhere/c++\": No such file or directory (os error 2)";
    let fix = "install g++ or clang++, set CXX, or use --features gpucomm/bindgen, which needs libclang instead";
    assert_eq!(text, format!("error: a C++ compiler is needed for the headers of NVSHMEM: {reason}; {fix}\n"));
}

#[test]
fn a_text_as_a_library() {
    let Some(script) = Script::new() else { return };
    std::fs::rename(script.root.join("sdk/lib/libnccl.so.2"), script.root.join("elf")).expect("a file");
    script.file("sdk/lib/libnccl.so", b"version https://git-lfs.github.com/spec/v1\n");
    let text = script.failure().expect("it fails before a tool is needed");
    let reason = "ROOT/sdk/lib/libnccl.so is no ELF file and no linker script";
    assert_eq!(essence(&text), not_found("NCCL_HOME", "libnccl.so[.2]", "ROOT/sdk", reason));
}

#[test]
fn a_32_bit_library() {
    let Some(script) = Script::new() else { return };
    let mut elf = std::fs::read(script.root.join("sdk/lib/libnccl.so.2")).expect("a file");
    // The class, and the machine: 386.
    (elf[4], elf[18], elf[19]) = (1, 3, 0);
    script.file("sdk/lib/libnccl.so.2", &elf);
    let text = script.failure().expect("it fails before a tool is needed");
    let arch = std::env::consts::ARCH;
    let reason = format!("ROOT/sdk/lib/libnccl.so.2 is a 32-bit library for x86, the target is {arch}");
    assert_eq!(essence(&text), not_found("NCCL_HOME", "libnccl.so[.2]", "ROOT/sdk", &reason));
}

#[test]
fn an_archive_that_is_not_there() {
    let Some(mut script) = Script::new() else { return };
    script.set("NCCL_STATIC", "1");
    let text = script.failure().expect("it fails before a tool is needed");
    let version = gpucomm_version();
    let reason = format!("headers of {version}, but no libnccl_static.a beside them");
    let library = "libnccl_static.a, because NCCL_STATIC=1";
    assert_eq!(essence(&text), not_found("NCCL_HOME", library, "ROOT/sdk", &reason));
}

/// The version of NCCL that vendor/include declares.
fn gpucomm_version() -> String {
    headers::nccl(include_str!("../../vendor/include/nccl.h")).expect("a version").to_string()
}

#[test]
fn a_directory_that_cannot_be_read() {
    let Some(mut script) = Script::new() else { return };
    std::os::unix::fs::symlink("loop", script.root.join("loop")).expect("a link");
    script.set("NCCL_HOME", &script.at("loop"));
    let text = script.failure().expect("it fails before a tool is needed");
    let reason = "Too many levels of symbolic links (os error 40)";
    assert_eq!(essence(&text), not_found("NCCL_HOME", "libnccl.so[.2]", "ROOT/loop", reason));
}

#[test]
fn flags_that_are_neither_0_nor_1() {
    for name in ["GPUCOMM_NO_EMULATOR", "GPUCOMM_WRITE_SNAPSHOT"] {
        for value in ["yes", "true", "2"] {
            let Some(mut script) = Script::new() else { return };
            script.set("CARGO_FEATURE_EMULATOR", "1");
            script.set(name, value);
            assert_eq!(
                script.failure().expect("no libclang is needed"),
                format!("error: {name}={value}: expected 0 or 1\n")
            );
        }
    }
    let Some(mut script) = Script::new() else { return };
    script.set("CARGO_FEATURE_EMULATOR", "1");
    script.set("GPUCOMM_NO_EMULATOR", "0");
    assert!(script.run().stdout.contains("gpucomm_emulator"));
}

#[test]
fn pmix_that_is_not_there() {
    let Some(mut script) = Script::new() else { return };
    script.set("CARGO_FEATURE_PMIX", "1");
    script.set("PMIX_HOME", &script.at("sdk"));
    for emulator in [false, true] {
        if emulator {
            script.set("CARGO_FEATURE_EMULATOR", "1");
        }
        let Some(text) = script.failure() else { return };
        let wanted = "error: PMIx not found through PMIX_HOME (need pmix_version.h >= 3.1 and libpmix.so[.2])|\
                      PMIX_HOME=ROOT/sdk|include/pmix_version.h missing|";
        assert_eq!(essence(&text), wanted);
        assert!(text.ends_with("| correct or unset PMIX_HOME | leave out the feature pmix\n"), "{text}");
    }
}
