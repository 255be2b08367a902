//! What this crate comes to by other means than one function.

use gpucomm::sys;

use super::moved::compare_one;
use crate::support::random::same;
use crate::support::{with_context, with_contexts};

/// Memory that the library zeroes, and memory that this crate does: also where it was used before.
#[test]
fn zeroes() {
    with_context(|here| {
        let (ctx, stream) = (here.ctx, here.stream);
        for round in 1..4u8 {
            let len = 100 * usize::from(round);
            let call = || {
                let _current = here.seat.device.set_current().unwrap();
                // SAFETY: the library runs, and all PEs allocate as much.
                unsafe { sys::nvshmem_calloc(len, 1) }
            };
            let memory = call();
            assert!(!memory.is_null());
            // A place that others copy to: no slice of this crate has memory that is not its own.
            let mut all = ctx.alloc::<u8>(len).unwrap();
            same("zeroes of this crate", &all.to_vec(stream).unwrap(), &vec![0; len]);
            {
                let _current = here.seat.device.set_current().unwrap();
                // SAFETY: both are symmetric memory of so many bytes, of this PE; nobody uses them.
                unsafe { sys::nvshmem_getmem(all.as_raw(), memory, len, here.next(1).0 as i32) };
            }
            same("zeroes of the library", &all.to_vec(stream).unwrap(), &vec![0; len]);
            here.settle();
            all.fill(stream, round).unwrap();
            here.settle();
            {
                let _current = here.seat.device.set_current().unwrap();
                // SAFETY: as above; what is freed then is used by none, and all PEs free it.
                unsafe {
                    sys::nvshmem_putmem(memory, all.as_raw(), len, here.pe() as i32);
                    sys::nvshmem_barrier_all();
                    sys::nvshmem_free(memory);
                }
            }
            drop(all);
            ctx.reclaim().unwrap();
        }
    });
}

/// Collectives in bytes that the library waits for.
#[test]
fn waited_for() {
    with_contexts(&[1, 2, 3], |here| {
        if !here.is_whole() {
            return;
        }
        let team = here.ctx.world().unwrap().as_raw();
        type Call = unsafe extern "C" fn(i32, *mut std::ffi::c_void, *const std::ffi::c_void, usize) -> i32;
        let calls: [(&str, Call); 2] =
            [("nvshmem_fcollectmem", sys::nvshmem_fcollectmem), ("nvshmem_alltoallmem", sys::nvshmem_alltoallmem)];
        for (name, call) in calls {
            compare_one::<4>(here, name, 4, |dest, source, bytes, _| {
                let _current = here.seat.device.set_current().unwrap();
                // SAFETY: symmetric memory with room for so many bytes of each member, and all of them call it.
                assert_eq!(unsafe { call(team, dest, source, bytes) }, 0, "{name}");
            });
        }
        compare_one::<4>(here, "nvshmem_broadcastmem", 4, |dest, source, bytes, root| {
            let _current = here.seat.device.set_current().unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { sys::nvshmem_broadcastmem(team, dest, source, bytes, root as i32) }, 0);
        });
    });
}
