//! A group cannot be kept beyond its closure.
use gpucomm::nccl::Group;
use gpucomm::{Result, group};

fn escape<'a>() -> Result<&'a mut Group<'a>> {
    group(|g| Ok(g))
}

fn main() {}
