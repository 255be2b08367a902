//! The start and the end.

use std::net::ToSocketAddrs;
use std::sync::Arc;

use crate::cuda::core::device;
use crate::meet::register;
use crate::meet::segment::Id;
use crate::meet::segment::Trouble;
use crate::nvshmem::basics::Kind;
use crate::nvshmem::basics::{Failed, Outcome, cuda, read_variables, refused, wrong};
use crate::nvshmem::launch;
use crate::nvshmem::launch::Bootstrap;
use crate::nvshmem::launch::Job;
use crate::nvshmem::state::boot::Activity;
use crate::nvshmem::state::boot::Boot;
use crate::nvshmem::state::boot::Nvshmem;
use crate::nvshmem::state::life;
use crate::report;
use crate::settings;
use crate::sys::*;

/// The versions that structs state.
const ID: i32 = 1 << 16 | 128;
const ATTR: i32 = 2 << 16 | 144;
const ARGS: i32 = 2 << 16 | 128;
const UID_ARGS: i32 = 1 << 16 | 24;

pub(crate) fn initial_id() -> nvshmemx_uniqueid_t {
    nvshmemx_uniqueid_t { version: ID, internal: [-1; 124] }
}

pub(crate) fn initial_attr() -> nvshmemx_init_attr_t {
    let uid_args = nvshmemx_uniqueid_args_t { version: UID_ARGS, id: std::ptr::null_mut(), myrank: -1, nranks: -1 };
    let args = nvshmemx_init_args_t { version: ARGS, uid_args, cuda_device_id: -1, content: [0; 92] };
    nvshmemx_init_attr_t { version: ATTR, mpi_comm: std::ptr::null_mut(), args }
}

/// `nvshmemx_get_uniqueid`: where PEs will meet. An id of a session is one as others: it is sent to all PEs too.
pub(crate) fn unique_id() -> Outcome<nvshmemx_uniqueid_t> {
    if life::status() != NVSHMEM_STATUS_NOT_INITIALIZED {
        return Err(wrong("an id is made beside a start: NVSHMEM loads its bootstrap anew, under that of the PEs"));
    }
    read_variables();
    if let Some(session) = read_variable("NVSHMEM_BOOTSTRAP_UID_SESSION_ID")
        && session.to_socket_addrs().map_or(0, Iterator::count) == 0
    {
        let expected = "expected address:port, [address]:port or host:port";
        let text = format!("NVSHMEM_BOOTSTRAP_UID_SESSION_ID is {session:?}, {expected}");
        return Err(refused(NVSHMEMX_ERROR_INTERNAL, text));
    }
    let id = register::create::<Nvshmem>().map_err(no_id)?;
    let mut made = initial_id();
    made.internal = [0; 124];
    let bytes = id.words().into_iter().flat_map(u64::to_le_bytes);
    made.internal.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte.cast_signed());
    Ok(made)
}

fn read(id: &nvshmemx_uniqueid_t) -> Id {
    let bytes = id.internal.map(i8::cast_unsigned);
    let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * i + byte]));
    Id::from_words(std::array::from_fn(word))
}

/// `nvshmemx_hostlib_init_attr`.
///
/// # Safety
/// The id that `attr` points to is one, or null.
pub(crate) unsafe fn init(flags: u32, attr: Option<&nvshmemx_init_attr_t>) -> Outcome {
    if let Some(text) = settings::wrong() {
        return Err(refused(NVSHMEMX_ERROR_INTERNAL, text.to_string_lossy()));
    }
    read_variables();
    let (known, job) = life::with(|life| {
        life.users += 1;
        (life.boot.clone(), life.job.clone())
    });
    let boot = match (known, job) {
        (Some(boot), _) => Ok(boot),
        // The PEs are as they were, whatever is asked for now.
        (None, Some(job)) => launched(&job),
        // SAFETY: as here.
        (None, None) => unsafe { bootstrap(flags, attr) },
    };
    let boot = boot.inspect_err(|_| life::with(|life| life.users -= 1))?;
    if life::with(|life| life.pe.is_some()) {
        return Ok(());
    }
    if let Some(wanted) = attr.filter(|attr| attr.version == ATTR).map(|attr| attr.args.cuda_device_id)
        && wanted >= 0
    {
        device::set_current(wanted).map_err(|error| cuda(&format!("cuda_device_id {wanted}"), error))?;
    }
    if !device::current().is_ok_and(|device| device.is_used()) {
        // As the library: the call succeeds, and the start is tried again by the first call that needs it.
        return Ok(());
    }
    life::start(&boot)
}

