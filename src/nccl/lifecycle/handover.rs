//! Takes communicators over from other libraries, and gives them to other libraries.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use super::abort::abort_closing;
use super::close::{is_fit, wait_for_work};
use super::release::let_go;
use super::{start, watchdog};
use crate::cuda::{Device, Worker};
use crate::deadline::Deadline;
use crate::default_timeout;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::nccl::rank::helper::Helper;
use crate::nccl::rank::inner::{Inner, LOCAL_RANKS, Parts};
use crate::nccl::raw::check::check;
use crate::nccl::raw::handle::Handle;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::environment;
use crate::nccl::setup::unique_id::UniqueId;
use crate::{sys, version};

/// A rank that another library has started, and what NCCL says about it.
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

/// Takes over the ranks of one communicator that another library has started in this process.
///
/// # Safety
/// As [`Communicator::from_raw_all`](crate::nccl::Communicator::from_raw_all).
pub(crate) unsafe fn take_over(operation: &'static str, raw: &[sys::ncclComm_t]) -> Result<Vec<Arc<Inner>>> {
    outside_of_host_functions(operation)?;
    version::check_nccl()?;
    environment::check(operation)?;
    if environment::shares(false) {
        // Nobody here knows which communicators they share resources with.
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
    let local_ranks = LOCAL_RANKS.join(&fresh_id(), ranks.len(), false);
    let parts = ranks.into_iter().zip(helpers).map(|(Rank { raw, rank, size, device }, helper)| Parts {
        handle: Handle(raw),
        name: Name::adopted(),
        rank,
        size,
        device,
        local_ranks: Arc::clone(&local_ranks),
        helper,
        timeout: default_timeout(),
        force_windows: false,
        lock: None,
    });
    let members: Vec<_> = parts.map(Inner::new).collect();
    start::admit(operation, &members, &local_ranks, &Deadline::after(default_timeout()))?;
    Ok(members)
}

/// An id with which no communicator was started: NCCL does not tell the one of these.
fn fresh_id() -> UniqueId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0; UniqueId::BYTES];
    bytes[..16].copy_from_slice(b"gpucomm: adopted");
    bytes[16..24].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_ne_bytes());
    UniqueId::from_bytes(bytes)
}

/// Gives up `inner`, whose only owner the caller has, when its work is done and has not failed. For
/// this crate it is then as if it were closed.
///
/// # Errors
/// The communicator is still active, or has ended.
pub(crate) fn give(operation: &'static str, inner: &Arc<Inner>, deadline: &Deadline) -> Result<Handle> {
    outside_of_host_functions(operation)?;
    let refused = |reason: &str| Err(Error::InvalidUsage { operation, reason: reason.into() });
    if inner.shares_resources() {
        return refused("the communicator shares its resources with others, which would go on");
    }
    if !inner.windows.registered().is_empty() {
        return refused("memory is registered with the communicator, or was: take it away by reclaim, on all ranks");
    }
    if inner.graphs.open() > 0 || inner.graphs.exist() {
        return refused(
            "graphs have operations of the communicator, for whose end NCCL waits when it ends: drop them before",
        );
    }
    let met = |error: Error| error.met_by(operation);
    wait_for_work(std::slice::from_ref(inner), deadline).map_err(met)?;
    inner.health().map_err(met)?;
    if !inner.mark_closing() {
        return Err(inner.dead(operation));
    }
    let fit = is_fit(inner, deadline).map_err(met);
    // On a thread of its device: its streams are dropped there.
    let (sender, receiver) = mpsc::channel::<Result<()>>();
    let (one, unfit) = (Arc::clone(inner), fit.clone().err());
    inner.helper().run(move || {
        match unfit {
            Some(cause) => abort_closing(&one, &cause),
            None => {
                // Before others see that it has ended.
                one.graphs.give_away();
                one.local_ranks.leak_configs();
                let_go(&one);
            }
        }
        let _ = sender.send(Ok(()));
    });
    fit?;
    // If that takes longer, it does not concern the communicator.
    let _ = receiver.recv_timeout(deadline.remaining());
    Ok(inner.handle())
}
