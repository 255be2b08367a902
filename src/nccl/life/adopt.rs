//! Communicators that another library has started.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::init;
use super::watchdog;
use crate::cuda::Device;
use crate::default_timeout;
use crate::error::{Error, Result};
use crate::nccl::raw::check::check;
use crate::nccl::raw::handle::Handle;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::environment;
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::state::helper::Helper;
use crate::nccl::state::inner::{HOUSEHOLDS, Inner, Parts};
use crate::{sys, version};

/// A rank that was started elsewhere, and what NCCL says of it.
struct Rank {
    raw: sys::ncclComm_t,
    rank: usize,
    size: usize,
    device: Device,
}

impl Rank {
    /// # Safety
    /// `raw` is null, or a communicator that nobody else uses.
    unsafe fn of(operation: &'static str, raw: sys::ncclComm_t) -> Result<Self> {
        if raw.is_null() {
            return Err(Error::argument(operation, "raw", "a communicator", "null"));
        }
        let (mut rank, mut size, mut device): (c_int, c_int, c_int) = (0, 0, 0);
        // SAFETY: a live communicator, as the caller promises, and places for the answers.
        unsafe {
            check("ncclCommUserRank", sys::ncclCommUserRank(raw, &raw mut rank))?;
            check("ncclCommCount", sys::ncclCommCount(raw, &raw mut size))?;
            check("ncclCommCuDevice", sys::ncclCommCuDevice(raw, &raw mut device))?;
        }
        let number = |what, number: c_int| {
            usize::try_from(number)
                .map_err(|_| Error::argument(operation, what, "a number that is not negative", number))
        };
        Ok(Self {
            raw,
            rank: number("rank", rank)?,
            size: number("size", size)?,
            device: Device::new(number("device", device)?)?,
        })
    }
}

/// Takes over the ranks of one communicator that this process has, which were started elsewhere.
///
/// # Safety
/// As [`Communicator::from_raw_all`](crate::nccl::Communicator::from_raw_all).
pub(crate) unsafe fn all(operation: &'static str, raw: &[sys::ncclComm_t]) -> Result<Vec<Arc<Inner>>> {
    outside_of_host_functions(operation)?;
    version::check_nccl()?;
    environment::check(operation)?;
    if environment::shares(false) {
        // What they share, and with whom, was decided before they came.
        let expected = "0, or that it is not set, where communicators of others are taken over";
        return Err(Error::argument(operation, "NCCL_COMM_SPLIT_SHARE_RESOURCES", expected, 1));
    }
    // SAFETY: as the caller promises.
    let ranks = raw.iter().map(|&raw| unsafe { Rank::of(operation, raw) }).collect::<Result<Vec<_>>>()?;
    for (at, one) in ranks.iter().enumerate() {
        if let Some(other) = ranks[..at].iter().find(|other| other.rank == one.rank || other.size != one.size) {
            let of = |one: &Rank| format!("rank {} of {}", one.rank, one.size);
            return Err(Error::argument(operation, "raw", format_args!("another rank beside {}", of(other)), of(one)));
        }
    }
    watchdog::start(operation)?;
    let helpers = ranks.iter().map(|one| Helper::start(operation, one.device)).collect::<Result<Vec<_>>>()?;
    let household = HOUSEHOLDS.join(&fresh_id(), ranks.len(), false);
    let parts = ranks.into_iter().zip(helpers).map(|(Rank { raw, rank, size, device }, helper)| Parts {
        handle: Handle(raw),
        rank,
        size,
        device,
        family: None,
        household: Arc::clone(&household),
        helper,
        timeout: default_timeout(),
        force_windows: false,
        lock: None,
    });
    let members: Vec<_> = parts.map(Inner::new).collect();
    init::welcome(operation, &members, &household)?;
    Ok(members)
}

/// What no communicator was started with: by the one that these were nobody says.
fn fresh_id() -> UniqueId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0; UniqueId::BYTES];
    bytes[..16].copy_from_slice(b"gpucomm: adopted");
    bytes[16..24].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_ne_bytes());
    UniqueId::from_bytes(bytes)
}
