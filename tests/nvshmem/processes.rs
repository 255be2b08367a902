//! Processing elements: this program, started once for each GPU, moves data through symmetric memory and reduces it.

use std::ffi::c_int;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use gpucomm::sys::*;
use gpucomm::{Device, Error, Stream};

use super::made;

/// How a child learns which element it is: `PE of N, unique id in hexadecimal`.
const ROLE: &str = "GPUCOMM_TEST_NVSHMEM";
/// Elements of each array: odd, and more than a block of any kernel.
const LEN: usize = 100_003;
const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn every_gpu_is_an_element() {
    let devices = match Device::all() {
        Ok(devices) => devices.len(),
        Err(error @ Error::NoDevice { .. }) => {
            println!("skipped: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut id = made(gpucommNvshmemUniqueIdInit);
    // SAFETY: `id` is a valid place for one.
    assert_eq!(unsafe { nvshmemx_get_uniqueid(&mut id) }, NVSHMEMX_SUCCESS);
    let hex: String = id.internal.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
    let program = std::env::current_exe().expect("the path of this program");
    let start = |pe: usize| {
        let mut command = Command::new(&program);
        command.args(["--exact", "processes::child", "--ignored", "--nocapture"]);
        command.env(ROLE, format!("{pe} {devices} {} {hex}", id.version)).spawn().expect("a process")
    };
    let children: Vec<Child> = (0..devices).map(start).collect();
    let deadline = Instant::now() + LIMIT;
    let ends: Vec<_> = children.into_iter().map(|child| finish(child, deadline)).collect();
    assert!(ends.iter().all(|end| *end == Some(true)), "of {devices} elements: {ends:?}");
}

/// Waits for a child until the deadline, and kills it then.
fn finish(mut child: Child, deadline: Instant) -> Option<bool> {
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status.success());
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "the body of child processes"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let parts: Vec<&str> = role.split(' ').collect();
    let [pe, size, version, hex] = parts[..] else { panic!("{ROLE}={role}") };
    let (pe, size): (usize, usize) = (pe.parse().expect("a number"), size.parse().expect("a number"));
    let mut id = made(gpucommNvshmemUniqueIdInit);
    id.version = version.parse().expect("a number");
    for (i, byte) in id.internal.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal") as _;
    }
    element(pe, size, &id);
}

fn element(pe: usize, size: usize, id: &nvshmemx_uniqueid_t) {
    let device = Device::new(pe).expect("a device for each element");
    let _current = device.set_current().expect("the device");
    let stream = Stream::new(device).expect("a stream");
    let int = |n: usize| c_int::try_from(n).expect("few");
    let mut attr = made(gpucommNvshmemAttrInit);
    // SAFETY: all pointers are valid, and the id stays until the start is over. Every element starts once.
    unsafe {
        assert_eq!(nvshmemx_set_attr_uniqueid_args(int(pe), int(size), id, &mut attr), NVSHMEMX_SUCCESS);
        assert_eq!(nvshmemx_hostlib_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &mut attr), NVSHMEMX_SUCCESS);
        assert_eq!(nvshmemx_init_status(), NVSHMEM_STATUS_IS_INITIALIZED);
        assert_eq!((nvshmem_my_pe(), nvshmem_n_pes()), (int(pe), int(size)));
    }

    let value = |of: usize, i: usize| (of as u64 + 1) << 32 | i as u64;
    let own: Vec<u64> = (0..LEN).map(|i| value(pe, i)).collect();
    // SAFETY: every element allocates the same sizes in the same order.
    let [source, target] = [(); 2].map(|()| unsafe { nvshmem_malloc(LEN * size_of::<u64>()) }.cast::<u64>());
    assert!(!source.is_null() && !target.is_null());
    write(source, &own, &stream);
    write(target, &[u64::MAX; LEN], &stream);

    // To the next element; nobody writes before everybody has poisoned, or reads before everybody has written.
    // SAFETY: arrays of LEN elements on each side, a rank below the number of them, and a live stream.
    unsafe {
        nvshmemx_barrier_all_on_stream(stream.as_raw().cast());
        let next = int((pe + 1) % size);
        nvshmemx_putmem_on_stream(target.cast(), source.cast(), LEN * size_of::<u64>(), next, stream.as_raw().cast());
        nvshmemx_barrier_all_on_stream(stream.as_raw().cast());
    }
    let before = (pe + size - 1) % size;
    assert_eq!(read(target, &stream), (0..LEN).map(|i| value(before, i)).collect::<Vec<_>>());

    // SAFETY: as above; source and target do not overlap.
    unsafe {
        nvshmemx_barrier_all_on_stream(stream.as_raw().cast());
        let reduced =
            nvshmemx_uint64_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, target, source, LEN, stream.as_raw().cast());
        assert_eq!(reduced, 0);
    }
    let sum = |i: usize| (0..size).map(|of| value(of, i)).sum::<u64>();
    assert_eq!(read(target, &stream), (0..LEN).map(sum).collect::<Vec<_>>());

    // SAFETY: every element frees both in the same order; nothing uses them any more, and nothing follows.
    unsafe {
        nvshmem_barrier_all();
        nvshmem_free(target.cast());
        nvshmem_free(source.cast());
        nvshmemx_hostlib_finalize();
    }
    println!("element {pe} of {size} is done");
}

fn write(target: *mut u64, values: &[u64], stream: &Stream) {
    // SAFETY: the array on the device has as many elements; they are waited for while `values` lives.
    let code = unsafe {
        cudaMemcpyAsync(
            target.cast(),
            values.as_ptr().cast(),
            size_of_val(values),
            cudaMemcpyKind::cudaMemcpyHostToDevice,
            stream.as_raw(),
        )
    };
    assert_eq!(code, cudaError_t::cudaSuccess);
    stream.synchronize_timeout(LIMIT).expect("the copy");
}

fn read(source: *const u64, stream: &Stream) -> Vec<u64> {
    let mut values = vec![0; LEN];
    // SAFETY: as in `write`.
    let code = unsafe {
        cudaMemcpyAsync(
            values.as_mut_ptr().cast(),
            source.cast(),
            size_of_val(&values[..]),
            cudaMemcpyKind::cudaMemcpyDeviceToHost,
            stream.as_raw(),
        )
    };
    assert_eq!(code, cudaError_t::cudaSuccess);
    stream.synchronize_timeout(LIMIT).expect("the copy");
    values
}
