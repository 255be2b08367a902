//! A descriptor may be one of anything: who imports it vouches for what it is.
use std::os::fd::OwnedFd;

use gpucomm::cuda::multicast::{Multicast, Properties};

fn import(fd: &OwnedFd, properties: &Properties) {
    let _theirs = Multicast::import_fd(fd, properties);
}

fn main() {}
