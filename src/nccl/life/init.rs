//! Starting communicators, with a deadline.
//!
//! Communicators are made blocking, because a non-blocking one takes ten times as long for each operation, and a blocking
//! one split from it 2 to 3 µs longer and twice the device memory. A blocking start cannot be stopped, so it runs on the
//! communicator's own thread (see [`under_way`](super::under_way)): if a rank does not come in time, the caller gets its error, and the
//! thread is left behind; should the rank come after all, it aborts what it then has. So every start is one that need not be waited for. The ranks of a clique start as one group of NCCL, which ends
//! the starts of all when that of one fails.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::mpsc;

use super::made::Made;
pub(crate) use super::made::nothing;
use super::scope;
use super::under_way::UnderWay;
pub(crate) use super::under_way::{LOOK, welcome};
use super::watchdog;
use crate::cuda::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::agree::order::Sharing;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::begun;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::environment;
use crate::nccl::setup::init_options::InitOptions;
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::state::helper::Helper;
use crate::nccl::state::inner::{Family, HOUSEHOLDS, Inner};
use crate::version;

/// One rank; the others are made elsewhere.
pub(crate) fn one_rank(
    operation: &'static str,
    device: Device,
    size: usize,
    id: &UniqueId,
    rank: usize,
    options: &InitOptions,
) -> Result<Arc<Inner>> {
    one_by(operation, device, size, vec![*id], rank, options)
}

/// One rank, which comes by several ids.
#[cfg(nccl_ge_2_23_4)]
pub(crate) fn one_of_many(
    operation: &'static str,
    device: Device,
    size: usize,
    ids: &[UniqueId],
    rank: usize,
    options: &InitOptions,
) -> Result<Arc<Inner>> {
    version::check_nccl()?;
    version::needs(operation, version::Version::new(2, 23, 4))?;
    if ids.is_empty() || ids.len() > size {
        return Err(Error::argument(operation, "ids", format_args!("1 to {size}, at most one a rank"), ids.len()));
    }
    if let Some(at) = ids.iter().enumerate().position(|(at, id)| ids[..at].contains(id)) {
        return Err(Error::argument(operation, "ids", "each id once", format_args!("one twice, at {at}")));
    }
    if ids.len() > 1 {
        environment::check_ids(operation)?;
    }
    one_by(operation, device, size, ids.to_vec(), rank, options)
}

/// One rank, whose start goes on by itself.
pub(crate) fn begin_rank(
    operation: &'static str,
    device: Device,
    size: usize,
    id: &UniqueId,
    rank: usize,
    options: &InitOptions,
    helper: Option<Helper>,
) -> Result<UnderWay> {
    begin_alone(operation, options)?;
    check_rank(operation, rank, size)?;
    Start { operation, ids: vec![*id], grows: None, size, ranks: vec![(rank, device)] }.begin(None, options, helper)
}

/// The threads that a start of a rank on `device` needs, for who has them before the other ranks rely on this one.
pub(crate) fn helper(operation: &'static str, device: Device) -> Result<Helper> {
    watchdog::start(operation)?;
    Helper::start(operation, device)
}

/// Some ranks of a communicator, started by one thread; the others are made elsewhere.
pub(crate) fn some_ranks(
    operation: &'static str,
    ranks: Vec<(usize, Device)>,
    size: usize,
    id: &UniqueId,
    options: &InitOptions,
) -> Result<Vec<Arc<Inner>>> {
    begin_alone(operation, options)?;
    if ranks.is_empty() {
        return Err(Error::argument(operation, "ranks", "at least one rank", "none"));
    }
    for (at, (rank, _)) in ranks.iter().enumerate() {
        check_rank(operation, *rank, size)?;
        if ranks[..at].iter().any(|(other, _)| other == rank) {
            return Err(Error::argument(operation, "ranks", "each rank once", format!("rank {rank} twice")));
        }
    }
    let devices: Vec<Device> = ranks.iter().map(|(_, device)| *device).collect();
    environment::check_devices(operation, "ranks", &devices)?;
    Start { operation, ids: vec![*id], grows: None, size, ranks }.run(None, options)
}

fn check_rank(operation: &'static str, rank: usize, size: usize) -> Result<()> {
    if size == 0 || c_int::try_from(size).is_err() {
        return Err(Error::argument(operation, "size", format!("1 to {} ranks", c_int::MAX), size));
    }
    if rank >= size {
        return Err(Error::argument(operation, "rank", format!("a rank below {size}"), rank));
    }
    Ok(())
}

