//! What is bound together: the text of the bindings, and the headers that it was made from.

use std::path::{Path, PathBuf};

use crate::headers::DEFINES;
use crate::items::{self, Item};
use crate::proof::Headers;
use crate::skip;

/// Bindings from one header that includes all others.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub text: &'static str,
    /// What is made of vendor/include.
    pub committed: &'static str,
    /// Below the root of the package.
    wrapper: &'static str,
    /// The C that is compiled with the headers.
    pub shim: &'static str,
    /// Fewer facts than these would mean that the proof looks past something.
    pub facts: usize,
}

/// CUDA and NCCL.
pub const FIRST: Part = Part {
    committed: concat!(
        include_str!("../../crates/gpucomm-abi/src/cuda_nccl.rs"),
        include_str!("../../crates/gpucomm-abi/src/cuda_nccl_functions.rs")
    ),
    #[cfg(any(gpucomm_emulator, gpucomm_snapshot))]
    text: concat!(
        include_str!("../../crates/gpucomm-abi/src/cuda_nccl.rs"),
        include_str!("../../crates/gpucomm-abi/src/cuda_nccl_functions.rs")
    ),
    #[cfg(not(any(gpucomm_emulator, gpucomm_snapshot)))]
    text: include_str!(concat!(env!("OUT_DIR"), "/bindings.rs")),
    wrapper: "wrapper.h",
    shim: "vendor/shim/gpucomm_shim.c",
    facts: 200,
};

#[cfg(feature = "nvshmem")]
const NVSHMEM: Part = Part {
    committed: concat!(
        include_str!("../../crates/gpucomm-abi/src/nvshmem.rs"),
        include_str!("../../crates/gpucomm-abi/src/nvshmem_functions.rs")
    ),
    #[cfg(any(gpucomm_emulator, gpucomm_snapshot))]
    text: concat!(
        include_str!("../../crates/gpucomm-abi/src/nvshmem.rs"),
        include_str!("../../crates/gpucomm-abi/src/nvshmem_functions.rs")
    ),
    #[cfg(not(any(gpucomm_emulator, gpucomm_snapshot)))]
    text: include_str!(concat!(env!("OUT_DIR"), "/bindings_nvshmem.rs")),
    wrapper: "vendor/shim/gpucomm_nvshmem.h",
    shim: "vendor/shim/gpucomm_nvshmem.c",
    facts: 150,
};

pub const ALL: &[Part] = &[
    FIRST,
    #[cfg(feature = "nvshmem")]
    NVSHMEM,
];

impl Part {
    pub fn items(&self) -> Vec<Item> {
        items::read(self.text).expect("the bindings are understood")
    }

    /// The headers that the bindings were made from; `None` where they are not on this machine.
    pub fn headers(&self) -> Option<Headers> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut includes = vec![root.join("vendor/shim")];
        if cfg!(any(gpucomm_emulator, gpucomm_snapshot)) {
            includes.push(root.join("vendor/include"));
        } else {
            // As build.rs has it: the headers of NCCL and NVSHMEM by themselves, then all that lie beside those of CUDA.
            let cuda = PathBuf::from(option_env!("GPUCOMM_CUDA_INCLUDE_DIR").unwrap_or_default());
            includes.push(cuda.clone());
            includes.extend(cuda.parent().map(|runtime| runtime.with_file_name("cuda_nvcc").join("include")));
            let staged = Path::new(env!("OUT_DIR")).join("include");
            let each = std::fs::read_dir(staged).into_iter().flatten().flatten().map(|entry| entry.path());
            includes.splice(1..1, each.filter(|path| path.is_dir()).collect::<Vec<_>>());
        }
        let wrapper = root.join(self.wrapper);
        if let Some(missing) = [&wrapper, &includes[1]].into_iter().find(|path| !path.exists()) {
            skip(&format!("{} is not on this machine", missing.display()));
            return None;
        }
        let mut defines: Vec<String> = DEFINES.iter().map(|name| format!("{name}=1")).collect();
        if self.text.contains("fn ncclGetVersion") {
            defines.push("GPUCOMM_NCCL=1".into());
        }
        Some(Headers { wrapper, includes, defines })
    }
}
