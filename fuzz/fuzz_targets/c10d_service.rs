//! A TCPStore as we serve one, and a script of what its clients do.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpucomm::exchange::fuzz::c10d_service(bytes));
