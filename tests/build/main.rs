//! The build script as a program: with a fake installation, a fake environment and its own output directory.
//!
//! tests/discovery tries what it is made of; here is what the user sees. Where there is no libclang or no C compiler, or
//! where the build script is gone (an archive of tests on another machine), the tests that need it say that they were
//! skipped; `GPUCOMM_TEST_STRICT=1` makes that a failure.

#[path = "../../build/committed/mod.rs"]
mod committed;
mod good;
#[allow(dead_code)]
#[path = "../../build/headers.rs"]
mod headers;
mod held;
mod refused;
mod script;
#[path = "../support/skip.rs"]
mod skip;
