//! Faults that the emulator injects: a rank that dies, hangs or is late, an asynchronous error, out of memory.
#![cfg(feature = "emulator")]
