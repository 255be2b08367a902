//! The ranks that a launcher has started.

use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::Result;
use crate::launch;
use crate::perf::launched;
use crate::perf::team::{Peers, Team};

/// How long ranks wait for each other: each can say by itself what is installed.
const PATIENCE: Duration = Duration::from_secs(30);

/// This rank, and a description of each where there are several.
pub fn describe() -> Result<Option<(usize, Value)>> {
    let Some(launch) = launch::found()? else { return Ok(None) };
    let launch = launch.with_timeout(PATIENCE.min(gpucomm::default_timeout()));
    let member = launched::Member::join(&launch)?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // A rank without a device is still one.
    let device = launch.device().and_then(|device| Ok(format!("{} [{}]", device.ordinal(), device.pci_bus_id()?)));
    let device = device.unwrap_or_else(|error| format!("none: {error}"));
    let mine = json!({
        "rank": launch.rank(),
        "host": host.trim(),
        "pid": std::process::id(),
        "local_rank": launch.local_rank(),
        "device": device,
        "launcher": launch.launcher().to_string(),
    });
    Ok(Some((member.member(), member.exchange(mine)?.into())))
}
