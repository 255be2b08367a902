//! An object is handed to others before it is complete.
use gpucomm::cuda::multicast::{Bound, Multicast};

fn export(bound: &Multicast<Bound>) {
    let _fd = bound.export_fd();
}

fn main() {}
