//! NCCL's groups belong to a thread: the recorder cannot be sent to another one.
use gpucomm::{Result, group};

fn send() -> Result<()> {
    group(|g| {
        std::thread::scope(|scope| {
            scope.spawn(move || drop(g));
        });
        Ok(())
    })
}

fn main() {}