/// # Safety
/// As for [`init`].
unsafe fn bootstrap(flags: u32, attr: Option<&nvshmemx_init_attr_t>) -> Outcome<Arc<Boot>> {
    let invalid = |text: &str| refused(NVSHMEMX_ERROR_INVALID_VALUE, text);
    let bootstrap = Bootstrap::of(flags, &read_variable)?;
    if bootstrap != Bootstrap::UniqueId {
        if bootstrap == Bootstrap::Mpi && attr.is_some_and(|attr| !attr.mpi_comm.is_null()) {
            let text =
                "the emulator knows no communicator of MPI, expected none in the attribute, which is all processes";
            return Err(refused(NVSHMEMX_ERROR_NOT_SUPPORTED, text));
        }
        let job = Job::of(bootstrap, &read_variable)?;
        let boot = launched(&job)?;
        life::with(|life| life.job = Some(job));
        return Ok(boot);
    }
    let attr = attr.ok_or_else(|| wrong("the attribute is null, and the flags say that it has a unique id"))?;
    let args = &attr.args.uid_args;
    if attr.version >> 16 > 2 || args.id.is_null() {
        return Err(invalid("the attribute names no unique id: expected nvshmemx_set_attr_uniqueid_args before"));
    }
    // SAFETY: not null, and the caller vouches for it.
    let id = unsafe { &*args.id };
    if id.version != ID {
        return Err(wrong(format!("the id has version {}, expected {ID}", id.version)));
    }
    let boot = Boot::meet(args.myrank, args.nranks, read(id))?;
    life::with(|life| life.boot = Some(boot.clone()));
    Ok(boot)
}

/// The PEs of a job meet, for the first time or again.
fn launched(job: &Job) -> Outcome<Arc<Boot>> {
    let starts = life::with(|life| life.starts);
    // A number out of range is refused where they meet.
    let name = job.name.as_ref().filter(|_| (0..job.size).contains(&job.me));
    let place = name.map(|name| format!("{name}, start {starts}"));
    let (id, _written) = match &place {
        None => (register::create::<Nvshmem>().map_err(no_id)?, None),
        Some(place) if job.me == 0 => launch::open_place::<Nvshmem>(place).map(|(id, written)| (id, Some(written)))?,
        Some(place) => (launch::come_to_place::<Nvshmem>(place, job.me), None),
    };
    let boot = Boot::meet(job.me, job.size, id)?;
    life::with(|life| {
        life.boot = Some(boot.clone());
        life.starts += 1;
    });
    Ok(boot)
}

fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn no_id(trouble: Trouble) -> Failed {
    refused(NVSHMEMX_ERROR_INTERNAL, format!("no unique id: {trouble:?}"))
}

/// `nvshmemx_hostlib_finalize`: all PEs.
pub(crate) fn finalize() -> Outcome {
    let (boot, pe, users) = life::with(|life| {
        life.users -= 1;
        (life.boot.clone(), life.pe.clone(), life.users)
    });
    if users < 0 {
        life::with(|life| life.users = 0);
        return Err(wrong("NVSHMEM is not started, or has finalized"));
    }
    let Some(boot) = boot.filter(|_| users == 0) else { return Ok(()) };
    let ended = pe.as_ref().map_or(Ok(()), |pe| {
        pe.quiesce();
        let activity = Activity { kind: Kind::Finalize, team: 0, number: 0, bytes: 0 };
        let world = pe.teams.get(NVSHMEM_TEAM_WORLD)?;
        world.group.meet(&boot, activity, &[], None)?.end()?;
        pe.device.synchronize();
        world.group.meet(&boot, activity, &[], None)?.end()
    });
    boot.leave();
    life::with(|life| {
        life.pe = None;
        life.boot = None;
    });
    // The library waits for the device of the PE, and for no other.
    let uses = pe.map_or(0, |pe| pe.heap.clear());
    if uses > 0 && ended.is_ok() {
        report::violation(format!("NVSHMEM ends while {uses} pieces of queued or running work use symmetric memory"));
    }
    ended
}
