//! One write that four devices see: by the threads of one process, and by one process for each device.
//!
//! Without a GPU: `cargo run --example multicast --features emulator`. The emulator has no kernels, and takes a fill for what a kernel does with
//! `multimem.st`: on GPUs this example only says whether there is multicast, and makes no object.

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};

use gpucomm::cuda::multicast::{BindSource, Channel, Mapped, McPtr, Multicast, ObjectProperties};
use gpucomm::cuda::vmm::{self, Access, HandleTypes, PhysicalMemory};
use gpucomm::exchange::{Directory, Exchange, FdSocket};
use gpucomm::{Backend, Device, DeviceBuffer, Result, Stream, sys};

/// Bytes of each device; rounded up to whole steps.
const BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    // Before anything else: whatever it is called with, no object is made on GPUs.
    if gpucomm::backend() != Backend::Emulator {
        return only_asked();
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [place, rank, size] = args.as_slice() {
        return process(Path::new(place), rank.parse()?, size.parse()?);
    }
    let mut devices = Device::all()?;
    devices.truncate(4);
    if let Some(why) = Multicast::why_not(&devices)? {
        println!("there is no multicast: {why}");
        return Ok(());
    }
    threads(&devices)?;
    processes(devices.len())
}

/// Whether there is multicast, as attributes say.
fn only_asked() -> Result<(), Box<dyn Error>> {
    let devices = Device::all()?;
    match Multicast::why_not(&devices)? {
        Some(why) => println!("there is no multicast: {why}"),
        None => {
            println!("{} devices have multicast; it is left alone, as this program has no kernels", devices.len());
        }
    }
    Ok(())
}

/// One process has all devices, and a thread for each.
fn threads(devices: &[Device]) -> Result<(), Box<dyn Error>> {
    let complete = Multicast::single_process(devices, BYTES)?;
    let bytes = complete.properties().bytes();
    let memory = devices.iter().map(|device| PhysicalMemory::new(*device, bytes)).collect::<Result<Vec<_>>>()?;
    let mapped = complete.bind_all(&memory)?.map()?;

    // One write, by the first device.
    let stream = Stream::new(devices[0])?;
    write(&stream, &mut mapped.ptr(devices[0])?, 7)?;
    stream.synchronize()?;

    // Each device has it in its own memory.
    std::thread::scope(|scope| {
        let readers: Vec<_> = memory.into_iter().map(|memory| scope.spawn(|| read(memory))).collect();
        readers.into_iter().try_for_each(|reader| {
            assert_eq!(reader.join().expect("no thread panics")?, [7; 4]);
            Ok::<_, gpucomm::Error>(())
        })
    })?;
    mapped.close()?;
    println!("one write, seen by {} devices of one process", devices.len());
    Ok(())
}

/// Each process has a device; the first one starts this program again for the others.
fn processes(size: usize) -> Result<(), Box<dyn Error>> {
    let place = std::env::temp_dir().join(format!("gpucomm-multicast-{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    let mut others = (1..size).map(|rank| start(&place, rank, size)).collect::<Result<Vec<_>, _>>()?;
    let own = process(&place, 0, size);
    for child in &mut others {
        if own.is_err() {
            child.kill()?;
        }
        let status = child.wait()?;
        assert!(own.is_err() || status.success(), "process {} failed: {status}", child.id());
    }
    std::fs::remove_dir_all(&place)?;
    own?;
    println!("one write, seen by {size} processes");
    Ok(())
}

fn start(place: &Path, rank: usize, size: usize) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(place).args([rank.to_string(), size.to_string()]).spawn()
}

/// What every process does.
fn process(place: &Path, rank: usize, size: usize) -> Result<(), Box<dyn Error>> {
    let device = Device::new(rank)?;
    let exchange = Exchange::join(Directory::open(place.join("ranks"), rank, size)?)?;
    let socket = FdSocket::new(&exchange, place)?;

    // Rank 0 makes the object and sends it; all add their devices. Nobody goes on before all have.
    let properties = ObjectProperties::new(size, BYTES).rounded()?;
    let complete = Multicast::join(Channel::Fds(&socket), &properties, &[device])?;
    let shareable = vmm::MemoryProperties::new(device).with_handle_types(HandleTypes::FD);
    let memory = PhysicalMemory::new_with(&shareable, properties.bytes())?;
    let mapped: Multicast<Mapped> = complete.bind(BindSource::memory(&memory))?.map()?;

    // The last process writes, once.
    if rank == size - 1 {
        let stream = Stream::new(device)?;
        write(&stream, &mut mapped.ptr(device)?, 9)?;
        stream.synchronize()?;
    }
    exchange.barrier()?;
    assert_eq!(read(memory)?, [9; 4]);
    mapped.close()?;
    Ok(())
}

/// In place of a kernel.
fn write(stream: &Stream, all: &mut McPtr<'_, u8>, byte: u8) -> Result<()> {
    let code = stream.launch(all, |stream, all| {
        // SAFETY: one launch on this stream, which writes `all.len()` bytes.
        unsafe { sys::cudaMemsetAsync(all.as_raw(), byte.into(), all.len(), stream.as_raw()) }
    })?;
    assert_eq!(code, sys::cudaError::cudaSuccess);
    Ok(())
}

/// The last bytes of what a device has.
fn read(memory: PhysicalMemory) -> Result<Vec<u8>> {
    let device = memory.device();
    let own: DeviceBuffer<u8> = memory.map(&[Access::read_write(device)])?.into_buffer();
    own.slice(own.len() - 4..).to_vec(&Stream::new(device)?)
}
