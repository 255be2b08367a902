//! Registered memory that is given up while a stream is at work on it.

use std::time::Duration;

use gpucomm::nvshmem::Context;
use gpucomm::{DeviceBuffer, Stream};

use super::seat::Seat;
use super::slower::slower;

/// Gives some up to `ctx`, for which the drop does not wait long enough, and ends that: the memory is free then, or goes with the graph that has it.
pub fn given_up_busy(seat: &Seat, ctx: Context, in_graph: bool) {
    let free = || seat.device.memory_info().unwrap().free;
    let timeout = gpucomm::default_timeout();
    let stream = Stream::new(seat.device).unwrap();
    // What is free is kept in a pool: there is room in it for one.
    let one = || DeviceBuffer::<u8>::zeroed(&stream, 64 << 20).unwrap();
    drop(one());
    stream.synchronize().unwrap();
    let before = free();
    let mut registered = ctx.register(one()).unwrap();
    let graph = in_graph.then(|| stream.capture(|stream| registered.as_slice_mut().fill(stream, 1)).unwrap());
    stream.launch_host(|| std::thread::sleep(slower(0.5))).unwrap();
    registered.as_slice_mut().fill(&stream, 3).unwrap();
    gpucomm::set_default_timeout(Duration::from_millis(20));
    drop(registered);
    gpucomm::set_default_timeout(timeout);
    assert!(ctx.close().unwrap().is_empty());
    stream.synchronize().unwrap();
    drop(graph);
    // It has that room, and needs no other.
    drop(one());
    stream.synchronize().unwrap();
    let less = before.saturating_sub(free());
    assert!(less < 32 << 20, "{less} bytes less");
    seat.meet();
}
