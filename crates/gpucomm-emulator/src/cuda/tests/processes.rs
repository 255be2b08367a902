//! Other processes: memory that they share, and children that are forked.

use super::*;
use crate::memory::object::Location;
use crate::memory::usage::locate;
use crate::memory::usage::reach;

const WHERE: &str = "GPUCOMM_TEST_LOCATION";

#[test]
fn another_process_maps_the_memory_of_a_device() {
    let stream = TestStream::new(1);
    let memory = malloc(8192);
    upload(memory, &[1u32, 2, 3], stream.0);
    stream.wait();
    let middle = memory.wrapping_byte_add(4);
    let (location, used) = locate(middle, 8).unwrap();
    assert_eq!(reach(&location, 8).unwrap().addr(), middle.addr());
    let text = format!(
        "{} {} {} {} {} {}",
        location.pid, location.fd, location.device, location.nonce, location.offset, location.bytes
    );
    elsewhere("cuda::tests::processes::the_other_side", &[(WHERE, &text)]);
    assert_eq!(download::<u32>(memory, 3, stream.0), [1, 20, 3]);
    let stale = Location { nonce: location.nonce.wrapping_add(1), ..location };
    assert!(reach(&stale, 8).is_err());
    drop(used);
    ok!(cudaFree(memory));
}

#[test]
fn the_other_side() {
    let Ok(text) = std::env::var(WHERE) else { return };
    let mut numbers = text.split(' ');
    let mut next = || numbers.next().unwrap().parse::<i64>().unwrap();
    let (pid, fd, device) = (next() as u32, next() as i32, next() as i32);
    let location = Location { pid, fd, device, nonce: next() as i32, offset: next() as u64, bytes: next() as u64 };
    if location.pid == std::process::id() {
        return;
    }
    let ptr = reach(&location, 8).unwrap().cast::<u32>();
    assert_eq!(ptr, reach(&location, 8).unwrap().cast::<u32>(), "mapped once");
    // SAFETY: the parent keeps these eight bytes alive and does not touch them meanwhile.
    unsafe {
        assert_eq!((ptr.read(), ptr.add(1).read()), (2, 3));
        ptr.write(20);
    }
    let stale = Location { nonce: location.nonce.wrapping_add(1), ..location };
    assert!(reach(&stale, 8).is_err(), "another arena of the same process and descriptor");
    let outside = Location { offset: location.bytes, ..location };
    assert!(reach(&outside, 8).is_err());
}

#[test]
fn a_forked_child_is_told_that_it_cannot_work() {
    isolated!(&[], || {
        let memory = malloc(8);
        // SAFETY: the child calls two functions that take no lock, and ends without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut count = 0;
            let refused = c!(cudaGetDeviceCount(&mut count)) == cudaError::cudaErrorInitializationError;
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        ok!(cudaFree(memory));
    });
}

#[test]
fn a_process_ends_while_its_streams_are_busy() {
    let start = Instant::now();
    let output = isolated!(&[], || {
        for device in 0..4 {
            let stream = TestStream::new(device);
            std::mem::forget(stream.close_gate());
            std::mem::forget(stream);
        }
    });
    assert!(output.is_none() || start.elapsed() < Duration::from_secs(30));
}
