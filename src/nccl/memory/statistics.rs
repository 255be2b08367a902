//! What NCCL counts of the memory of a communicator.

use crate::error::{Error, Result};
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::check::check;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::wait::begin_call::busy;
use crate::shared_deadline::SharedDeadline;
use crate::sys;
use crate::sys::ncclCommMemStat_t;
use crate::version::{self, Version};

/// The first version that counts.
pub(crate) const FIRST: Version = Version::new(2, 29, 7);

/// `ncclStatGpuMemSuspend`, `ncclStatGpuMemSuspended`, `ncclStatGpuMemPersist` and `ncclStatGpuMemTotal`.
const ALL: [ncclCommMemStat_t; 4] = [
    ncclCommMemStat_t::ncclStatGpuMemSuspend,
    ncclCommMemStat_t::ncclStatGpuMemSuspended,
    ncclCommMemStat_t::ncclStatGpuMemPersist,
    ncclCommMemStat_t::ncclStatGpuMemTotal,
];

/// Wraps `ncclCommMemStats`, once for each statistic, of a communicator that is active or suspended.
pub(crate) fn of(operation: &'static str, inner: &Inner) -> Result<[u64; 4]> {
    const FUNCTION: &str = "ncclCommMemStats";
    outside_of_host_functions(operation)?;
    version::needs(operation, FIRST)?;
    let deadline = SharedDeadline::within(inner.timeout());
    let is_there = || inner.is_active() || inner.is_suspended();
    let locked = deadline.until(|| match inner.try_lock().filter(|_| is_there()) {
        None if !is_there() => Err(inner.dead(operation)),
        locked => Ok(locked),
    })?;
    let _guard = locked.ok_or_else(|| busy(inner, operation, &deadline))?;
    let asked = inner.inside(operation, || {
        let mut values = [0; 4];
        for (value, which) in values.iter_mut().zip(ALL) {
            // SAFETY: a live communicator during a visit, and a place for the answer.
            let code = unsafe { sys::ncclCommMemStats(inner.handle().raw(), which, value) };
            check(FUNCTION, code)?;
        }
        Ok(values)
    })?;
    asked.map_err(|error| match error {
        Error::Nccl { code, .. } if code.as_raw() == sys::ncclResult_t::ncclInvalidUsage.0 as i32 => {
            let needs = "the memory manager of NCCL, which NCCL_DISABLE_MEM_MANAGER turns off".to_owned();
            Error::Unsupported { operation, needs }
        }
        error => error,
    })
}
