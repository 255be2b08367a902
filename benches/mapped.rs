//! How fast devices copy within mapped memory, beside memory of `cudaMalloc` and of pools, and read memory of another device.
//!
//! `cargo bench --bench mapped`, on GPUs; with `--features emulator` the numbers mean nothing. The kinds of memory take turns, so that
//! what else goes on meets all of them; the tables show medians over the rounds, and the ratio to `cudaMalloc`.

use std::ffi::c_void;

use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::{Backend, Device, DeviceBuffer, Event, Result, Stream, sys};

const ROUNDS: usize = 21;
const REPEATS: usize = 10;

/// Memory of `cudaMalloc`; it stays for the life of the process.
fn of_malloc(device: Device, bytes: usize) -> Result<DeviceBuffer<u8>> {
    let _current = device.set_current()?;
    let mut ptr: *mut c_void = std::ptr::null_mut();
    // SAFETY: writes an address to the place given.
    let code = unsafe { sys::cudaMalloc(&raw mut ptr, bytes) };
    assert_eq!(code, sys::cudaError::cudaSuccess, "cudaMalloc");
    // SAFETY: so many bytes, which nobody else knows and nobody frees.
    unsafe { DeviceBuffer::from_raw_parts(device, ptr, bytes, ()) }
}

fn mapped(home: Device, bytes: usize, access: &[Access]) -> Result<DeviceBuffer<u8>> {
    PhysicalMemory::new(home, bytes)?.map(access)?.into_buffer_of(bytes)
}

/// GB/s of one copy after the other.
fn copies(stream: &Stream, to: &mut DeviceBuffer<u8>, from: &DeviceBuffer<u8>) -> Result<f64> {
    to.copy_from(stream, from)?;
    let (begin, end) = (Event::timing(stream.device())?, Event::timing(stream.device())?);
    begin.record(stream)?;
    (0..REPEATS).try_for_each(|_| to.copy_from(stream, from))?;
    end.record(stream)?;
    end.synchronize()?;
    Ok((REPEATS * to.len()) as f64 / end.elapsed_since(&begin)?.as_secs_f64() / 1e9)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// A line of a table: the medians of what takes turns, as they are and against the first.
fn line(bytes: usize, stream: &Stream, pairs: &mut [(DeviceBuffer<u8>, DeviceBuffer<u8>)]) -> Result<()> {
    let mut all = vec![Vec::new(); pairs.len()];
    for round in 0..ROUNDS {
        for at in 0..pairs.len() {
            let at = (at + round) % pairs.len();
            let (to, from) = &mut pairs[at];
            all[at].push(copies(stream, to, from)?);
        }
    }
    let all: Vec<_> = all.into_iter().map(median).collect();
    print!("{bytes:>12}");
    all.iter().for_each(|speed| print!(" {speed:>11.1}"));
    all[1..].iter().for_each(|speed| print!(" {:>9.3}", speed / all[0]));
    println!();
    Ok(())
}

fn main() -> Result<()> {
    let devices = Device::all()?;
    let (device, stream) = (devices[0], Stream::new(devices[0])?);
    let own = [Access::read_write(device)];
    let sizes = if gpucomm::backend() == Backend::Nvidia { 10..=29 } else { 10..=20 };
    println!("copies within one device, GB/s, median of {ROUNDS} rounds of {REPEATS}");
    println!("{:>12} {:>11} {:>11} {:>11} {:>9} {:>9}", "bytes", "cudaMalloc", "pool", "mapped", "pool/", "mapped/");
    for bytes in sizes.clone().step_by(3).map(|power| 1usize << power) {
        let malloc = (of_malloc(device, bytes)?, of_malloc(device, bytes)?);
        let pool = (DeviceBuffer::zeroed(&stream, bytes)?, DeviceBuffer::zeroed(&stream, bytes)?);
        let mapped = (mapped(device, bytes, &own)?, mapped(device, bytes, &own)?);
        line(bytes, &stream, &mut [malloc, pool, mapped])?;
    }
    let [_, other, ..] = devices[..] else { return Ok(()) };
    device.enable_peer_access(other)?;
    other.enable_peer_access(device)?;
    let both = [Access::read_write(device), Access::read_write(other)];
    println!("copies from another device, GB/s");
    println!("{:>12} {:>11} {:>11} {:>9}", "bytes", "peer copy", "mapped", "mapped/");
    for bytes in sizes.step_by(3).map(|power| 1usize << power) {
        let peer = (of_malloc(device, bytes)?, of_malloc(other, bytes)?);
        let seen = (of_malloc(device, bytes)?, mapped(other, bytes, &both)?);
        line(bytes, &stream, &mut [peer, seen])?;
    }
    Ok(())
}
