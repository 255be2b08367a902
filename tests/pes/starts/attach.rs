//! Where somebody else has started the library.

use std::mem::MaybeUninit;
use std::time::Instant;

use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Status, TeamConfig, TeamPe};
use gpucomm::{Error, Stream, sys};

use super::works;
use crate::support::{SIZES, Seat, WorkLoop, as_pes, errors, given_up_busy, slower};

/// Starts it, as a library in C would, on a device that is in use.
fn start(seat: &Seat) {
    let _current = seat.device.set_current().unwrap();
    let _stream = Stream::new(seat.device).unwrap();
    let id = *ContextUniqueId::shared(&seat.exchange).unwrap().as_bytes();
    // SAFETY: both are 128 bytes without padding, and every byte is a value.
    let id = unsafe { std::mem::transmute::<[u8; ContextUniqueId::BYTES], sys::nvshmemx_uniqueid_t>(id) };
    let (pe, n_pes) = (seat.pe as i32, seat.n_pes as i32);
    let mut attr = MaybeUninit::uninit();
    // SAFETY: a place for attributes, which are valid then; the id lives until the start is over. All PEs do it.
    unsafe {
        sys::gpucommNvshmemAttrInit(attr.as_mut_ptr());
        assert_eq!(sys::nvshmemx_set_attr_uniqueid_args(pe, n_pes, &id, attr.as_mut_ptr()), 0);
        assert_eq!(sys::nvshmemx_hostlib_init_attr(sys::NVSHMEMX_INIT_WITH_UNIQUEID, attr.as_mut_ptr()), 0);
    }
}

fn status() -> i32 {
    // SAFETY: may be called at any time.
    unsafe { sys::nvshmemx_init_status() }
}

fn finalize() {
    // SAFETY: it runs, all PEs do it, and no context is there.
    unsafe { sys::nvshmemx_hostlib_finalize() }
}

fn attached(seat: &Seat) -> Context {
    seat.start_as(ContextOptions::new().with_device(seat.device).with_timeout(seat.limit()).with_attached()).unwrap()
}

/// Contexts come and go, and whoever has started the library ends it; then it can start as ever.
#[test]
fn a_context_leaves_it_running() {
    as_pes(&SIZES, |seat| {
        start(seat);
        let runs = status();
        for _ in 0..3 {
            works(seat, attached(seat));
            assert_eq!(status(), runs);
        }
        given_up_busy(seat, attached(seat), false);
        // SAFETY: it runs, and all PEs allocate as much.
        let memory = unsafe { sys::nvshmem_malloc(1 << 12) };
        assert!(!memory.is_null());
        works(seat, attached(seat));
        // SAFETY: memory from above, which all PEs free.
        unsafe { sys::nvshmem_free(memory) };
        finalize();
        assert_eq!(status(), sys::NVSHMEM_STATUS_NOT_INITIALIZED);
        works(seat, seat.start().unwrap());
    });
}

/// What a context forgets stays with the library, and is told.
#[test]
fn what_is_forgotten_is_reported() {
    as_pes(&[1, 2], |seat| {
        start(seat);
        let ctx = attached(seat);
        std::mem::forget(ctx.alloc::<u32>(10).unwrap());
        let leaks = ctx.close().unwrap();
        assert_eq!((leaks.buffers, leaks.bytes), (1, 40));
        works(seat, attached(seat));
        finalize();
    });
}

/// Another thread always has work on the device of PE 0, which can free memory that PE 1 has forgotten: the end takes no longer than its timeout.
#[test]
fn an_end_beside_a_loop() {
    as_pes(&[2], |seat| {
        start(seat);
        let limit = slower(3.0);
        let ctx =
            seat.start_as(ContextOptions::new().with_device(seat.device).with_timeout(limit).with_attached()).unwrap();
        let memory = ctx.alloc::<u32>(10).unwrap();
        let busy = (seat.pe == 0).then(|| WorkLoop::start(seat.device, limit.mul_f32(0.05)));
        if seat.pe == 0 {
            drop(memory)
        } else {
            std::mem::forget(memory)
        }
        let begin = Instant::now();
        assert_eq!(ctx.close().unwrap().buffers, 1);
        assert!(begin.elapsed() < limit, "{:?}", begin.elapsed());
        drop(busy);
        finalize();
    });
}

/// The library would take no notice of another id: it is not asked, and attach works after the error.
#[test]
fn another_start_is_an_error() {
    as_pes(&[1, 2], |seat| {
        start(seat);
        for options in [seat.options(), ContextOptions::new().with_device(seat.device).with_environment()] {
            let error = seat.start_as(options).expect_err("it runs");
            assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
            errors::names(&error, &["somebody else has started NVSHMEM", "ContextOptions::with_attached"]);
            seat.meet();
        }
        works(seat, attached(seat));
        finalize();
    });
}

/// Beside the one, there is no other.
#[test]
fn a_second_context() {
    as_pes(&[1, 2], |seat| {
        start(seat);
        // Nor is an id made, with the context or without.
        let error = ContextUniqueId::new().expect_err("it runs");
        errors::names(&error, &["somebody else has started NVSHMEM"]);
        let ctx = attached(seat);
        let second =
            seat.start_as(ContextOptions::new().with_device(seat.device).with_attached()).expect_err("there is one");
        errors::names(&second, &["there is a context in this process already"]);
        works(seat, ctx);
        finalize();
    });
}

/// The library goes on after the context: what was dropped goes, also where it is more than one meeting takes.
#[test]
fn what_was_dropped_goes_with_the_context() {
    as_pes(&[1, 2], |seat| {
        start(seat);
        for _ in 0..3 {
            let ctx = attached(seat);
            if ctx.status() == Status::LimitedMpg {
                ctx.close().unwrap();
                break;
            }
            let mut world = ctx.world().unwrap();
            let config = TeamConfig::default();
            let teams: Vec<_> = (0..20).map(|_| world.split_strided(TeamPe(0), 1, 1, &config).unwrap()).collect();
            let buffers: Vec<_> = (0..10).map(|_| ctx.alloc::<u32>(10).unwrap()).collect();
            drop((teams, buffers, world));
            assert!(ctx.close().unwrap().is_empty());
        }
        finalize();
    });
}
