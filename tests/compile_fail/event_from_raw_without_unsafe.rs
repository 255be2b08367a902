//! Nobody but the caller knows how long an event of another library lives.
use gpucomm::{Device, Event, sys};

fn take(device: Device, raw: sys::cudaEvent_t) -> Event {
    Event::from_raw(device, raw)
}

fn main() {}
