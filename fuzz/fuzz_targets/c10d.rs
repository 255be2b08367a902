//! What is asked of a TCPStore of PyTorch, and what one answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpucomm::exchange::fuzz::c10d(bytes));
