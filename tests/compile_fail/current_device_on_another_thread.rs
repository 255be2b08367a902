//! The current device belongs to a thread, and so does the guard that restores it.
use gpucomm::{Device, Result};

fn send(device: Device) -> Result<()> {
    let guard = device.set_current()?;
    std::thread::spawn(move || drop(guard));
    Ok(())
}

fn main() {}
