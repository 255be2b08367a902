//! Devices, streams, events and memory.
