//! `gpucomm perf OP --nvshmem`: times an operation of NVSHMEM and checks every element, as perftest does. Each PE is a process.

pub mod kind;
mod measure;
mod member;
mod pair;
mod row;
mod together;

use gpucomm::Device;
use serde_json::Value;

use super::{enough_devices, files, launched, procs};
use crate::failure::Result;
use crate::options::nvshmem::NvshmemOptions;

/// Runs what `options` ask for; true if every value was right.
pub fn run(options: &NvshmemOptions) -> Result<bool> {
    if let Some(timeout) = options.timeout {
        gpucomm::set_default_timeout(timeout);
    }
    if let Some((pe, n_pes)) = options.child {
        return procs::serve(pe, |child| measure::run(options, child, Device::new(pe % Device::count()?)?, pe, n_pes));
    }
    if let Some(launch) = &options.launch {
        let create = |path| files::Output::create(path);
        let file = options.json.as_ref().filter(|_| launch.rank() == 0).map(create).transpose()?;
        crate::notice::give(enough_devices(1)?);
        let run = |device, peers: &launched::Member| measure::run(options, peers, device, launch.rank(), launch.size());
        let (good, reports) = launched::run(launch, run)?;
        return write(file, &reports).map(|()| good);
    }
    let devices = enough_devices(1)?;
    let file = options.json.as_ref().map(files::Output::create).transpose()?;
    crate::notice::give(devices);
    let n_pes = options.pes(devices);
    let (good, reports) = procs::parent(n_pes, &["--of".to_owned(), n_pes.to_string()])?;
    write(file, &reports)?;
    Ok(good)
}

fn write(file: Option<files::Output>, reports: &[Value]) -> Result<()> {
    match (file, reports) {
        (Some(file), [report]) => file.write(&format!("{report:#}\n")),
        _ => Ok(()),
    }
}
