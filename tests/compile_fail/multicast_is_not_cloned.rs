//! An object is released once.
use gpucomm::cuda::multicast::{Complete, Multicast};

fn twice(complete: &Multicast<Complete>) -> Multicast<Complete> {
    complete.clone()
}

fn main() {}
