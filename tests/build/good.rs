//! What the build script makes, and what it tells cargo.

use crate::script::Script;

#[test]
fn a_whole_installation_in_a_path_with_spaces() {
    let Some(script) = Script::new() else { return };
    let Some(lines) = script.lines() else { return };
    let lib = script.at("sdk/lib");
    let wanted = [
        "cargo::rustc-cfg=nccl_ge_2_27".to_string(),
        "cargo::rustc-link-lib=static=gpucomm_shim".into(),
        format!("cargo::rustc-link-search=native={}", script.at("out/lib")),
        "cargo::rustc-link-lib=dylib=nccl".into(),
        "cargo::rustc-link-lib=dylib=cudart".into(),
        format!("cargo::rustc-link-arg=-Wl,-rpath,{lib}"),
        format!("cargo::metadata=LIB_DIR={lib}"),
        format!("cargo::metadata=INCLUDE={}", script.at("sdk/include")),
        "cargo::metadata=EMULATED=0".into(),
    ];
    for line in &wanted {
        assert!(lines.contains(line), "no {line} in\n{}", lines.join("\n"));
    }
    let bindings = std::fs::read_to_string(script.root.join("out/bindings.rs")).expect("bindings");
    assert!(bindings.contains("pub fn ncclAllReduce("), "{bindings}");
    for (name, file) in [("libnccl.so", "libnccl.so.2"), ("libcudart.so", "libcudart.so.13")] {
        let real = script.root.join("out/lib").join(name).canonicalize().expect("the link leads somewhere");
        assert_eq!(real, script.root.join("sdk/lib").join(file));
    }
    assert!(script.root.join("out/libgpucomm_shim.a").is_file());
    // Again, over its own output.
    assert_eq!(script.lines(), Some(lines));
}

#[test]
fn what_was_read_makes_it_run_again() {
    let Some(script) = Script::new() else { return };
    let Some(lines) = script.lines() else { return };
    let libraries = ["NCCL_HOME", "NCCL_ROOT", "NCCL_LIB_DIR", "NCCL_STATIC", "CUDA_PATH", "CUDART_STATIC"];
    for name in libraries.into_iter().chain(["CXX", "CXXFLAGS", "LIBCLANG_PATH"]) {
        assert!(lines.contains(&format!("cargo::rerun-if-env-changed={name}")), "{name}: {}", lines.join("\n"));
    }
    let target = script.env["TARGET"].to_uppercase().replace('-', "_");
    assert!(lines.contains(&format!("cargo::rerun-if-env-changed={target}_NCCL_HOME")), "{}", lines.join("\n"));
    for path in ["sdk/include/cuda_runtime_api.h", "sdk/lib/libnccl.so.2", "sdk/lib/libcudart.so.13"] {
        assert!(lines.contains(&format!("cargo::rerun-if-changed={}", script.at(path))), "{}", lines.join("\n"));
    }
    // cargo looks at what links lead to; compilers name the one or the other.
    let nccl = ["out/include/nccl/nccl.h", "sdk/include/nccl.h"].map(|path| script.at(path));
    assert!(nccl.iter().any(|path| lines.contains(&format!("cargo::rerun-if-changed={path}"))), "{}", lines.join("\n"));
    // No source of the crate: what changes there leaves the bindings as they are.
    assert!(!lines.iter().any(|line| line.starts_with("cargo::rerun-if-changed=src")), "{}", lines.join("\n"));
}

#[test]
fn archives() {
    let Some(mut script) = Script::new() else { return };
    script.set("NCCL_STATIC", "1");
    script.set("CUDART_STATIC", "1");
    for stem in ["nccl", "cudart"] {
        script.file(&format!("sdk/lib/lib{stem}_static.a"), b"!<arch>\n");
    }
    let Some(lines) = script.lines() else { return };
    let lib = script.at("sdk/lib");
    let libraries: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("cargo::rustc-link-lib=")).collect();
    let wanted = ["static=gpucomm_shim", "static:-bundle=nccl_static", "static:-bundle=cudart_static"];
    assert_eq!(libraries[..3], wanted);
    assert_eq!(libraries[3..], ["stdc++", "dl", "rt", "pthread"].map(|name| format!("dylib={name}")));
    assert!(lines.contains(&format!("cargo::rustc-link-search=native={lib}")));
    assert!(!lines.iter().any(|line| line.contains("-rpath")), "{}", lines.join("\n"));
}

#[test]
fn documentation_needs_nothing() {
    let Some(mut script) = Script::new() else { return };
    for name in ["CUDA_HOME", "NCCL_HOME", "PATH"] {
        script.env.remove(name);
    }
    script.without_libclang();
    script.set("DOCS_RS", "1");
    script.set("CARGO_FEATURE_PMIX", "1");
    script.set("PMIX_HOME", "/nowhere");
    let lines = script.lines().expect("no tool is needed");
    assert!(lines.contains(&"cargo::rustc-cfg=gpucomm_snapshot".to_string()), "{}", lines.join("\n"));
    assert!(!lines.iter().any(|line| line.contains("rustc-link")), "{}", lines.join("\n"));
    for name in ["DOCS_RS", "CARGO_FEATURE_PMIX"] {
        script.env.remove(name);
    }
    script.set("CARGO_FEATURE_EMULATOR", "1");
    let lines = script.lines().expect("no tool is needed");
    assert!(lines.contains(&"cargo::rustc-cfg=gpucomm_emulator".to_string()), "{}", lines.join("\n"));
    assert!(lines.contains(&"cargo::metadata=EMULATED=1".to_string()), "{}", lines.join("\n"));
}

#[cfg(feature = "pmix")]
#[test]
fn pmix_is_linked_with_the_emulator_and_without() {
    let Some(mut script) = Script::new() else { return };
    let lib = std::path::Path::new(env!("GPUCOMM_PMIX_LIBRARY")).parent().expect("a directory").display().to_string();
    script.set("CARGO_FEATURE_PMIX", "1");
    script.set("PMIX_INCLUDE_DIR", env!("GPUCOMM_PMIX_INCLUDE_DIR"));
    script.set("PMIX_LIB_DIR", &lib);
    let of = |lines: &[String]| -> Vec<String> {
        lines.iter().filter_map(|line| line.strip_prefix("cargo::rustc-link-lib=").map(String::from)).collect()
    };
    let Some(lines) = script.lines() else { return };
    let wanted = ["static=gpucomm_shim", "static=gpucomm_pmix", "dylib=nccl", "dylib=cudart", "dylib=pmix"];
    assert_eq!(of(&lines), wanted, "{}", lines.join("\n"));
    script.set("CARGO_FEATURE_EMULATOR", "1");
    let lines = script.lines().expect("it has been compiled before");
    assert_eq!(of(&lines), ["static=gpucomm_pmix", "dylib=pmix"], "{}", lines.join("\n"));
    assert!(lines.contains(&format!("cargo::rustc-link-arg=-Wl,-rpath,{lib}")), "{}", lines.join("\n"));
    assert!(script.root.join("out/lib/libpmix.so.2").exists() && !script.root.join("out/lib/libnccl.so").exists());
}
