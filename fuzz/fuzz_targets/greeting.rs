//! How a connection of the store over TCP begins.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpucomm::exchange::fuzz::greeting(bytes));
