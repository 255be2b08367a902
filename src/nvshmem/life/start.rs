//! Starting the library.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;
use std::time::{Duration, Instant};

use super::context::Context;
use super::launcher;
use super::once::{self, Claimed, INIT};
use super::options::{Bootstrap, ContextOptions};
use super::unique_id::ContextUniqueId;
use crate::codes::NvshmemCode;
use crate::cuda::{Address, Device, Quiet, Stream, memory_at, undisturbing};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, TcpPlace};
use crate::nvshmem::state::board::Board;
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::environment::{self, is_set};
use crate::nvshmem::state::inner::{Found, Inner};
use crate::nvshmem::state::meeting::{Kind, Plan};
use crate::nvshmem::state::status::Status;
use crate::nvshmem::state::{wait_state::Awaited, watchdog::Watchdog};
use crate::{known_bugs, sys, version};

impl Context {
    /// Wraps `nvshmemx_hostlib_init_attr`: starts NVSHMEM in this process. Collective: all PEs do it.
    ///
    /// # Safety
    /// All PEs run programs that make the same collective calls, with operands that belong together, in the same order. No PE can see what others do: where
    /// they disagree, the library writes where nobody expects it. What this crate compares all the same (allocations, teams, the end) it says there.
    /// With [`attach`](ContextOptions::with_attached), whoever has started the library does not finalize it before the context.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a number of a PE that there is none, and without a way to start; [`Error::InvalidUsage`] where there is a context
    /// in this process, or one was dropped without [`Context::close`], where somebody else has started the library, or it has its PEs from an
    /// [environment](ContextOptions::with_environment) and is to start in another way; a variable of NVSHMEM holds a value with which the library crashes, or this thread captures a stream of the device; [`Error::LibraryTooOld`]; [`Error::NoDevice`]; [`Error::Nvshmem`] where
    /// the library does not start, which says what is missing; those of a [session](ContextOptions::with_session); with an
    /// [exchange](ContextOptions::with_exchange), [`Error::Exchange`] if another PE cannot start, and those of [`Exchange::all_gather`].
    #[doc(alias = "nvshmemx_hostlib_init_attr")]
    pub unsafe fn init(options: &ContextOptions) -> Result<Self> {
        // SAFETY: as the caller promises.
        unsafe { start(options, None) }
    }

    /// Wraps `nvshmemx_hostlib_init_attr`, with flags and attributes of the caller: for ways to start that this crate does not know.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions};
    /// # use gpucomm::{Device, sys};
    /// # use std::mem::MaybeUninit;
    /// # fn main() -> gpucomm::Result<()> {
    /// let mut attr = MaybeUninit::uninit();
    /// // SAFETY: a place for attributes, all of whose bytes are set.
    /// let mut attr = unsafe {
    ///     sys::gpucommNvshmemAttrInit(attr.as_mut_ptr());
    ///     attr.assume_init()
    /// };
    /// let options = ContextOptions::new().with_device(Device::new(0)?);
    /// // SAFETY: all PEs run this program; the attributes are those for no flags, which is the environment.
    /// let ctx = unsafe { Context::init_with_attr(&options, 0, &mut attr)? };
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// As [`init`](Self::init); and `attr` is initialised for these flags, with pointers that are valid during the call.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    #[doc(alias = "nvshmemx_hostlib_init_attr")]
    pub unsafe fn init_with_attr(
        options: &ContextOptions,
        flags: u32,
        attr: &mut sys::nvshmemx_init_attr_t,
    ) -> Result<Self> {
        if options.bootstrap.as_ref().is_some_and(|bootstrap| !matches!(bootstrap, Bootstrap::Exchange)) {
            let reason = "the attributes say how PEs find each other: no other way can be asked for";
            return Err(Error::InvalidUsage { operation: INIT, reason: reason.to_owned() });
        }
        // SAFETY: as the caller promises.
        unsafe { start(options, Some((flags, attr))) }
    }
}

/// Entries of what is launched to begin with.
const WARMED: usize = 32;

/// Flags and attributes of the caller.
type Given<'a> = Option<(u32, &'a mut sys::nvshmemx_init_attr_t)>;

