//! Known bugs of the libraries that are running, on the devices that are there.

use gpucomm::Device;
use gpucomm::known_bugs::{KnownBug, Library, TABLE};
use gpucomm::version::Version;

/// Those that concern this machine.
pub fn here() -> Vec<&'static KnownBug> {
    let capabilities: Vec<_> = Device::all()
        .into_iter()
        .flatten()
        .filter_map(|device| device.compute_capability().ok())
        .map(|(major, minor)| (major as u32, minor as u32))
        .collect();
    TABLE.iter().filter(|bug| concerns(bug, running, &capabilities)).collect()
}

/// The version of a library that is running.
fn running(library: Library) -> Option<Version> {
    match library {
        Library::Nccl => gpucomm::nccl::version().ok(),
        #[cfg(feature = "nvshmem")]
        Library::Nvshmem => gpucomm::version::running_nvshmem().ok(),
        _ => None,
    }
}

fn concerns(bug: &KnownBug, running: impl Fn(Library) -> Option<Version>, capabilities: &[(u32, u32)]) -> bool {
    running(bug.library).is_some_and(|version| bug.concerns(version))
        && bug.compute_capability.is_none_or(|only| capabilities.contains(&only))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(nccl: (u32, u32, u32), capability: (u32, u32)) -> Vec<&'static str> {
        let running = |library| (library == Library::Nccl).then_some(Version::new(nccl.0, nccl.1, nccl.2));
        TABLE.iter().filter(|bug| concerns(bug, running, &[capability])).map(|bug| bug.name).collect()
    }

    #[test]
    fn by_version_and_device() {
        assert!(named((2, 28, 9), (9, 0)).contains(&"misaligned-windows"));
        assert!(!named((2, 30, 7), (9, 0)).contains(&"misaligned-windows"));
        assert!(named((2, 26, 2), (12, 0)).contains(&"sm-120"));
        assert!(!named((2, 26, 2), (9, 0)).contains(&"sm-120"));
        // No library, no bugs.
        assert!(!named((2, 28, 9), (9, 0)).contains(&"deep-ep"));
    }
}
