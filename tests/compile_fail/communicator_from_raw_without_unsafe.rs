//! Nobody but the caller knows what a communicator of another library is up to, and whether its ranks agree.
use gpucomm::{Communicator, Result, sys};

fn take(raw: sys::ncclComm_t) -> Result<Communicator> {
    Communicator::from_raw(raw)
}

fn main() {}
