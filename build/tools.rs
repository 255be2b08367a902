//! The tools of others: pkg-config and the compilers. What they would tell cargo, build.rs tells.

use std::path::{Path, PathBuf};

use super::find::{Found, Package};

/// Variables that the tools read, each also with the target as a suffix.
pub const VARIABLES: &[&str] = &[
    "PKG_CONFIG",
    "PKG_CONFIG_PATH",
    "PKG_CONFIG_LIBDIR",
    "PKG_CONFIG_SYSROOT_DIR",
    "PKG_CONFIG_ALLOW_CROSS",
    "CC",
    "CFLAGS",
    "CXX",
    "CXXFLAGS",
    "AR",
    "ARFLAGS",
    "LIBCLANG_PATH",
    "LLVM_CONFIG_PATH",
    "BINDGEN_EXTRA_CLANG_ARGS",
];

/// The C compiler for the headers that were found.
pub fn compiler(root: &Path, includes: &[PathBuf], all: &[&Found]) -> cc::Build {
    let mut build = cc::Build::new();
    build.cargo_metadata(false).std("c11").extra_warnings(true);
    build.flag("-I").flag(root.join("vendor/shim"));
    for name in super::headers::DEFINES {
        build.define(name, "1");
    }
    for Found { key, fixed, .. } in all {
        build.define(&format!("GPUCOMM_{key}"), None);
        if *fixed {
            build.define(&format!("GPUCOMM_{key}_STATIC"), None);
        }
    }
    for include in includes {
        build.flag("-isystem").flag(include);
    }
    build
}

/// Compiles vendor/shim against the headers that were found, into `OUT_DIR`.
pub fn shim(root: &Path, includes: &[PathBuf], all: &[&Found]) -> Result<(), String> {
    let mut build = compiler(root, includes, all);
    build.file(root.join("vendor/shim/gpucomm_shim.c"));
    if all.iter().any(|found| found.key == "NVSHMEM") {
        build.file(root.join("vendor/shim/gpucomm_nvshmem.c"));
    }
    build.try_compile("gpucomm_shim").map_err(|error| refused(&error, "vendor/shim cannot be compiled"))
}

/// Compiles the part of vendor/shim that calls PMIx, which has nothing to do with CUDA, into `OUT_DIR`.
pub fn shim_of_pmix(root: &Path, pmix: &Found) -> Result<(), String> {
    let mut build = compiler(root, std::slice::from_ref(&pmix.include), &[]);
    build.file(root.join("vendor/shim/gpucomm_pmix.c"));
    let what = "vendor/shim/gpucomm_pmix.c cannot be compiled";
    build.try_compile("gpucomm_pmix").map_err(|error| refused(&error, what))
}

/// What the C compiler, or the lack of one, means for the user.
pub fn refused(error: &cc::Error, what: &str) -> String {
    let error = error.to_string();
    match error.strip_prefix("ToolNotFound: ") {
        Some(reason) => format!("error: a C compiler is needed: {reason}; install gcc or clang, or set CC"),
        None => format!("error: {what}: {error}"),
    }
}

/// Asks pkg-config for a package.
pub fn pkg_config(name: &str) -> Result<Package, String> {
    let mut config = pkg_config::Config::new();
    config.cargo_metadata(false).env_metadata(false).print_system_cflags(true).print_system_libs(true);
    match config.probe(name) {
        Ok(library) => Ok(Package { includes: library.include_paths, libs: library.link_paths }),
        Err(pkg_config::Error::Command { .. }) => Err("no pkg-config command".into()),
        Err(pkg_config::Error::CrossCompilation) => {
            Err("not set up for cross builds (PKG_CONFIG_SYSROOT_DIR, PKG_CONFIG_ALLOW_CROSS)".into())
        }
        Err(pkg_config::Error::EnvNoPkgConfig(name)) => Err(format!("switched off by {name}")),
        Err(_) => Err("not installed".into()),
    }
}
