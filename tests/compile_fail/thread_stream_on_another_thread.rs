//! The default stream of a thread is another one on another thread.
use gpucomm::cuda::ThreadStream;

fn send(stream: ThreadStream) {
    std::thread::spawn(move || stream.enter(|_| ()));
}

fn main() {}