fn one_by(
    operation: &'static str,
    device: Device,
    size: usize,
    ids: Vec<UniqueId>,
    rank: usize,
    options: &InitOptions,
) -> Result<Arc<Inner>> {
    begin_alone(operation, options)?;
    check_rank(operation, rank, size)?;
    let start = Start { operation, ids, grows: None, size, ranks: vec![(rank, device)] };
    start.run(None, options)?.into_iter().next().ok_or_else(|| nothing(operation))
}

/// A rank that comes into a communicator that grows, which goes by `key` in this process. Its start goes on by itself.
#[cfg(nccl_ge_2_29)]
pub(crate) fn newcomer(
    operation: &'static str,
    device: Device,
    (id, key): (UniqueId, UniqueId),
    (size, rank): (usize, usize),
    family: Option<Arc<Family>>,
    options: &InitOptions,
    helper: Option<Helper>,
) -> Result<UnderWay> {
    begin_alone(operation, options)?;
    version::needs(operation, version::Version::new(2, 29, 2))?;
    check_rank(operation, rank, size)?;
    let start = Start { operation, ids: vec![id], grows: Some(key), size, ranks: vec![(rank, device)] };
    start.begin(family, options, helper)
}

/// All ranks of a communicator within this process.
pub(crate) fn all_ranks(operation: &'static str, devices: &[Device], options: &InitOptions) -> Result<Vec<Arc<Inner>>> {
    begin(operation, &options.config)?;
    if devices.is_empty() {
        return Err(Error::argument(operation, "devices", "at least one device", "none"));
    }
    environment::check_devices(operation, "devices", devices)?;
    let size = devices.len();
    let sharing = environment::shares(options.config.shares()).then(|| Sharing::new(size));
    let family = Arc::new(Family::new(size, None, sharing));
    let ranks = devices.iter().copied().enumerate().collect();
    let start = Start { operation, ids: vec![UniqueId::new()?], grows: None, size, ranks };
    start.run(Some(family), options)
}

/// Begins a start of ranks that have no way to compare what they do with the others.
pub(crate) fn begin_alone(operation: &'static str, options: &InitOptions) -> Result<()> {
    begin(operation, &options.config)?;
    if options.checked {
        let expected = "false: ranks of other processes compare over an exchange, see `Communicator::init_rank_over`";
        return Err(Error::argument(operation, "checked", expected, true));
    }
    Ok(())
}

fn begin(operation: &'static str, config: &Config) -> Result<()> {
    outside_of_host_functions(operation)?;
    version::check_nccl()?;
    environment::check(operation)?;
    config.check(operation)?;
    begun::begin();
    Ok(())
}

/// The start of those ranks of a communicator that one call makes.
struct Start {
    operation: &'static str,
    /// One, or several by which the ranks come.
    ids: Vec<UniqueId>,
    /// Where they come into a communicator that grows: what that goes by.
    grows: Option<UniqueId>,
    size: usize,
    ranks: Vec<(usize, Device)>,
}

impl Start {
    fn run(self, family: Option<Arc<Family>>, options: &InitOptions) -> Result<Vec<Arc<Inner>>> {
        self.begin(family, options, None)?.wait()
    }

    /// Starts, and does not wait for the other ranks. `helper` is that of a single rank, if there is one already.
    fn begin(self, family: Option<Arc<Family>>, options: &InitOptions, helper: Option<Helper>) -> Result<UnderWay> {
        let Self { operation, ids, grows, size, ranks } = self;
        let Some(key) = grows.as_ref().or(ids.first()) else { return Err(nothing(operation)) };
        let deadline = Deadline::after(options.timeout);
        // All threads that the communicators will ever need, before there is a communicator.
        watchdog::start(operation)?;
        let helpers = match helper {
            Some(helper) => vec![helper],
            None => ranks.iter().map(|(_, device)| Helper::start(operation, *device)).collect::<Result<Vec<_>>>()?,
        };
        let shares = environment::shares(options.config.shares());
        let household = HOUSEHOLDS.join(key, ranks.len(), shares);
        let config = household.keep(options.config.clone());
        // A clique has them all.
        let first = ranks.first().map(|(rank, _)| *rank).filter(|_| family.is_none());
        let made = Made::new(ranks.clone(), Arc::clone(&household), grows.is_some());
        // Handed over or kept: a start that is too late is aborted where it was made.
        let (sender, receiver) = mpsc::sync_channel(0);
        helpers[0].run(move || {
            let _ = sender.send(made.start(&ids, size, &config));
        });
        let (timeout, force_windows) = (options.timeout, options.config.forces_windows());
        Ok(UnderWay {
            operation,
            size,
            first,
            ranks,
            helpers,
            household,
            family,
            shares,
            timeout,
            force_windows,
            scope: scope::current(),
            deadline,
            receiver,
        })
    }
}
