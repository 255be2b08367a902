//! By attributes of the caller.

use std::mem::MaybeUninit;

use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
use gpucomm::{Backend, Error, NvshmemCode, sys};

use super::works;
use crate::support::{SIZES, Seat, as_pes, as_pes_with, errors};

fn empty() -> sys::nvshmemx_init_attr_t {
    let mut attr = MaybeUninit::uninit();
    // SAFETY: a place for attributes, all of whose bytes are set.
    unsafe {
        sys::gpucommNvshmemAttrInit(attr.as_mut_ptr());
        attr.assume_init()
    }
}

fn shared(seat: &Seat) -> sys::nvshmemx_uniqueid_t {
    let id = *ContextUniqueId::shared(&seat.exchange).unwrap().as_bytes();
    // SAFETY: both are 128 bytes without padding, and every byte is a value.
    unsafe { std::mem::transmute::<[u8; ContextUniqueId::BYTES], sys::nvshmemx_uniqueid_t>(id) }
}

fn options(seat: &Seat) -> ContextOptions {
    ContextOptions::new().with_device(seat.device).with_timeout(seat.limit())
}

fn start(options: ContextOptions, flags: u32, attr: &mut sys::nvshmemx_init_attr_t) -> gpucomm::Result<Context> {
    // SAFETY: all PEs of a test do it; what the attributes point to lives, or they point nowhere.
    unsafe { Context::init_with_attr(&options, flags, attr) }
}

/// Those that a unique id would have.
fn with_id(seat: &Seat, id: &sys::nvshmemx_uniqueid_t) -> sys::nvshmemx_init_attr_t {
    let mut attr = empty();
    // SAFETY: both are valid, and the caller keeps the id.
    assert_eq!(unsafe { sys::nvshmemx_set_attr_uniqueid_args(seat.pe as i32, seat.n_pes as i32, id, &mut attr) }, 0);
    attr
}

#[test]
fn of_a_unique_id() {
    as_pes(&SIZES, |seat| {
        for round in 0..2 {
            let id = shared(seat);
            // With an exchange the watchdog knows more, and it says nothing of how to start.
            let options = if round == 0 { options(seat) } else { seat.options() };
            works(seat, start(options, sys::NVSHMEMX_INIT_WITH_UNIQUEID, &mut with_id(seat, &id)).unwrap());
        }
    });
}

/// No flags are the environment.
#[test]
fn of_nothing() {
    as_pes_with(&[1], &[("NVSHMEM_BOOTSTRAP", "MPI")], |seat| {
        if gpucomm::backend() == Backend::Emulator {
            for _ in 0..2 {
                works(seat, start(options(seat), 0, &mut empty()).unwrap());
            }
            // It keeps its PEs, and would take no notice of an id: none is made, and none is taken.
            let error = ContextUniqueId::new().expect_err("it has PEs");
            errors::names(&error, &["nvshmem::ContextUniqueId::new", "keeps them"]);
            let mut id = MaybeUninit::uninit();
            // SAFETY: a place for an id, all of whose bytes are set.
            let id = unsafe {
                sys::gpucommNvshmemUniqueIdInit(id.as_mut_ptr());
                id.assume_init()
            };
            let flag = sys::NVSHMEMX_INIT_WITH_UNIQUEID;
            let error = start(options(seat), flag, &mut with_id(seat, &id)).expect_err("other PEs");
            errors::names(&error, &["keeps them"]);
        }
    });
}

/// Under a launcher that the library does not find, no flags are as no attributes: each would be the only PE.
#[test]
fn of_nothing_beside_others() {
    as_pes_with(&[2], &[("OMPI_COMM_WORLD_SIZE", "{n_pes}")], |seat| {
        let error = start(options(seat), 0, &mut empty()).expect_err("each is alone");
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
        errors::names(&error, &["OMPI_COMM_WORLD_SIZE", "2 processes"]);
    });
}

/// Who says in the attributes who there is, is taken at their word.
#[test]
fn of_an_id_of_one_beside_others() {
    as_pes_with(&[2], &[("OMPI_COMM_WORLD_SIZE", "{n_pes}")], |seat| {
        let id = *ContextUniqueId::new().unwrap().as_bytes();
        // SAFETY: both are 128 bytes without padding, and every byte is a value.
        let id = unsafe { std::mem::transmute::<[u8; ContextUniqueId::BYTES], sys::nvshmemx_uniqueid_t>(id) };
        let mut attr = empty();
        // SAFETY: both are valid, and the id is kept.
        assert_eq!(unsafe { sys::nvshmemx_set_attr_uniqueid_args(0, 1, &id, &mut attr) }, 0);
        let ctx = start(options(seat), sys::NVSHMEMX_INIT_WITH_UNIQUEID, &mut attr).unwrap();
        assert_eq!((ctx.pe().0, ctx.n_pes()), (0, 1));
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// They say how to start, and nothing else does.
#[test]
fn beside_another_way() {
    as_pes(&[1, 2], |seat| {
        let id = shared(seat);
        let other = ContextUniqueId::from_bytes([0; ContextUniqueId::BYTES]);
        for options in [
            options(seat).with_environment(),
            options(seat).with_attached(),
            seat.options().with_unique_id(&other, seat.pe, seat.n_pes),
        ] {
            let error =
                start(options, sys::NVSHMEMX_INIT_WITH_UNIQUEID, &mut with_id(seat, &id)).expect_err("two ways");
            assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
            errors::names(&error, &["the attributes say how PEs find each other"]);
        }
        works(seat, start(options(seat), sys::NVSHMEMX_INIT_WITH_UNIQUEID, &mut with_id(seat, &id)).unwrap());
    });
}

/// No id, or a PE that there is none: NVSHMEM crashes, and the emulator says so.
#[test]
fn that_are_wrong() {
    as_pes(&[1], |seat| {
        if gpucomm::backend() == Backend::Emulator {
            let error = start(options(seat), sys::NVSHMEMX_INIT_WITH_UNIQUEID, &mut empty()).expect_err("no id");
            assert!(matches!(error, Error::Nvshmem { code: NvshmemCode(1), .. }), "{error:?}");
        }
    });
}

#[test]
fn of_a_pe_that_there_is_none() {
    as_pes(&[1], |seat| {
        if gpucomm::backend() == Backend::Emulator {
            let id = shared(seat);
            let mut attr = with_id(seat, &id);
            attr.args.uid_args.myrank = 1;
            let error = start(options(seat), sys::NVSHMEMX_INIT_WITH_UNIQUEID, &mut attr).expect_err("PE 1 of 1");
            assert!(matches!(error, Error::Nvshmem { code: NvshmemCode(1), .. }), "{error:?}");
        }
    });
}

/// A communicator of MPI is a place that the emulator does not look into.
#[test]
fn of_mpi() {
    as_pes(&[1], |seat| {
        if gpucomm::backend() == Backend::Emulator {
            const WITH_MPI_COMM: u32 = 2;
            let mut attr = empty();
            attr.mpi_comm = (&raw mut attr).cast();
            let error = start(options(seat), WITH_MPI_COMM, &mut attr).expect_err("a communicator");
            assert!(matches!(error, Error::Nvshmem { code: NvshmemCode(3), .. }), "{error:?}");
        }
    });
}
