//! The installed headers: the versions that they state, and how they are to be read.

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

/// Macros to define before the headers are read, for bindgen and for the C compiler. NCCL before 2.24 hides ncclBfloat16
/// behind the first. The others are the guards of headers that nccl.h includes and its C interface does not use: without
/// them no nv/target is needed, which many installations lack.
pub const DEFINES: &[&str] = &["__CUDA_BF16_TYPES_EXIST__", "__CUDA_FP16_H__", "__CUDA_BF16_H__", "__CUDA_FP8_H__"];

/// For the user, where a compiler says `complaint` to the headers.
pub fn unbound(complaint: &str) -> String {
    // Wheels of the runtime come without headers that they need.
    let missing = complaint.contains("'crt/") || complaint.contains(" crt/");
    let fix = "\n  fix: apt install cuda-crt-13-0 | pip install nvidia-cuda-crt (of CUDA 12: nvidia-cuda-nvcc-cu12)";
    format!("error: the headers cannot be bound: {complaint}{}", if missing { fix } else { "" })
}

/// The number that `#define NAME number` gives to `name`, also one with an L behind it; comments after it are ignored.
pub fn define(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define")?;
        let mut words = rest.split_whitespace();
        if words.next()? != name {
            return None;
        }
        words.next()?.trim_end_matches('L').parse().ok()
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

/// The version in the text of `pmix_version.h`, whose numbers are longs.
pub fn pmix(text: &str) -> Option<Version> {
    let part = |name| define(text, &format!("PMIX_VERSION_{name}"));
    Some(Version(part("MAJOR")?, part("MINOR")?, part("RELEASE")?))
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