/// Starts as `options` says.
///
/// # Safety
/// As [`Context::init`].
unsafe fn start(options: &ContextOptions, given: Given<'_>) -> Result<Context> {
    let device = ready(options)?;
    let claimed = claim(options, &given);
    let claimed = match (&options.bootstrap, &options.exchange) {
        // A PE that never can start says so before the others wait for it inside the library.
        (Some(Bootstrap::Exchange), Some(exchange)) => {
            let exchange = exchange.with_timeout(options.limit());
            let told = exchange.gather_ready(INIT, claimed.map(|claimed| (claimed, Vec::new())));
            told.map_err(|error| error.met_by(INIT))?.0
        }
        _ => claimed?,
    };
    let way = if given.is_some() { None } else { Some(way(options)?) };
    let attached = matches!(way, Some(Way::Running));
    // SAFETY: as the caller promises.
    let inner = unsafe { begin(options, device, way, given)? };
    claimed.keep();
    Ok(Context::new(inner, attached))
}

/// Checks what may be right when it is tried again: the other PEs learn nothing, and wait for that. Returns the device.
fn ready(options: &ContextOptions) -> Result<Device> {
    version::check_nvshmem()?;
    // A library that runs already has read its variables.
    if !matches!(options.bootstrap, Some(Bootstrap::Running)) {
        environment::check(INIT)?;
    }
    if options.is_first() {
        known_bugs::tell(version::running_nvshmem()?);
    }
    let device = match options.device {
        Some(device) => device,
        None => Device::current()?,
    };
    // Before the other PEs learn of this start: the library waits for the whole device, which a capture of this thread forbids.
    Quiet::check(INIT, &[device])?;
    Ok(device)
}

/// Claims the one context of the process.
fn claim(options: &ContextOptions, given: &Given<'_>) -> Result<Claimed> {
    let claimed = Claimed::claim()?;
    if !matches!(options.bootstrap, Some(Bootstrap::Running)) {
        // Before an id is made, for which the library loads its bootstrap.
        let keeps = match given {
            Some((flags, _)) => flags & sys::NVSHMEMX_INIT_WITH_UNIQUEID == 0,
            None => matches!(options.bootstrap, Some(Bootstrap::Environment)),
        };
        check_idle(keeps)?;
    }
    Ok(claimed)
}

/// How to start, with what all PEs need to know.
enum Way {
    ContextUniqueId { id: ContextUniqueId, pe: c_int, n_pes: c_int },
    Environment,
    Running,
}

fn way(options: &ContextOptions) -> Result<Way> {
    match &options.bootstrap {
        None => {
            let expected = "a way for PEs to find each other: with_unique_id, with_exchange, with_mpi, with_session, with_environment or with_attached";
            Err(Error::argument(INIT, "bootstrap", expected, "none"))
        }
        Some(Bootstrap::ContextUniqueId { id, pe, n_pes }) => with_id(*id, *pe, *n_pes),
        Some(Bootstrap::Exchange) => {
            let exchange = options.exchange.as_ref().expect("it was set with the bootstrap");
            let id = ContextUniqueId::shared_for_start(&exchange.with_timeout(options.limit()))?;
            with_id(id, exchange.rank(), exchange.size())
        }
        Some(Bootstrap::Session { address, pe, n_pes }) => {
            check_pe(*pe, *n_pes)?;
            with_id(session(*address, *pe, *n_pes, options.limit())?, *pe, *n_pes)
        }
        Some(Bootstrap::Environment) => Ok(Way::Environment),
        Some(Bootstrap::Running) => Ok(Way::Running),
    }
}

/// The id that PE 0 makes, and tells the others at an address. Nobody answers there any more when this returns, so that the address can be used again.
fn session(address: SocketAddr, pe: usize, n_pes: usize, limit: Duration) -> Result<ContextUniqueId> {
    if address.port() == 0 {
        return Err(Error::argument(INIT, "address", "a port that all PEs know", address));
    }
    let place = TcpPlace::new(address.to_string()).with_job("a session of NVSHMEM").with_timeout(limit);
    let exchange = Exchange::join_timeout(place.store(pe, n_pes)?, limit)?;
    let id = ContextUniqueId::shared_for_start(&exchange)?;
    exchange.barrier()?;
    Ok(id)
}

