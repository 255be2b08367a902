//! The default stream of a thread is not shared with others.
use gpucomm::Device;
use gpucomm::cuda::ThreadStream;

fn share(device: Device) -> gpucomm::Result<()> {
    let stream = ThreadStream::new(device)?;
    std::thread::scope(|scope| {
        scope.spawn(|| stream.device());
    });
    Ok(())
}

fn main() {}
