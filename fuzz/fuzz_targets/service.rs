//! A server of the store over TCP, and a script of what its clients do.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpucomm::exchange::fuzz::service(bytes));