fn with_id(id: ContextUniqueId, pe: usize, n_pes: usize) -> Result<Way> {
    check_pe(pe, n_pes).map(|(pe, n_pes)| Way::ContextUniqueId { id, pe, n_pes })
}

fn check_pe(pe: usize, n_pes: usize) -> Result<(c_int, c_int)> {
    match (c_int::try_from(pe), c_int::try_from(n_pes)) {
        (Ok(one), Ok(all)) if one < all => Ok((one, all)),
        _ => Err(Error::argument(INIT, "pe", format_args!("a PE below the number of PEs, which is {n_pes}"), pe)),
    }
}

/// # Safety
/// As [`Context::init`].
unsafe fn begin(
    options: &ContextOptions,
    device: Device,
    way: Option<Way>,
    given: Given<'_>,
) -> Result<std::sync::Arc<Inner>> {
    let exchange = options.exchange.as_ref();
    let expected = match &way {
        Some(Way::ContextUniqueId { pe, n_pes, .. }) => Some((*pe as usize, *n_pes as usize)),
        _ => exchange.map(|exchange| (exchange.rank(), exchange.size())),
    };
    let name = match &way {
        Some(Way::ContextUniqueId { id, .. }) => id.as_bytes().to_vec(),
        _ => once::number().to_le_bytes().to_vec(),
    };
    let watch = |place| Watchdog::start(place, exchange, &name, options.watchdog);
    // With an id of one's own, a start can be tried again for as long as the library was not called: the others wait for that.
    let mut starting =
        Starting { watchdog: watch(expected)?, is_told: matches!(options.bootstrap, Some(Bootstrap::Exchange)) };
    // SAFETY: as the caller promises.
    let begun = unsafe { begin_under(&mut starting, options, device, (way, expected), given, watch) };
    begun.inspect_err(|error| {
        if starting.is_told {
            starting.watchdog.give_up(error);
        }
    })
}

/// A start, of which the others are told if it fails.
struct Starting {
    watchdog: Watchdog,
    is_told: bool,
}

/// # Safety
/// As [`Context::init`].
unsafe fn begin_under(
    starting: &mut Starting,
    options: &ContextOptions,
    device: Device,
    (way, expected): (Option<Way>, Option<(usize, usize)>),
    given: Given<'_>,
    watch: impl Fn(Option<(usize, usize)>) -> Result<Watchdog>,
) -> Result<std::sync::Arc<Inner>> {
    let deadline = Deadline::after(options.limit());
    let _quiet = Quiet::keep(INIT, &[device], &deadline, || None)?;
    let stream = Stream::new(device)?;
    let _current = device.bind(INIT)?;
    let since = Instant::now();
    let environment = match &given {
        Some((flags, _)) => flags & launcher::TOLD == 0,
        None => matches!(way, Some(Way::Environment)),
    };
    let alone = !matches!(way, Some(Way::Running));
    if alone {
        // From here on the library has been called.
        once::spoilt();
        environment::record();
    }
    starting.is_told = true;
    // SAFETY: as the caller promises.
    let init = || unsafe { call(way, given) };
    undisturbing(|| starting.watchdog.during("nvshmemx_hostlib_init_attr", options.limit(), &Awaited::All, init))?;
    let has_nccl = !is_set("NVSHMEM_DISABLE_NCCL", false) && sys::behavior::nvshmem_has_found_nccl();
    // SAFETY: may be called at any time.
    let status = unsafe { sys::nvshmemx_init_status() };
    let status = Status::of(status).ok_or_else(|| not_started(status))?;
    // SAFETY: the library runs.
    let (pe, n_pes) = unsafe { (sys::nvshmem_my_pe(), sys::nvshmem_n_pes()) };
    let (pe, n_pes) = (pe.unsigned_abs() as usize, n_pes.unsigned_abs() as usize);
    if environment {
        launcher::check(n_pes)?;
    }
    // Where the library alone knew how many PEs there are, another one goes on.
    if expected != Some((pe, n_pes)) {
        starting.watchdog = watch(Some((pe, n_pes)))?;
    }
    let bytes = Board::bytes(n_pes);
    // SAFETY: the library runs, and all PEs do this first.
    let calloc = || unsafe { sys::nvshmem_calloc(bytes, 1) };
    let address =
        undisturbing(|| Ok(starting.watchdog.during("nvshmem_calloc", options.limit(), &Awaited::All, calloc)))?;
    if address.is_null() {
        return Err(Error::OutOfMemory { operation: INIT, bytes, place: device.to_string() });
    }
    // The library has had a device before it was asked to take this one.
    if let Some(other) = memory_at(device, address.addr())?.filter(|other| *other != device.ordinal()) {
        let got = format!("memory of device {other}, which the library has chosen");
        return Err(Error::argument(INIT, "device", format!("the device of the library, not {device}"), got));
    }
    let near = (0..n_pes)
        // SAFETY: symmetric memory, and a PE.
        .map(|pe| !unsafe { sys::nvshmem_ptr(address, pe as c_int) }.is_null())
        .collect();
    let board = Board::new(Address::new(address), device, n_pes);
    // From here on the context tells the others.
    let watchdog = std::mem::replace(&mut starting.watchdog, Watchdog::start(None, None, &[], false)?);
    let found = Found {
        device,
        pe,
        n_pes,
        status,
        timeout: options.limit(),
        stream,
        board,
        watchdog,
        near,
        alone,
        has_nccl,
        since,
    };
    let inner = Inner::new(found);
    warm_up(&inner).inspect_err(|error| inner.lose(error))?;
    once::there();
    Ok(inner)
}

