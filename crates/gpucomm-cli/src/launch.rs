//! Whether a launcher has started this process as one of several.

use gpucomm::Launch;

use crate::failure::{Failure, Result};

/// What the launcher has started, if that is more than this process.
pub fn found() -> Result<Option<Launch>> {
    let launch = Launch::from_env().map_err(|error| Failure::usage(error.to_string()))?;
    Ok((launch.size() > 1).then_some(launch))
}

/// Fails where a process would be more ranks than one.
pub fn one_rank_each(launch: &Launch, is_one: bool) -> Result<()> {
    if is_one {
        return Ok(());
    }
    let (by, size) = (launch.launcher(), launch.size());
    Err(Failure::usage(format!(
        "{by} has started {size} processes, of which each is one rank: leave -t, -g and --procs out"
    )))
}
