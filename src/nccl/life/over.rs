//! Starts over an exchange: all ranks get an id, and agree on what they start with.

use std::slice;
use std::sync::Arc;
use std::sync::mpsc;

use super::abort::start_abort;
use super::departures::Asker;
use super::init;
use super::listener::{Listener, Listening};
use super::under_way::{REST, UnderWay};
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, Reader, Writer};
use crate::nccl::agree::checked::Checked;
use crate::nccl::agree::terms::{self, Terms};
use crate::nccl::agree::told::{decode_terms, encode_terms};
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::environment;
use crate::nccl::setup::init_options::InitOptions;
use crate::nccl::setup::seat::{self, Seat};
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::state::helper::Helper;
use crate::nccl::state::inner::Inner;
use crate::version;

/// What a rank starts with that all have to have.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Begins {
    is_checked: bool,
    nccl: String,
    terms: Terms,
}

impl Begins {
    fn encode(&self) -> Writer {
        let writer = Writer::default().u8(self.is_checked.into()).text(&self.nccl);
        encode_terms(writer, Some(&self.terms))
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let (is_checked, nccl) = (reader.u8()? != 0, reader.text()?.to_owned());
        Some(Self { is_checked, nccl, terms: decode_terms(reader)?? })
    }

    /// In words, of that in which `other` differs.
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

/// What this rank starts with.
fn begins(operation: &'static str, options: &InitOptions) -> Result<Begins> {
    outside_of_host_functions(operation)?;
    version::check_nccl()?;
    environment::check(operation)?;
    options.config.check(operation)?;
    let is_checked = environment::checked(operation)? || options.checked;
    Ok(Begins { is_checked, nccl: version::running_nccl()?.to_string(), terms: options.config.terms() })
}

/// What a rank needs of its process for a start, before the other ranks rely on it.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) helper: Helper,
    pub(crate) asker: Asker,
    /// Where it is checked.
    listening: Option<Listening>,
}

impl Ready {
    /// For a rank on `device`.
    pub(crate) fn new(operation: &'static str, device: Device, is_checked: bool) -> Result<Self> {
        Ok(Self {
            helper: init::helper(operation, device)?,
            asker: Asker::start(operation)?,
            listening: is_checked.then(|| Listening::start(operation)).transpose()?,
        })
    }
}

/// The rank that this process is in `exchange`.
pub(crate) fn one_rank(
    operation: &'static str,
    device: Device,
    exchange: &Exchange,
    options: &InitOptions,
) -> Result<Arc<Inner>> {
    let exchange = exchange.within(options.timeout);
    let own = begins(operation, options).and_then(|own| {
        let ready = Ready::new(operation, device, own.is_checked)?;
        let id = if exchange.rank() == 0 { UniqueId::new()?.as_bytes().to_vec() } else { Vec::new() };
        Ok((ready, Seat::of(device).encode(own.encode().bytes(&id)).0))
    });
    let (ready, told) = exchange.gather_ready(operation, own)?;
    let (mut id, mut seats) = (None, Vec::new());
    let mut first = None;
    for (rank, bytes) in told.iter().enumerate() {
        let mut reader = Reader(bytes);
        let read = Begins::decode(&mut reader).and_then(|begins| Some((begins, reader.bytes()?)));
        let read = read.and_then(|(begins, id)| Some((begins, id, Seat::decode(&mut reader)?)));
        let (begins, bytes, seat) = read.ok_or_else(|| unreadable(operation, rank, bytes.len()))?;
        seats.push(seat);
        id = id.or_else(|| Some(UniqueId::from_bytes(bytes.try_into().ok()?)));
        let expected = first.get_or_insert_with(|| begins.clone());
        if *expected != begins {
            let (expected, got) = (expected.against(&begins), begins.against(expected));
            return Err(Error::Disagreement { operation, rank, peer: 0, expected, got });
        }
    }
    if let Some(reason) = seat::shared(&seats) {
        return Err(Error::InvalidUsage { operation, reason });
    }
    let id = id.ok_or_else(|| unreadable(operation, 0, 0))?;
    begin(operation, device, &exchange, &id, options, ready)
}

/// The same by an id that all have, after they have agreed whether they compare.
pub(crate) fn start(
    operation: &'static str,
    device: Device,
    exchange: &Exchange,
    id: &UniqueId,
    options: &InitOptions,
    is_checked: bool,
) -> Result<Arc<Inner>> {
    begin(operation, device, exchange, id, options, Ready::new(operation, device, is_checked)?)
}

fn begin(
    operation: &'static str,
    device: Device,
    exchange: &Exchange,
    id: &UniqueId,
    options: &InitOptions,
    ready: Ready,
) -> Result<Arc<Inner>> {
    let Ready { helper, asker, listening } = ready;
    let listener = match listening {
        // By the id, as not all may have come here in a start that failed.
        Some(listening) => Some(Listener::of(listening, Checked::new(exchange.named(id.as_bytes())?, None))),
        None => None,
    };
    let options = InitOptions { checked: false, ..options.clone() };
    let start = init::begin_rank(operation, device, exchange.size(), id, exchange.rank(), &options, Some(helper))?;
    let inner = wait(operation, exchange, (asker, id.as_bytes()), start)?;
    listener.into_iter().for_each(|listener| listener.listen(&inner));
    Ok(inner)
}

/// Waits for a start of ranks of `exchange`, which goes by `name` there, unless one of them has ended that had not started.
pub(crate) fn wait(
    operation: &'static str,
    exchange: &Exchange,
    (asker, name): (Asker, &[u8]),
    start: UnderWay,
) -> Result<Arc<Inner>> {
    let (sender, died) = mpsc::channel();
    let told = move |error, _: &_| {
        let _ = sender.send(error);
    };
    let departures = asker.ask(operation, exchange, name, told)?;
    let started = start.wait_unless(|| died.try_recv().ok())?;
    departures.has_started();
    started.into_iter().next().ok_or_else(|| init::nothing(operation))
}

/// Runs `f`, in which `inner` waits for a start of the ranks of `exchange`, which goes by `name` there: if one of them has ended that had not
/// started, `inner` is aborted, and so does not wait for its timeout.
#[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
pub(crate) fn unless_gone<R>(
    operation: &'static str,
    exchange: &Exchange,
    (asker, name): (Asker, &[u8]),
    inner: &Arc<Inner>,
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let waits = Arc::downgrade(inner);
    let departures = asker.ask(operation, exchange, name, move |error, over| {
        // One that has come, and has ended since, is no reason to fail.
        if over.goes_on(REST)
            && let Some(inner) = waits.upgrade()
        {
            let _ = start_abort(slice::from_ref(&inner), &error);
        }
    })?;
    let result = f();
    if result.is_ok() {
        departures.has_started();
    }
    result
}

#[cold]
fn unreadable(operation: &'static str, rank: usize, len: usize) -> Error {
    let reason = format!("expected what it starts with, got {len} bytes that are something else");
    Error::Exchange { operation, key: format!("rank {rank}"), reason }
}