/// What was started before goes on as it was, whatever a later start asks for, and says nothing of it.
fn check_idle(keeps: bool) -> Result<()> {
    // SAFETY: may be called at any time.
    let reason = match unsafe { sys::nvshmemx_init_status() } {
        sys::NVSHMEM_STATUS_NOT_INITIALIZED => return Ok(()),
        // A start by the environment outlives its end: all that follow have the same PEs.
        sys::NVSHMEM_STATUS_IS_BOOTSTRAPPED if keeps => return Ok(()),
        sys::NVSHMEM_STATUS_IS_BOOTSTRAPPED => {
            "NVSHMEM has its PEs from an earlier start in this process, and keeps them: expected ContextOptions::with_environment again"
        }
        _ => "somebody else has started NVSHMEM in this process: expected ContextOptions::with_attached",
    };
    Err(Error::InvalidUsage { operation: INIT, reason: reason.to_owned() })
}

/// Has kernels loaded that later calls need: CUDA loads some when they are first launched, and waits for the device then, which another kernel may keep
/// until this one has come.
fn warm_up(inner: &Inner) -> Result<()> {
    let (word, _) = inner.board.own();
    let word = word.ptr();
    inner.on_stream(INIT, &inner.stream, WARMED, (), |stream| {
        let (pe, eq) = (inner.pe as c_int, sys::NVSHMEM_CMP_EQ);
        // SAFETY: the library runs, and the words that this PE sends, on the board that has just been made, are zeros, which no other PE writes to.
        unsafe {
            sys::nvshmemx_signal_op_on_stream(word.cast(), 0, sys::NVSHMEM_SIGNAL_SET, pe, stream);
            sys::nvshmemx_signal_op_on_stream(word.cast(), 0, sys::NVSHMEM_SIGNAL_ADD, pe, stream);
            sys::nvshmemx_quiet_on_stream(stream);
            if inner.is_limited() {
                // There are no waits then.
                return;
            }
            sys::nvshmemx_signal_wait_until_on_stream(word.cast(), eq, 0, stream);
            sys::nvshmemx_int32_wait_until_on_stream(word.cast(), eq, 0, stream);
            sys::nvshmemx_uint32_wait_until_on_stream(word.cast(), eq, 0, stream);
            sys::nvshmemx_int64_wait_until_on_stream(word.cast(), eq, 0, stream);
            sys::nvshmemx_uint64_wait_until_on_stream(word.cast(), eq, 0, stream);
            sys::nvshmemx_int32_wait_until_all_on_stream(word.cast(), 1, ptr::null(), eq, 0, stream);
            sys::nvshmemx_uint32_wait_until_all_on_stream(word.cast(), 1, ptr::null(), eq, 0, stream);
            sys::nvshmemx_int64_wait_until_all_on_stream(word.cast(), 1, ptr::null(), eq, 0, stream);
            sys::nvshmemx_uint64_wait_until_all_on_stream(word.cast(), 1, ptr::null(), eq, 0, stream);
            // The words are zeros, and those to compare with as well.
            let zero = word;
            sys::nvshmemx_int32_wait_until_all_vector_on_stream(word.cast(), 1, ptr::null(), eq, zero.cast(), stream);
            sys::nvshmemx_uint32_wait_until_all_vector_on_stream(word.cast(), 1, ptr::null(), eq, zero.cast(), stream);
            sys::nvshmemx_int64_wait_until_all_vector_on_stream(word.cast(), 1, ptr::null(), eq, zero.cast(), stream);
            sys::nvshmemx_uint64_wait_until_all_vector_on_stream(word.cast(), 1, ptr::null(), eq, zero.cast(), stream);
        }
    })?;
    inner.stream.wait_until(INIT, &inner.deadline())?;
    // PEs that share devices and others do not fit together: what some of them are refused, the others would wait for.
    let plan = Plan {
        numbers: [inner.status as u64, 0, 0, 0, 0, 0],
        explain: |[status, ..]| format!("a context of status {status}"),
        ..Plan::new(INIT, Kind::Settle)
    };
    inner.meet(&plan).map(drop)
}

