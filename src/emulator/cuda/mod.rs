//! Part of the emulator.
pub mod exports;
