//! The start, the end, and symmetric memory.

use super::*;

pub(super) const SCENES: &[(&str, Scene)] = &[
    ("heap", heap),
    ("again", again),
    ("shared", shared),
    ("nodes", nodes),
    ("regions", regions),
    ("host memory", host_memory),
];

#[test]
fn heaps_are_alike_and_memory_is_reused() {
    for size in 1..=4 {
        play_well("heap", size, &[]);
    }
}

fn heap(stage: &Stage) {
    // SAFETY: all PEs do the same.
    unsafe {
        assert_eq!((nvshmem_my_pe(), nvshmem_n_pes()), (stage.me as i32, stage.size as i32));
        assert_eq!(nvshmemx_init_status(), NVSHMEM_STATUS_IS_INITIALIZED);
        assert!(nvshmem_malloc(0).is_null());
        let first = nvshmem_malloc(1000);
        let sizes = [1, 4096, 3 << 20, 77];
        let all: Vec<*mut c_void> = sizes.iter().map(|&size| nvshmem_malloc(size)).collect();
        let offsets: Vec<usize> = all.iter().map(|memory| memory.addr() - first.addr()).collect();
        let told = stage.words(16, 0);
        let target = told.add(4);
        for (at, offset) in offsets.iter().enumerate() {
            nvshmem_uint64_p(target.add(at), *offset as u64, stage.next() as i32);
        }
        stage.barrier();
        assert_eq!(stage.read(target, 4), offsets.iter().map(|&offset| offset as u64).collect::<Vec<_>>());
        all.into_iter().for_each(|memory| nvshmem_free(memory));
        let aligned = nvshmem_align(1 << 16, 100);
        assert!(aligned.addr().is_multiple_of(1 << 16));
        nvshmem_free(aligned);
        let zeros = nvshmem_calloc(100, 8).cast::<u64>();
        assert_eq!(stage.read(zeros, 100), [0; 100]);
        nvshmem_free(zeros.cast());
        assert_eq!(nvshmem_malloc(1 << 50), null_mut());
        nvshmem_free(null_mut());
        // The rest goes with the end.
        let peer = nvshmem_ptr(told.cast(), stage.next() as i32).cast::<u64>();
        stage.fill(peer.add(1), &[700 + stage.me as u64]);
        stage.barrier();
        assert_eq!(stage.read(told.add(1), 1), [700 + stage.previous() as u64]);
        assert!(nvshmem_ptr(stage.stream.cast(), 0).is_null());
        assert!(nvshmemx_mc_ptr(NVSHMEM_TEAM_WORLD, told.cast()).is_null());
    }
}

#[test]
fn a_process_starts_as_often_as_it_likes() {
    play_well("again", 1, &[]);
}

fn again(stage: &Stage) {
    // SAFETY: this is the only PE.
    unsafe {
        for round in 0..50 {
            nvshmemx_hostlib_finalize();
            assert_eq!(nvshmemx_init_status(), NVSHMEM_STATUS_NOT_INITIALIZED);
            let mut id = unique_id();
            assert_eq!(begin(0, 1, &mut id, 0), 0);
            let memory = stage.words(1 << 17, round);
            assert_eq!(stage.read(memory, 1), [round]);
        }
    }
}

