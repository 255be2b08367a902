//! Starts communicators over an exchange: the ranks share an id, and check that they start with the
//! same settings.

use std::slice;
use std::sync::Arc;
use std::sync::mpsc;

use super::abort::start_abort;
use super::peer_listener::{ListenerThread, PeerListener};
use super::start::{self, REST, Starting};
use super::start_watch::DepartureThread;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, Reader, Writer};
use crate::name::Name;
use crate::nccl::rank::helper::Helper;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::environment;
use crate::nccl::setup::init_options::InitOptions;
use crate::nccl::setup::rank_device::{self, RankDevice};
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::validate::ballot::RanksOf;
use crate::nccl::validate::ballot::Verdict;
use crate::nccl::validate::notes::{decode_terms, encode_terms};
use crate::nccl::validate::over_exchange::this_rank::OverExchange;
use crate::nccl::validate::split::{self, Terms};
use crate::version;

/// The ranks for which one id is enough.
#[cfg(nccl_ge_2_23_4)]
const RANKS_PER_ID: usize = if cfg!(test) { 2 } else { 256 };

/// The settings that all ranks must have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Settings {
    is_checked: bool,
    nccl: String,
    terms: Terms,
}

impl Settings {
    fn encode(&self) -> Writer {
        let writer = Writer::default().u8(self.is_checked.into()).text(&self.nccl);
        encode_terms(writer, Some(&self.terms))
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let (is_checked, nccl) = (reader.u8()? != 0, reader.text()?.to_owned());
        Some(Self { is_checked, nccl, terms: decode_terms(reader)?? })
    }

    /// Describes the first setting in which `other` differs.
    fn against(&self, other: &Self) -> String {
        if self.is_checked != other.is_checked {
            let is = if self.is_checked { "a checked communicator" } else { "a communicator that is not checked" };
            return is.to_owned();
        }
        if self.nccl != other.nccl {
            return format!("NCCL {}", self.nccl);
        }
        split::against(Some(&self.terms), Some(&other.terms))
    }
}

/// The settings of this rank.
fn settings(operation: &'static str, options: &InitOptions) -> Result<Settings> {
    outside_of_host_functions(operation)?;
    version::check_nccl()?;
    environment::check(operation)?;
    options.config.check(operation)?;
    let is_checked = environment::checked(operation)? || options.checked;
    Ok(Settings { is_checked, nccl: version::running_nccl()?.to_string(), terms: options.config.terms() })
}

/// The threads that a rank needs for a start. They run before the other ranks rely on this one.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) helper: Helper,
    pub(crate) departures: DepartureThread,
    /// For a checked communicator.
    listener: Option<ListenerThread>,
}

impl Threads {
    /// Starts the threads of a rank on `device`.
    pub(crate) fn start(operation: &'static str, device: Device, is_checked: bool) -> Result<Self> {
        Ok(Self {
            helper: start::helper(operation, device)?,
            departures: DepartureThread::start(operation)?,
            listener: is_checked.then(|| ListenerThread::start(operation)).transpose()?,
        })
    }

    /// The listener of a checked communicator, `checked`, whose key in `exchange` is `key`. `None` if it
    /// is not checked.
    pub(crate) fn listener(
        &self,
        exchange: &Exchange,
        key: &[u8],
        checked: Option<Name>,
    ) -> Result<Option<PeerListener>> {
        let Some((thread, name)) = self.listener.clone().zip(checked) else { return Ok(None) };
        let checked = OverExchange::new(exchange.named(key)?, RanksOf::whole(name));
        Ok(Some(PeerListener::new(thread, checked)))
    }
}

/// Starts the rank that this process is in `exchange`. Returns the id of the communicator, too, which
/// all ranks have and no other communicator has. If this rank is not `ready`, tells the others why.
pub(crate) fn one_rank(
    operation: &'static str,
    device: Device,
    exchange: &Exchange,
    options: &InitOptions,
    ready: Result<()>,
) -> Result<(Arc<Inner>, UniqueId)> {
    let exchange = exchange.with_timeout(options.timeout);
    let own = ready.and_then(|()| settings(operation, options)).and_then(|own| {
        let threads = Threads::start(operation, device, own.is_checked)?;
        let makes_id = makes_id(exchange.rank(), exchange.size(), ids(operation, exchange.size()));
        let id = if makes_id { UniqueId::new()?.as_bytes().to_vec() } else { Vec::new() };
        Ok((threads, RankDevice::of(device).encode(own.encode().bytes(&id)).0))
    });
    let (threads, gathered) = exchange.gather_ready(operation, own)?;
    let (mut ids, mut rank_devices) = (Vec::new(), Vec::new());
    let mut first = None;
    for (rank, bytes) in gathered.iter().enumerate() {
        let mut reader = Reader(bytes);
        let read = Settings::decode(&mut reader).and_then(|settings| Some((settings, reader.bytes()?)));
        let read = read.and_then(|(settings, id)| Some((settings, id, RankDevice::decode(&mut reader)?)));
        let (settings, bytes, rank_device) = read.ok_or_else(|| unreadable(operation, rank, bytes.len()))?;
        rank_devices.push(rank_device);
        ids.extend(bytes.try_into().ok().map(UniqueId::from_bytes));
        let expected = first.get_or_insert_with(|| settings.clone());
        if *expected != settings {
            let (expected, got) = (expected.against(&settings), settings.against(expected));
            return Err(Verdict::new(rank, 0, expected, got).error(operation));
        }
    }
    if let Some(reason) = rank_device::shared(&rank_devices) {
        return Err(Error::InvalidUsage { operation, reason });
    }
    let id = *ids.first().ok_or_else(|| unreadable(operation, 0, 0))?;
    Ok((begin(operation, device, &exchange, ids, options, threads)?, id))
}

