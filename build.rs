//! Finds, binds and links the libraries, or chooses the emulator.

#[path = "build/bind.rs"]
mod bind;

use std::path::PathBuf;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(gpucomm_emulator)");
    println!("cargo::rustc-check-cfg=cfg(gpucomm_snapshot)");
    println!("cargo::rustc-check-cfg=cfg(nccl_ge_2_27)");
    println!("cargo::rustc-check-cfg=cfg(nccl_ge_2_28)");
    println!("cargo::rerun-if-env-changed=GPUCOMM_WRITE_SNAPSHOT");
    println!("cargo::rustc-cfg=gpucomm_emulator");
    println!("cargo::rustc-cfg=nccl_ge_2_27");
    println!("cargo::rustc-cfg=nccl_ge_2_28");
    if std::env::var_os("GPUCOMM_WRITE_SNAPSHOT").is_some() {
        let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
        bind::builder(&root.join("wrapper.h"), &[root.join("vendor/include"), root.join("vendor/shim")])
            .generate()
            .unwrap()
            .write_to_file(root.join("src/sys/snapshot.rs"))
            .unwrap();
    }
}
