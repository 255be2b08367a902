//! What is asked of a server of the store over TCP, and what it answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpucomm::exchange::fuzz::request(bytes));