/// How many ids the ranks start with. Each id has a process that answers for it, and one process is
/// slow for many ranks.
#[cfg(nccl_ge_2_23_4)]
fn ids(operation: &'static str, size: usize) -> usize {
    let has = version::needs(operation, version::Version::new(2, 23, 4));
    let can = has.and_then(|()| environment::check_ids(operation)).is_ok();
    if can { size.div_ceil(RANKS_PER_ID) } else { 1 }
}

#[cfg(not(nccl_ge_2_23_4))]
fn ids(_operation: &'static str, _size: usize) -> usize {
    1
}

/// Whether `rank` makes one of so many ids: the first rank of each group, as NCCL divides the ranks among the ids.
fn makes_id(rank: usize, size: usize, ids: usize) -> bool {
    let (each, more) = (size / ids, size % ids);
    (0..ids).any(|id| id * each + id.min(more) == rank)
}

/// Starts it with an id that all ranks have, after they have agreed whether the communicator is
/// checked.
pub(crate) fn with_id(
    operation: &'static str,
    device: Device,
    exchange: &Exchange,
    id: &UniqueId,
    options: &InitOptions,
    is_checked: bool,
) -> Result<Arc<Inner>> {
    begin(operation, device, exchange, vec![*id], options, Threads::start(operation, device, is_checked)?)
}

fn begin(
    operation: &'static str,
    device: Device,
    exchange: &Exchange,
    ids: Vec<UniqueId>,
    options: &InitOptions,
    threads: Threads,
) -> Result<Arc<Inner>> {
    // Named by the first id: in a start that failed before, not all ranks may have come here.
    let name = ids.first().map_or([0; UniqueId::BYTES], |id| *id.as_bytes());
    let listener = threads.listener(exchange, &name, Some(options.name()))?;
    let Threads { helper, departures, .. } = threads;
    let options = options.clone().with_checked(false);
    let (size, rank) = (exchange.size(), exchange.rank());
    let begin = || start::begin_rank(operation, device, size, ids, rank, &options, Some(helper));
    let inner = wait(operation, exchange, (departures, &name), begin)?;
    listener.into_iter().for_each(|listener| listener.listen(&inner));
    Ok(inner)
}

/// Begins a start of ranks of `exchange`, which goes by `name` there, and waits for it, unless the exchange
/// knows that one of them has ended before it had started, or has given up.
pub(crate) fn wait(
    operation: &'static str,
    exchange: &Exchange,
    (departures, name): (DepartureThread, &[u8]),
    begin: impl FnOnce() -> Result<Starting>,
) -> Result<Arc<Inner>> {
    let (sender, died) = mpsc::channel();
    let on_death = move |error, _: &_| {
        let _ = sender.send(error);
    };
    let mut departures = departures.watch(operation, exchange, name, on_death)?;
    let started = begin().and_then(|starting| starting.wait_unless(|| died.try_recv().ok()));
    let started = started.inspect_err(|error| departures.has_failed(error))?;
    departures.has_started();
    started.into_iter().next().ok_or_else(|| start::nothing(operation))
}

/// Runs `f`, in which `inner` waits for a start of the ranks of `exchange`, which goes by `name`
/// there. If the exchange knows that one of them has ended before it had started, or has given up, aborts
/// `inner`, which then does not wait until its timeout.
#[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
pub(crate) fn unless_gone<R>(
    operation: &'static str,
    exchange: &Exchange,
    (departures, name): (DepartureThread, &[u8]),
    inner: &Arc<Inner>,
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let waiting = Arc::downgrade(inner);
    let mut departures = departures.watch(operation, exchange, name, move |error, is_over| {
        // Not at once: a rank may have come, and ended after that.
        if is_over.goes_on(REST)
            && let Some(inner) = waiting.upgrade()
        {
            let _ = start_abort(slice::from_ref(&inner), &error);
        }
    })?;
    let result = f();
    match &result {
        Ok(_) => departures.has_started(),
        Err(error) => departures.has_failed(error),
    }
    result
}

#[cold]
fn unreadable(operation: &'static str, rank: usize, len: usize) -> Error {
    let reason = format!("expected what it starts with, got {len} bytes that are something else");
    Error::Exchange { operation, key: format!("rank {rank}"), reason }
}

#[cfg(all(test, gpucomm_emulator))]
mod tests {
    use std::thread;

    use super::*;
    use crate::exchange::Threads as Place;

    /// The ids are made by the ranks that NCCL lets answer for them, and the ranks come together by all of them.
    #[test]
    fn ranks_start_by_several_ids() {
        for (size, ids, makers) in [(5, 2, vec![0, 3]), (6, 3, vec![0, 2, 4]), (7, 3, vec![0, 3, 5]), (4, 1, vec![0])] {
            let found: Vec<_> = (0..size).filter(|rank| makes_id(*rank, size, ids)).collect();
            assert_eq!(found, makers);
        }
        let devices = Device::all().unwrap();
        let size = devices.len();
        assert!(size > RANKS_PER_ID, "{size} devices");
        let place = Place::new(size);
        let start = |rank: usize| {
            let exchange = Exchange::join(place.store(rank).unwrap()).unwrap();
            assert_eq!(ids("test", size), size.div_ceil(RANKS_PER_ID));
            one_rank("test", devices[rank], &exchange, &InitOptions::default(), Ok(())).map(drop)
        };
        thread::scope(|scope| {
            let start = &start;
            let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || start(rank))).collect();
            ranks.into_iter().for_each(|rank| rank.join().unwrap().unwrap());
        });
    }
}
