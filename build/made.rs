//! Bindings that bindgen makes of the installed headers.

use std::path::PathBuf;

use super::bind::{self, Part};
use super::headers::Version;
use super::wanted::Wanted;

/// Writes bindings into `out`. What to tell cargo of the headers that were read.
pub fn bind(wanted: &Wanted<'_>) -> Result<Vec<String>, String> {
    let has = |key: &str| wanted.all.iter().any(|found| found.key == key);
    let cuda = if has("NCCL") { Part::Nccl } else { Part::Cuda };
    let mut lines = Vec::new();
    for (part, file) in [(cuda, "bindings.rs"), (Part::Nvshmem, "bindings_nvshmem.rs")] {
        if part == Part::Nvshmem && !has("NVSHMEM") {
            continue;
        }
        let Wanted { root, includes, instead, .. } = *wanted;
        let request = bind::Request { root: root.into(), includes: includes.to_vec(), part, instead };
        let (bindings, read) = bind::generate(&request)?;
        let path = wanted.out.join(file);
        std::fs::write(&path, bindings).map_err(|error| format!("error: {}: {error}", path.display()))?;
        lines.extend(read);
    }
    Ok(lines)
}

/// The version whose items are bound, where `installed` is there and the committed bindings are of `_committed`.
pub fn upto(installed: Version, _committed: Version) -> Version {
    installed
}

/// What the build script does when it has arguments, for the snapshot and for tests/snapshot.rs: `OUTPUT cuda|nccl|nvshmem INCLUDE...`.
pub fn write(arguments: &[PathBuf], instead: &'static str) -> Result<(), String> {
    let usage = || "error: OUTPUT cuda|nccl|nvshmem INCLUDE...".to_string();
    let [output, which, includes @ ..] = arguments else { return Err(usage()) };
    let part = match which.to_str() {
        Some("cuda") => Part::Cuda,
        Some("nccl") => Part::Nccl,
        Some("nvshmem") => Part::Nvshmem,
        _ => return Err(usage()),
    };
    let request = bind::Request { root: env!("CARGO_MANIFEST_DIR").into(), includes: includes.to_vec(), part, instead };
    let text = format!(
        "// Generated from {} over vendor/include by build/bind.rs. Do not edit: see CONTRIBUTING.md.\n\n{}",
        part.header(),
        bind::generate(&request)?.0
    );
    std::fs::write(output, text).map_err(|error| format!("error: {}: {error}", output.display()))
}
