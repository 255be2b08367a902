//! What was measured and checked: one row for each size, and who did it.

use serde_json::{Value, json};

use super::check::Found;
use crate::failure::{Failure, Result};
use crate::options::{PerfOptions, Way};

/// What is the same for all rows of a table.
#[derive(Debug)]
pub struct Setup<'a> {
    pub options: &'a PerfOptions,
    pub way: Way,
    /// Back end and versions, in words.
    pub libraries: String,
    pub ranks: Vec<RankInfo>,
}

/// Who a rank is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankInfo {
    pub rank: usize,
    pub pid: u32,
    pub host: String,
    pub device: i32,
    pub pci: String,
    pub name: String,
}

impl RankInfo {
    pub fn new(rank: usize, device: gpucomm::Device) -> Result<Self> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().split('.').next().filter(|name| !name.is_empty()).unwrap_or("localhost").to_owned();
        // Without the function, which is always 0 for a GPU.
        let pci = device.pci_bus_id()?;
        let pci = pci.split('.').next().unwrap_or(&pci).to_lowercase();
        Ok(Self { rank, pid: std::process::id(), host, device: device.ordinal(), pci, name: device.name()? })
    }

    pub fn json(&self) -> Value {
        let Self { rank, pid, host, device, pci, name } = self;
        json!({ "rank": rank, "pid": pid, "host": host, "device": device, "pci": pci, "name": name })
    }

    pub fn from_json(value: &Value) -> Result<Self> {
        let number = |key: &str| value[key].as_i64();
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let read = || {
            Some(Self {
                rank: number("rank")? as usize,
                pid: number("pid")? as u32,
                host: text("host")?,
                device: number("device")? as i32,
                pci: text("pci")?,
                name: text("name")?,
            })
        };
        read().ok_or_else(|| Failure::run(format!("a rank described itself as {value}")))
    }
}

/// A size, in and out of place.
#[derive(Debug, Clone)]
pub struct Row {
    pub bytes: usize,
    pub count: usize,
    pub kind: &'static str,
    pub redop: &'static str,
    pub root: i64,
    pub out_of_place: Timing,
    pub in_place: Option<Timing>,
}

/// What was measured and found for one size in one place.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub seconds: f64,
    pub algbw: f64,
    pub busbw: f64,
    /// Nothing where nothing was checked.
    pub found: Option<Found>,
}
