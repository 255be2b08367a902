//! Communicators that give back memory for a while.
//!
//! As in NCCL 2.30.7: all ranks meet once before they give it back, and twice when they have it again. Nobody looks what the others asked
//! for, nor whether graphs have what is given back.

use std::sync::{Arc, LazyLock};

use super::group::{self, Job};
use crate::cuda::core::{capture, device};
use crate::nccl::basics::error::{Failure, Outcome, cuda, heed_captures};
use crate::nccl::basics::kind::Kind;
use crate::nccl::state::comm::Comm;
use crate::nccl::wait::host::{self, Members};
use crate::sys::{NCCL_SUSPEND_MEM, ncclResult_t};

/// Refuses what NCCL refuses where nobody counts memory: `NCCL_DISABLE_MEM_MANAGER`, which it reads once.
fn needs_manager(what: &str) -> Outcome {
    static DISABLED: LazyLock<bool> = LazyLock::new(|| {
        let number = |value: String| value.trim().parse::<i64>().ok();
        std::env::var("NCCL_DISABLE_MEM_MANAGER").ok().and_then(number).is_some_and(|number| number != 0)
    });
    if *DISABLED {
        Err(Failure::usage(format!("{what} is not supported: the memory manager is disabled")))
    } else {
        Ok(())
    }
}

fn check(comm: &Comm, what: &str) -> Outcome<u32> {
    needs_manager(what)?;
    if comm.resources.memory.is_shared() {
        return Err(Failure::usage(format!("{what} is not supported: rank {} shares its resources", comm.rank)));
    }
    comm.ensure_open()
}

/// `ncclCommSuspend`.
pub(crate) fn suspend(comm: &Arc<Comm>, flags: i32) -> Outcome<ncclResult_t> {
    comm.ensure_settled()?;
    group::call(|| {
        if flags.cast_unsigned() & NCCL_SUSPEND_MEM == 0 {
            // NCCL looks at no other flag.
            return Ok(());
        }
        let epoch = check(comm, "a suspend")?;
        let job = comm.clone();
        let run = Box::new(move || {
            if job.resources.memory.is_suspended() {
                return Err(Failure::usage(format!("rank {} is suspended already", job.rank)));
            }
            heed_captures("ncclCommSuspend")?;
            let failed = |error| cuda("cudaDeviceSynchronize", error);
            capture::leave(job.device).map_err(failed)?;
            device::device(job.device).map_err(failed)?.synchronize();
            host::exchange(&job, &Members::all(&job, epoch), Kind::Suspend, &[])?;
            job.resources.memory.suspend();
            Ok(())
        });
        group::add_window(Job { comm: comm.clone(), name: "ncclCommSuspend", run })
    })
}

/// `ncclCommResume`.
pub(crate) fn resume(comm: &Arc<Comm>) -> Outcome<ncclResult_t> {
    comm.ensure_settled()?;
    group::call(|| {
        let epoch = check(comm, "a resume")?;
        let job = comm.clone();
        let run = Box::new(move || {
            let memory = &job.resources.memory;
            if !memory.is_suspended() {
                return Err(Failure::usage(format!("rank {} is not suspended", job.rank)));
            }
            heed_captures("ncclCommResume")?;
            memory.resume()?;
            let all = Members::all(&job, epoch);
            host::exchange(&job, &all, Kind::Resume, &[])?;
            memory.wake();
            host::exchange(&job, &all, Kind::Resume, &[]).map(drop)
        });
        group::add_window(Job { comm: comm.clone(), name: "ncclCommResume", run })
    })
}

/// `ncclCommMemStats`.
pub(crate) fn statistic(comm: &Comm, which: u32) -> Outcome<u64> {
    comm.ensure_settled()?;
    needs_manager("ncclCommMemStats")?;
    comm.resources.memory.statistic(which)
}
