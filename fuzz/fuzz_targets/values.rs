//! What ranks leave for each other in a store.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpucomm::exchange::fuzz::values(bytes));
