//! `gpucomm perf OP`: times an operation and checks every element, as nccl-tests does.

mod buffers;
mod check;
mod data;
mod enqueue;
mod files;
mod kinds;
pub mod launched;
mod measure;
mod number;
#[cfg(feature = "nvshmem")]
pub mod nvshmem;
pub mod operation;
pub mod plot;
mod procs;
mod progress;
mod rank;
mod ranks;
mod report;
mod row;
mod table;
pub mod team;
mod threads;
mod timing;

use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{Device, Launch};
use serde_json::Value;

use self::files::Files;
use crate::failure::{Failure, Result};
use crate::options::{Buffers, PerfOptions, Way};

/// Runs what `options` ask for; true if every value was right.
pub fn run(options: PerfOptions) -> Result<bool> {
    if let Some(timeout) = options.timeout {
        gpucomm::set_default_timeout(timeout);
    }
    if let Some(rank) = options.child {
        return procs::child(&options, rank);
    }
    if let Some(launch) = &options.launch {
        return launched(&options, launch);
    }
    let devices = enough_devices(options.ranks())?;
    let files = Files::create(&options)?;
    crate::notice::give(devices);
    let (good, reports) = match options.procs {
        Some(_) => procs::parent(options.ranks(), &[])?,
        None => threads::run(&options)?,
    };
    files.write(&reports)?;
    Ok(good)
}

/// As one of the ranks that a launcher has started, of which rank 0 writes.
fn launched(options: &PerfOptions, launch: &Launch) -> Result<bool> {
    let files = if launch.rank() == 0 { Some(Files::create(options)?) } else { None };
    crate::notice::give(enough_devices(1)?);
    let (good, reports) = launched::run(launch, |device, peers| rank::run(options, device, peers))?;
    files.map_or(Ok(()), |files| files.write(&reports))?;
    Ok(good)
}

/// How many devices there are; an error if they are too few.
fn enough_devices(ranks: usize) -> Result<usize> {
    let devices = Device::count()?;
    if devices < ranks {
        // Says why there is none.
        Device::all()?;
        let here = if devices == 1 { "is 1 GPU".to_owned() } else { format!("are {devices} GPUs") };
        return Err(Failure::usage(format!("{ranks} ranks need {ranks} GPUs, and here {here}")));
    }
    Ok(devices)
}

/// How communicators are made: as nccl-tests makes them, so that the two can be compared.
fn init_options(way: Way) -> InitOptions {
    let config = Config::new();
    #[cfg(nccl_ge_2_28)]
    let config = config.with_nvlink_centric_sched(true);
    if way.buffers != Buffers::Windows {
        return InitOptions::new().with_config(config);
    }
    // SAFETY: one operation runs in windows, so no collective follows messages in them; and after a failure no memory is used again, as
    // the process ends.
    let config = unsafe { config.with_force_windows() };
    InitOptions::new().with_config(config)
}

/// What runs underneath, in words.
fn libraries() -> Result<String> {
    let nccl = gpucomm::nccl::version()?;
    let cuda = gpucomm::cuda::runtime_version()?;
    let backend = match gpucomm::backend() {
        gpucomm::Backend::Emulator => ", CPU emulator",
        _ => "",
    };
    Ok(format!("NCCL {}.{}.{}, CUDA {}.{}{backend}", nccl.major, nccl.minor, nccl.patch, cuda / 1000, cuda % 1000 / 10))
}

/// What a run leaves: whether all was right, and a report for each table.
type Outcome = (bool, Vec<Value>);