#[test]
fn pes_may_share_a_device() {
    play_well("shared", 2, &[("SHARED", "1")]);
    play_well("shared", 2, &[("SHARED", "1"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")]);
}

fn shared(stage: &Stage) {
    let full = std::env::var_os("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").is_some();
    let memory = stage.words(2, 0);
    // SAFETY: as C asks for it.
    unsafe {
        let status = if full { NVSHMEM_STATUS_FULL_MPG } else { NVSHMEM_STATUS_LIMITED_MPG };
        assert_eq!(nvshmemx_init_status(), status);
        nvshmem_uint64_p(memory, 5 + stage.me as u64, stage.next() as i32);
        nvshmemx_barrier_all_on_stream(stage.stream);
    }
    assert_eq!(stage.read(memory, 1), [5 + stage.previous() as u64]);
}

#[test]
fn other_nodes_are_out_of_reach() {
    play_well("nodes", 4, &[("GPUCOMM_EMULATOR_NODE", "2")]);
}

fn nodes(stage: &Stage) {
    let memory = stage.words(1, 0);
    // SAFETY: as C asks for it.
    unsafe {
        for pe in 0..4 {
            assert_eq!(nvshmem_ptr(memory.cast(), pe as i32).is_null(), pe / 2 != stage.me / 2);
        }
        assert_eq!(nvshmem_team_n_pes(NVSHMEMX_TEAM_NODE), 2);
        assert_eq!(nvshmem_team_my_pe(NVSHMEMX_TEAM_SAME_MYPE_NODE), stage.me as i32 / 2);
        let across = nvshmem_team_translate_pe(NVSHMEMX_TEAM_SAME_MYPE_NODE, 1, NVSHMEM_TEAM_WORLD);
        assert_eq!(across as usize, 2 + stage.me % 2);
        assert_eq!(nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, (stage.me as i32 + 2) % 4, NVSHMEM_TEAM_SHARED), -1);
        nvshmem_uint64_p(memory, 9 + stage.me as u64, stage.next() as i32);
        stage.barrier();
    }
    assert_eq!(stage.read(memory, 1), [9 + stage.previous() as u64]);
}

#[test]
fn memory_that_programs_have_mapped_becomes_symmetric() {
    for size in 1..=3 {
        play_well("regions", size, &[]);
    }
}

fn regions(stage: &Stage) {
    use crate::memory::access::Access;
    use crate::memory::mapped;
    use crate::memory::mapped::{Nature, Physical};

    let (bytes, device) = (mapped::GRANULARITY, stage.me as i32);
    let nature = Nature { ordinal: device, handles: 1, rdma: false };
    let physical = Physical::new(bytes as u64, nature).unwrap();
    let base = mapped::reserve(bytes, 0).unwrap();
    mapped::map(base, bytes, &physical).unwrap();
    mapped::set_access(base, bytes, &[(device, Access::ReadWrite)]).unwrap();
    let (next, own) = (stage.next() as i32, std::ptr::with_exposed_provenance_mut::<u64>(base));
    stage.fill(own, &[1, 2, 3]);
    let plain = stage.words(4, 0);
    // SAFETY: as C asks for it.
    unsafe {
        assert!(nvshmemx_buffer_register_symmetric(own.cast(), bytes, 1).is_null());
        assert!(nvshmemx_buffer_register_symmetric(plain.cast(), 32, 0).is_null());
        for round in 0..3 {
            let shared = nvshmemx_buffer_register_symmetric(own.cast(), bytes, 0).cast::<u64>();
            assert!(!shared.is_null() && shared != own);
            assert!(nvshmemx_buffer_register_symmetric(own.cast(), bytes, 0).is_null(), "twice");
            nvshmem_uint64_p(shared.add(1), 40 + round + stage.me as u64, next);
            stage.barrier();
            assert_eq!(stage.read(own, 3), [1, 40 + round + stage.previous() as u64, 3]);
            stage.fill(plain, &[7; 4]);
            assert_eq!(nvshmemx_uint64_sum_reduce_on_stream(0, shared.add(8), plain, 4, stage.stream), 0);
            assert_eq!(stage.read(own.add(8), 4), [7 * stage.size as u64; 4]);
            let peer = nvshmem_ptr(shared.cast(), next).cast::<u64>();
            assert_eq!(stage.read(peer, 1), [1]);
            assert_eq!(nvshmemx_buffer_unregister_symmetric(shared.cast(), 8), NVSHMEMX_ERROR_INVALID_VALUE);
            assert_eq!(nvshmemx_buffer_unregister_symmetric(shared.cast(), bytes), 0);
        }
    }
    mapped::unmap(base, bytes).unwrap();
    mapped::free(base, bytes).unwrap();
}

#[test]
fn memory_of_the_host_is_registered_before_it_is_used() {
    play_well("host memory", 2, &[]);
}

fn host_memory(stage: &Stage) {
    let target = stage.words(4, 0);
    let mut host = vec![10 + stage.me as u64; 4];
    let address = host.as_mut_ptr().cast::<c_void>();
    // SAFETY: as C asks for it; the vector lives until it is unregistered.
    unsafe {
        assert_eq!(nvshmemx_buffer_register(address, 32), 0);
        assert_eq!(nvshmemx_buffer_register(address, 8), NVSHMEMX_ERROR_INVALID_VALUE);
        assert_eq!(nvshmemx_buffer_register(target.cast(), 8), NVSHMEMX_ERROR_INVALID_VALUE);
        nvshmem_putmem(target.cast(), address, 32, stage.next() as i32);
        stage.barrier();
        assert_eq!(stage.read(target, 4), [10 + stage.previous() as u64; 4]);
        nvshmem_getmem(address, target.cast(), 32, stage.next() as i32);
        stage.barrier();
        assert_eq!(nvshmemx_buffer_unregister(address), 0);
        assert_eq!(nvshmemx_buffer_unregister(address), NVSHMEMX_ERROR_INVALID_VALUE);
        nvshmemx_buffer_unregister_all();
    }
    assert_eq!(host, [10 + stage.me as u64; 4]);
}
