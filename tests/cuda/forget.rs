//! Drops in every order, and values that are forgotten.

use std::mem::forget;

use gpucomm::{DeviceBuffer, Event, PinnedBuffer, Stream};

use crate::{Gate, LONG, device, random, stream};

#[test]
fn any_order_of_drops() {
    let mut random = random("any_order_of_drops");
    for _ in 0..60 {
        let (a, b) = (stream(), stream());
        let gate = random.bool().then(|| Gate::close(&a));
        let mut x = DeviceBuffer::from_slice(&a, &[1u32; 777]).unwrap();
        let mut y = DeviceBuffer::<u32>::zeroed(&b, 777).unwrap();
        y.copy_from(&b, &x).unwrap();
        x.copy_from(&a, &y).unwrap();
        let event = a.record().unwrap();
        let mut things: Vec<Box<dyn Send>> = vec![Box::new(a), Box::new(b), Box::new(x), Box::new(y), Box::new(event)];
        random.shuffle(&mut things);
        if random.bool() {
            drop(things);
        } else {
            // On other threads.
            let threads: Vec<_> = things.into_iter().map(|t| std::thread::spawn(move || drop(t))).collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
        }
        if let Some(gate) = gate {
            gate.open();
        }
    }
    let stream = stream();
    assert_eq!(DeviceBuffer::from_slice(&stream, &[3u8; 9]).unwrap().to_vec(&stream).unwrap(), [3; 9]);
}

#[test]
fn forgotten_values_leak_and_nothing_else() {
    let (a, b) = (stream(), stream());
    let gate = Gate::close(&a);
    let x = DeviceBuffer::from_slice(&a, &[1u32; 777]).unwrap();
    let mut pinned = PinnedBuffer::<u32>::zeroed(777).unwrap();
    let mut y = DeviceBuffer::<u32>::zeroed(&b, 777).unwrap();
    y.copy_from(&b, &x).unwrap();
    x.copy_to_pinned(&a, &mut pinned).unwrap();
    forget(x);
    forget(pinned);
    forget(a.record().unwrap());
    forget(Event::new(device()).unwrap());
    forget(device().set_current().unwrap());
    forget(a);
    gate.open();
    assert_eq!(y.to_vec(&b).unwrap(), [1; 777]);
    forget(y);
    forget(b);
    let stream = stream();
    assert_eq!(DeviceBuffer::from_slice(&stream, &[3u8; 9]).unwrap().to_vec(&stream).unwrap(), [3; 9]);
}

#[test]
fn dropping_frees() {
    let stream = stream();
    let total = device().memory_info().unwrap().total;
    let part = total / 8;
    for _ in 0..40 {
        DeviceBuffer::<u8>::uninit(&stream, part).unwrap();
    }
    // On streams that come and go, as well.
    for _ in 0..40 {
        let stream = Stream::new(device()).unwrap();
        let buffer = DeviceBuffer::<u8>::uninit(&stream, part).unwrap();
        drop(stream);
        drop(buffer);
    }
}

#[test]
fn dropping_does_not_wait() {
    let (a, b) = (stream(), stream());
    let buffer = DeviceBuffer::from_slice(&a, &[1u32; 777]).unwrap();
    let mut copy = DeviceBuffer::<u32>::zeroed(&b, 777).unwrap();
    let gate = Gate::close(&b);
    copy.copy_from(&b, &buffer).unwrap();
    let start = std::time::Instant::now();
    drop(buffer);
    drop(a);
    assert!(start.elapsed() < std::time::Duration::from_secs(2), "{:?}", start.elapsed());
    gate.open();
    assert_eq!(copy.to_vec(&b).unwrap(), [1; 777]);
}

/// In a host function CUDA must not be called, and so a thread of the crate frees the memory.
#[test]
fn dropping_in_a_host_function_frees() {
    let stream = stream();
    let part = device().memory_info().unwrap().total / 8;
    for _ in 0..40 {
        let start = std::time::Instant::now();
        let buffer = loop {
            match DeviceBuffer::<u8>::uninit(&stream, part) {
                Ok(buffer) => break buffer,
                Err(error) => assert!(start.elapsed() < LONG, "{error}"),
            }
            std::thread::yield_now();
        };
        let pinned = PinnedBuffer::<u8>::zeroed(1000).unwrap();
        stream.launch_host(move || drop((buffer, pinned))).unwrap();
        stream.synchronize().unwrap();
    }
}
