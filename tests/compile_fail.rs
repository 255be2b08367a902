//! Programs that must not compile: each breaks one promise of the safe interface.
//!
//! The expected messages are rustc's, so that they change with the toolchain: they are compared with one version only, and
//! on others the test says that it skipped them. To renew them: `TRYBUILD=overwrite cargo test --features emulator --test
//! compile_fail`, then read each difference: a case must fail for the reason that its first line names. A case is a module, and
//! a file holds those of one topic, because each file starts the compiler once. With the feature `nvshmem`
//! the cases are those of `with_nvshmem` alone, with `world` those of `with_world`.

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
    let cases = trybuild::TestCases::new();
    if cfg!(feature = "world") {
        cases.compile_fail("tests/compile_fail/with_world/*.rs");
        return;
    }
    if cfg!(feature = "nvshmem") {
        // The messages of the others list what there is besides.
        cases.compile_fail("tests/compile_fail/with_nvshmem/*.rs");
        return;
    }
    cases.compile_fail("tests/compile_fail/*.rs");
    if cfg!(feature = "bytemuck") {
        cases.compile_fail("tests/compile_fail/with_bytemuck/*.rs");
    }
}
