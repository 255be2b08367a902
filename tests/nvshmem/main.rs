//! The C interface of NVSHMEM as it is: what can be asked of it without a GPU, and on GPUs, a group of processes that use
//! it. Needs the library, so not with the emulator.
#![cfg(all(feature = "nvshmem", not(any(gpucomm_emulator, gpucomm_snapshot))))]

mod bootstraps;
mod processes;

use std::mem::{MaybeUninit, size_of};

use gpucomm::sys::*;
use gpucomm::version::{built_nvshmem, check_nvshmem, running_nvshmem};

/// What `initialise` makes of poisoned memory: every byte that it leaves out shows.
fn made<T>(initialise: unsafe extern "C" fn(*mut T)) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: `value` has room for one T. All fields are integers, arrays of them and pointers, valid with any bytes.
    unsafe {
        value.as_mut_ptr().write_bytes(0xa5, 1);
        initialise(value.as_mut_ptr());
        value.assume_init()
    }
}

/// A struct states its size and the number of its layout.
fn layout<T>(version: i32) -> i32 {
    assert_eq!(version as usize & 0xffff, size_of::<T>());
    version >> 16
}

#[test]
fn structs_state_their_versions() {
    let attr = made(gpucommNvshmemAttrInit);
    let newer = i32::from(cfg!(nvshmem_ge_3_5));
    assert_eq!(layout::<nvshmemx_init_attr_t>(attr.version), 1 + newer);
    assert_eq!(layout::<nvshmemx_init_args_t>(attr.args.version), 1 + newer);
    assert_eq!(layout::<nvshmemx_uniqueid_args_t>(attr.args.uid_args.version), 1);
    assert!(attr.mpi_comm.is_null() && attr.args.uid_args.id.is_null());
    assert_eq!((attr.args.uid_args.myrank, attr.args.uid_args.nranks), (-1, -1));
    #[cfg(nvshmem_ge_3_5)]
    assert_eq!(attr.args.cuda_device_id, -1);
    assert!(attr.args.content.iter().all(|&byte| byte == 0));

    let config = made(gpucommNvshmemTeamConfigInit);
    assert_eq!(layout::<nvshmem_team_config_t>(config.version), 1 + i32::from(cfg!(nvshmem_ge_3_3)));
    assert_eq!(config.num_contexts, -1);
    let id = made(gpucommNvshmemUniqueIdInit);
    assert_eq!(layout::<nvshmemx_uniqueid_t>(id.version), 1);
    assert!(id.internal.iter().all(|&byte| byte == 0));
}

#[test]
fn the_library_says_its_version_and_is_not_started() {
    assert_eq!(running_nvshmem().expect("it says so"), built_nvshmem().version);
    check_nvshmem().expect("they are the same");
    // SAFETY: it may be called at any time.
    assert_eq!(unsafe { nvshmemx_init_status() }, NVSHMEM_STATUS_NOT_INITIALIZED);
}

/// It is made by a plug-in, which lies beside the library.
#[test]
fn a_unique_id_is_made_without_a_gpu() {
    let mut id = made(gpucommNvshmemUniqueIdInit);
    // SAFETY: `id` is a valid place for one.
    assert_eq!(unsafe { nvshmemx_get_uniqueid(&mut id) }, NVSHMEMX_SUCCESS);
    assert!(id.internal.iter().any(|&byte| byte != 0));

    let mut attr = made(gpucommNvshmemAttrInit);
    // SAFETY: both are valid, and `id` outlives the use of `attr`.
    assert_eq!(unsafe { nvshmemx_set_attr_uniqueid_args(1, 3, &id, &mut attr) }, NVSHMEMX_SUCCESS);
    let args = attr.args.uid_args;
    assert_eq!((args.myrank, args.nranks, args.id.cast_const()), (1, 3, &raw const id));
}

/// Each name has to be found when the program is linked, and when it starts.
#[test]
fn functions_of_every_family_are_linked() {
    let addresses: Vec<usize> = vec![
        nvshmem_calloc as *const () as usize,
        nvshmemx_mc_ptr as *const () as usize,
        nvshmem_team_split_2d as *const () as usize,
        nvshmemx_putmem_signal_nbi_on_stream as *const () as usize,
        nvshmemx_signal_wait_until_on_stream as *const () as usize,
        nvshmemx_bfloat16_sum_reduce_on_stream as *const () as usize,
        nvshmemx_uint64_xor_reducescatter_on_stream as *const () as usize,
        nvshmemx_fcollectmem_on_stream as *const () as usize,
        #[cfg(nvshmem_ge_3_3)]
        {
            nvshmemx_team_init as *const () as usize
        },
        #[cfg(nvshmem_ge_3_7)]
        {
            nvshmemx_flush_on_stream as *const () as usize
        },
    ];
    assert!(addresses.iter().all(|&address| address != 0));
}
