//! Starts communicators over an exchange: the ranks share an id, and check that they start with the
//! same settings.

use std::slice;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::abort::start_abort;
use super::peer_listener::PeerListener;
use super::start::{self, ASKS, REST, Starting};
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, Reader, Writer};
use crate::nccl::agree::checked::Checked;
use crate::nccl::agree::terms::{self, Terms};
use crate::nccl::agree::told::{decode_terms, encode_terms};
use crate::nccl::rank::helper::cannot_start;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::environment;
use crate::nccl::setup::init_options::InitOptions;
use crate::nccl::setup::seat::{self, Seat};
use crate::nccl::setup::unique_id::UniqueId;
use crate::version;

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
        terms::against(Some(&self.terms), Some(&other.terms))
    }
}

/// The settings of this rank.
fn settings(operation: &'static str, options: &InitOptions) -> Result<Settings> {
    version::check_nccl()?;
    environment::check(operation)?;
    options.config.check(operation)?;
    let is_checked = environment::checked(operation)? || options.checked;
    Ok(Settings { is_checked, nccl: version::running_nccl()?.to_string(), terms: options.config.terms() })
}

/// Starts the rank that this process is in `exchange`.
pub(crate) fn one_rank(
    operation: &'static str,
    device: Device,
    exchange: &Exchange,
    options: &InitOptions,
) -> Result<Arc<Inner>> {
    outside_of_host_functions(operation)?;
    let exchange = exchange.within(options.timeout);
    let settings = settings(operation, options);
    let is_checked = settings.as_ref().is_ok_and(|settings| settings.is_checked);
    let own = settings.and_then(|own| {
        let id = if exchange.rank() == 0 { UniqueId::new()?.as_bytes().to_vec() } else { Vec::new() };
        Ok(Seat::of(device).encode(own.encode().bytes(&id)).0)
    });
    let gathered = exchange.gather_ready(operation, own)?;
    let (mut id, mut seats) = (None, Vec::new());
    let mut first = None;
    for (rank, bytes) in gathered.iter().enumerate() {
        let mut reader = Reader(bytes);
        let read = Settings::decode(&mut reader).and_then(|settings| Some((settings, reader.bytes()?)));
        let read = read.and_then(|(settings, id)| Some((settings, id, Seat::decode(&mut reader)?)));
        let (settings, bytes, seat) = read.ok_or_else(|| unreadable(operation, rank, bytes.len()))?;
        seats.push(seat);
        id = id.or_else(|| Some(UniqueId::from_bytes(bytes.try_into().ok()?)));
        let expected = first.get_or_insert_with(|| settings.clone());
        if *expected != settings {
            let (expected, got) = (expected.against(&settings), settings.against(expected));
            return Err(Error::Disagreement { operation, rank, peer: 0, expected, got });
        }
    }
    if let Some(reason) = seat::shared(&seats) {
        return Err(Error::InvalidUsage { operation, reason });
    }
    let id = id.ok_or_else(|| unreadable(operation, 0, 0))?;
    with_id(operation, device, &exchange, &id, options, is_checked)
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
    let listener = match is_checked {
        // Named by the id: in a start that failed before, not all ranks may have come here.
        true => Some(PeerListener::start(operation, Checked::new(exchange.named(id.as_bytes())?, None))?),
        false => None,
    };
    let options = InitOptions { checked: false, ..options.clone() };
    let starting = start::begin_rank(operation, device, exchange.size(), vec![*id], exchange.rank(), &options)?;
    let inner = wait(operation, exchange, starting)?;
    listener.into_iter().for_each(|listener| listener.listen(&inner));
    Ok(inner)
}

/// Waits for a start of ranks of `exchange`, unless the exchange knows that one of them has ended.
pub(crate) fn wait(operation: &'static str, exchange: &Exchange, starting: Starting) -> Result<Arc<Inner>> {
    let started = starting.wait_unless(|within| gone(operation, exchange, within))?;
    started.into_iter().next().ok_or_else(|| start::nothing(operation))
}

/// Runs `f`, in which `inner` waits for the ranks of `exchange`. If the exchange knows that one of
/// them has ended, aborts `inner`, which then does not wait until its timeout.
#[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
pub(crate) fn unless_gone<R>(
    operation: &'static str,
    exchange: &Exchange,
    inner: &Arc<Inner>,
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    thread::scope(|scope| {
        let (over, is_over) = mpsc::channel::<()>();
        let goes_on = move |within| matches!(is_over.recv_timeout(within), Err(RecvTimeoutError::Timeout));
        let watch = move || {
            while goes_on(ASKS) {
                let Some(error) = gone(operation, exchange, ASKS) else { continue };
                // Not at once: a rank may have come, and ended after that.
                if goes_on(REST) {
                    let _ = start_abort(slice::from_ref(inner), &error);
                }
                return;
            }
        };
        let watching = thread::Builder::new().name("gpucomm-grow".into()).spawn_scoped(scope, watch);
        watching.map_err(|error| cannot_start(operation, &error))?;
        let result = f();
        drop(over);
        result
    })
}

/// The error that a rank of `exchange` has ended, if the exchange says so within a time.
fn gone(operation: &'static str, exchange: &Exchange, within: Duration) -> Option<Error> {
    exchange.departed(within).map(|(rank, how)| Error::Gone { operation, rank, how })
}

#[cold]
fn unreadable(operation: &'static str, rank: usize, len: usize) -> Error {
    let reason = format!("expected what it starts with, got {len} bytes that are something else");
    Error::Exchange { operation, key: format!("rank {rank}"), reason }
}
