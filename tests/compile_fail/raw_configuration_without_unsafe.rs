//! What NCCL makes of numbers that the crate does not know is for the caller to answer for.
use gpucomm::nccl::Config;

fn change() -> Config {
    Config::new().raw(|config| config.maxCTAs = 1)
}

fn main() {}