/// # Safety
/// As [`Context::init`]; attributes that are given are as [`Context::init_with_attr`] has it.
unsafe fn call(way: Option<Way>, given: Given<'_>) -> Result<()> {
    const C: &str = "nvshmemx_hostlib_init_attr";
    if let Some((flags, attr)) = given {
        // SAFETY: as the caller promises.
        return check(C, unsafe { sys::nvshmemx_hostlib_init_attr(flags, attr) });
    }
    let mut attr = MaybeUninit::<sys::nvshmemx_init_attr_t>::zeroed();
    // SAFETY: a place for one of them, whose fields are integers and pointers, for which zeros are values.
    let attr = unsafe {
        sys::gpucommNvshmemAttrInit(attr.as_mut_ptr());
        attr.assume_init_mut()
    };
    match way {
        None | Some(Way::Running) => Ok(()),
        // As `nvshmem_init` does it: a bootstrap that is a plug-in takes no attributes.
        // SAFETY: attributes may be missing where no flag says what they hold.
        Some(Way::Environment) => check(C, unsafe { sys::nvshmemx_hostlib_init_attr(0, ptr::null_mut()) }),
        Some(Way::ContextUniqueId { id, pe, n_pes }) => {
            let id = id.raw();
            // SAFETY: both are valid, and the id, whose address is kept in the attributes, outlives the start.
            unsafe {
                check("nvshmemx_set_attr_uniqueid_args", sys::nvshmemx_set_attr_uniqueid_args(pe, n_pes, &id, attr))?;
                check(C, sys::nvshmemx_hostlib_init_attr(sys::NVSHMEMX_INIT_WITH_UNIQUEID, attr))
            }
        }
    }
}

/// What it means that the library has not come further.
fn not_started(status: c_int) -> Error {
    let message = match status {
        sys::NVSHMEM_STATUS_NOT_INITIALIZED => "it has not started: with attach, somebody else has to start it before".to_owned(),
        sys::NVSHMEM_STATUS_IS_BOOTSTRAPPED => {
            "the PEs have found each other, but no device was set up: a GPU with peer access or a transport is missing, or memory of the device; NVSHMEM_DEBUG=INFO in the environment says more".to_owned()
        }
        other => format!("status {other}, which is not known"),
    };
    Error::Nvshmem { operation: "nvshmemx_init_status", code: NvshmemCode(status), message }
}
