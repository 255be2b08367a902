//! Reads the JSON files of `diagnose`, which may come from anywhere.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::failure::{Failure, Result};

/// The largest file that is read. A dump of a rank has less than a mebibyte.
const MOST_BYTES: u64 = 256 << 20;

/// The content of a JSON file.
///
/// # Errors
/// Returns an error that names the file if it cannot be read, is not a regular file (opening a pipe
/// would wait for a writer), is longer than 256 MiB, or is not valid JSON.
pub fn read_json(path: &Path) -> Result<Value> {
    let failed = |what: String| Failure::run(format!("{}: {what}", path.display()));
    let io = |error: std::io::Error| failed(error.to_string());
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(failed("not a regular file; pass files that gpucomm has written".to_owned()));
    }
    let mut text = Vec::new();
    File::open(path).map_err(io)?.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(io)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(failed("longer than 256 MiB; pass files that gpucomm has written".to_owned()));
    }
    serde_json::from_slice(&text).map_err(|error| failed(format!("not valid JSON: {error}")))
}
