//! Versions, as the installed headers state them.

use std::fmt;

/// Major, minor and patch; the patch of the CUDA runtime is always 0 and is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)?;
        if self.2 == 0 { Ok(()) } else { write!(f, ".{}", self.2) }
    }
}

/// The number that `#define NAME number` gives to `name`; comments after it are ignored.
pub fn define(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define")?;
        let mut words = rest.split_whitespace();
        if words.next()? != name {
            return None;
        }
        words.next()?.parse().ok()
    })
}

/// The version in the text of `nccl.h`.
pub fn nccl(text: &str) -> Option<Version> {
    Some(Version(define(text, "NCCL_MAJOR")?, define(text, "NCCL_MINOR")?, define(text, "NCCL_PATCH")?))
}

/// The version in the text of `non_abi/nvshmem_version.h`.
pub fn nvshmem(text: &str) -> Option<Version> {
    let part = |name| define(text, &format!("NVSHMEM_VENDOR_{name}_VERSION"));
    Some(Version(part("MAJOR")?, part("MINOR")?, part("PATCH")?))
}

/// The version in the text of `cuda_runtime_api.h`.
pub fn cudart(text: &str) -> Option<Version> {
    let code = define(text, "CUDART_VERSION")?;
    Some(Version(code / 1000, code % 1000 / 10, 0))
}

/// The version that a file name such as `libnccl.so.2.28.9` carries after `.so.`: as many parts as there are.
pub fn of_file_name(name: &str) -> Vec<u32> {
    let Some((_, tail)) = name.split_once(".so.") else { return Vec::new() };
    tail.split('.').map_while(|part| part.parse().ok()).collect()
}
