//! Programs that must not compile: each breaks one promise of the safe interface.
//!
//! A case is a module, and a file holds those of one topic, because each file starts the compiler once. The expected messages
//! are those of one version of rustc; with others the test prints that it was skipped. To write them again:
//! `TRYBUILD=overwrite cargo test -p gpucomm-compile-fail --features emulator`. Then read each difference: a case must fail for the reason that its
//! first line names.
//!
//! Messages list what else there is, which depends on the features. With `nvshmem` or `bytemuck`, the cases are those
//! of `cases/with_nvshmem` and so on, and the others are left out.

/// The toolchain that wrote the `.stderr` files.
const TOOLCHAIN: &str = "rustc 1.95.";

#[test]
fn programs_that_must_not_compile() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = std::process::Command::new(rustc).arg("--version").output().expect("rustc --version");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !version.starts_with(TOOLCHAIN) {
        println!("skipped: the messages are those of {TOOLCHAIN}x, this is {version}");
        return;
    }
    let features = [("nvshmem", cfg!(feature = "nvshmem")), ("bytemuck", cfg!(feature = "bytemuck"))];
    let cases = trybuild::TestCases::new();
    let mut with = features.iter().filter(|(_, is_on)| *is_on).peekable();
    if with.peek().is_none() {
        cases.compile_fail("cases/*.rs");
    }
    for (feature, _) in with {
        cases.compile_fail(format!("cases/with_{feature}/*.rs"));
    }
}
