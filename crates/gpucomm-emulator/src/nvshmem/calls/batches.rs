//! Regions in which transfers are sent in batches, of which a process has one at a time. Here each transfer is on its way by itself, and comes when it will.

use std::sync::Mutex;

use crate::lock::lock;
use crate::nvshmem::basics::entry::{Outcome, refused};
use crate::nvshmem::state::life;
use crate::sys::*;

/// The one that was started, and how many there were.
static REGION: Mutex<(Option<u64>, u64)> = Mutex::new((None, 0));

/// `nvshmemx_region_start`.
pub(crate) fn start(hints: u32, has_place: bool) -> Outcome<nvshmemx_region_handle_t> {
    life::pe()?;
    let invalid = |text: String| refused(NVSHMEMX_ERROR_INVALID_VALUE, text);
    if !has_place {
        return Err(invalid("the place for the handle is null".to_owned()));
    }
    if hints & !NVSHMEMX_REGION_HINT_BATCH_RMA != 0 {
        return Err(invalid(format!("hints {hints:#x} are not known")));
    }
    let mut region = lock(&REGION);
    if let (Some(handle), _) = *region {
        return Err(invalid(format!("region {handle} has started and not stopped: there is one at a time")));
    }
    let handle = region.1 + 1;
    *region = (Some(handle), handle);
    Ok(handle)
}

/// `nvshmemx_region_stop`.
pub(crate) fn stop(handle: nvshmemx_region_handle_t) -> Outcome {
    life::pe()?;
    let mut region = lock(&REGION);
    if region.0 != Some(handle) {
        return Err(refused(NVSHMEMX_ERROR_INVALID_VALUE, format!("region {handle} is not the one that has started")));
    }
    region.0 = None;
    Ok(())
}
