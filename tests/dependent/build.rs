//! What gpucomm tells the build scripts of its dependents.

fn metadata(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed=DEP_GPUCOMM_{name}");
    std::env::var(format!("DEP_GPUCOMM_{name}")).ok()
}

fn number(name: &str) -> u32 {
    let value = metadata(name).unwrap_or_else(|| panic!("DEP_GPUCOMM_{name} is unset"));
    value.parse().unwrap_or_else(|_| panic!("DEP_GPUCOMM_{name}={value}, not a number"))
}

fn main() {
    let emulated = number("EMULATED");
    assert_eq!(emulated == 1, std::env::var_os("CARGO_FEATURE_EMULATOR").is_some(), "DEP_GPUCOMM_EMULATED={emulated}");
    let (nccl, cudart) = (number("NCCL_VERSION"), number("CUDART_VERSION"));
    assert!((21900..30000).contains(&nccl), "DEP_GPUCOMM_NCCL_VERSION={nccl}");
    assert!((12000..20000).contains(&cudart), "DEP_GPUCOMM_CUDART_VERSION={cudart}");
    println!("cargo::rustc-env=NCCL_VERSION={nccl}");
    println!("cargo::rustc-env=CUDART_VERSION={cudart}");

    // Where nothing is linked, there are no places.
    for name in ["ROOT", "INCLUDE", "LIB_DIR"] {
        let value = metadata(name);
        assert_eq!(value.is_none(), emulated == 1, "DEP_GPUCOMM_{name}={value:?}");
        for path in value.iter().flat_map(|value| value.split(':')) {
            assert!(std::path::Path::new(path).is_dir(), "DEP_GPUCOMM_{name} has {path}");
        }
    }
    if std::env::var_os("CARGO_FEATURE_RUN_PATH").is_some() {
        for path in metadata("RUN_PATH").iter().flat_map(|value| value.split(':')) {
            println!("cargo::rustc-link-arg-bins=-Wl,-rpath,{path}");
        }
    }
}
