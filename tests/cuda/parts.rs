//! Parts of buffers: chunks, owned splits, parts of pinned memory, and the same memory as elements of another type.

use gpucomm::{DeviceBuffer, Error, PinnedBuffer, Stream};

use crate::{Gate, Particle, device, random, samples, stream};

#[test]
fn chunks_are_those_of_slices() {
    let stream = stream();
    let mut random = random("chunks_are_those_of_slices");
    for len in [0, 1, 2, 9, 10, 11, 100] {
        let values: Vec<u16> = samples(&mut random, len);
        let mut buffer = DeviceBuffer::from_slice(&stream, &values).unwrap();
        for each in [1, 2, 3, 10, 99, 100, 101] {
            let of = |part: gpucomm::cuda::Slice<'_, u16>| part.to_vec(&stream).unwrap();
            let (want, got) = (values.chunks(each), buffer.chunks(each));
            assert_eq!(got.len(), want.len());
            assert_eq!(got.map(of).collect::<Vec<_>>(), want.map(<[_]>::to_vec).collect::<Vec<_>>());
            let (mut want, mut got) = (values.chunks(each), buffer.chunks_mut(each));
            while got.len() > 0 {
                let ends = if random.bool() { (got.next(), want.next()) } else { (got.next_back(), want.next_back()) };
                assert_eq!(of(ends.0.unwrap().as_slice()), ends.1.unwrap());
            }
            assert!(got.next().is_none() && got.next_back().is_none() && want.next().is_none());
            let (got, left) = buffer.chunks_exact(each);
            let want = values.chunks_exact(each);
            assert_eq!((of(left), got.len()), (want.remainder().to_vec(), want.len()));
            assert_eq!(got.map(of).collect::<Vec<_>>(), want.map(<[_]>::to_vec).collect::<Vec<_>>());
            let (got, left) = buffer.chunks_exact_mut(each);
            assert!(got.rev().all(|part| part.len() == each) && left.len() == len % each);
        }
    }
}

#[test]
fn chunks_of_nothing_are_refused() {
    let buffer = DeviceBuffer::<u8>::zeroed(&stream(), 3).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buffer.chunks(0))).is_err());
}

#[test]
fn owned_parts_go_to_threads_and_come_back() {
    let home = stream();
    let len = 10_007;
    let whole = DeviceBuffer::<u32>::zeroed(&home, len).unwrap();
    let address = whole.as_raw();
    let parts: Vec<_> = whole.into_chunks(1000).collect();
    assert_eq!(parts.iter().map(DeviceBuffer::len).collect::<Vec<_>>(), [[1000; 10].as_slice(), &[7]].concat());
    let threads: Vec<_> = parts
        .into_iter()
        .enumerate()
        .map(|(at, mut part)| {
            std::thread::spawn(move || {
                let stream = Stream::new(part.device()).unwrap();
                for round in 0..20 {
                    part.fill(&stream, (at * 100 + round) as u32).unwrap();
                }
                part
            })
        })
        .collect();
    let parts = threads.into_iter().map(|thread| thread.join().unwrap());
    let whole = parts.reduce(|front, next| front.join(next).unwrap()).unwrap();
    assert_eq!((whole.len(), whole.as_raw()), (len, address));
    let want: Vec<u32> = (0..len).map(|at| (at / 1000 * 100 + 19) as u32).collect();
    assert_eq!(whole.to_vec(&home).unwrap(), want);
}

#[test]
fn only_neighbours_are_joined() {
    let stream = stream();
    let make = || DeviceBuffer::<u8>::zeroed(&stream, 10).unwrap();
    let refused = |result: gpucomm::Result<DeviceBuffer<u8>>| {
        assert!(matches!(result, Err(Error::InvalidArgument { operation: "DeviceBuffer::join", .. })), "{result:?}");
    };
    let (one, two) = make().into_split(4);
    refused(two.join(one));
    refused(make().join(make()));
    let (one, rest) = make().into_split(4);
    let (_two, three) = rest.into_split(3);
    refused(one.join(three));
    // Nothing lies behind everything.
    let (all, none) = make().into_split(10);
    assert_eq!((all.len(), none.len()), (10, 0));
    assert_eq!(all.join(none).unwrap().len(), 10);
    let (none, all) = make().into_split(0);
    assert_eq!(none.join(all).unwrap().len(), 10);
}

#[test]
fn memory_lives_as_long_as_a_part() {
    let (a, b) = (stream(), stream());
    for _ in 0..20 {
        let (left, mut right) = DeviceBuffer::from_slice(&a, &[9_u8; 5000]).unwrap().into_split(2500);
        let gate = Gate::close(&a);
        drop(left);
        let other = DeviceBuffer::from_slice(&b, &[3_u8; 5000]).unwrap();
        right.slice_mut(..10).fill(&b, 4).unwrap();
        gate.open();
        assert_eq!(right.slice(5..15).to_vec(&b).unwrap(), [[4; 5], [9; 5]].concat());
        assert_eq!(other.to_vec(&b).unwrap(), [3; 5000]);
    }
}

#[test]
fn parts_of_pinned_memory() {
    let (a, b) = (stream(), stream());
    let mut random = random("parts_of_pinned_memory");
    let values: Vec<[u16; 3]> = samples(&mut random, 1000);
    let mut pinned = PinnedBuffer::from_slice(&values).unwrap();
    let mut buffer = DeviceBuffer::<[u16; 3]>::zeroed(&a, 300).unwrap();
    // To the device, a part of it to a part of that.
    buffer.slice_mut(100..).copy_from_pinned(&a, pinned.slice(500..700)).unwrap();
    assert_eq!(buffer.slice(100..).to_vec(&a).unwrap(), values[500..700]);
    // And back, by chunks, in either order of two streams.
    let gate = Gate::close(&a);
    for (at, part) in pinned.chunks_mut(300).take(3).enumerate() {
        buffer.copy_to_pinned([&a, &b][at % 2], part).unwrap();
    }
    gate.open();
    let mut want = values.clone();
    let copied = buffer.to_vec(&a).unwrap();
    (0..3).for_each(|at| want[at * 300..(at + 1) * 300].copy_from_slice(&copied));
    assert_eq!(pinned.as_slice().unwrap(), want);
    // On the host, a part is an ordinary slice, which waits for the copies.
    let (mut front, mut back) = pinned.split_at_mut(400);
    buffer.slice(..100).copy_to_pinned(&a, back.slice_mut(..100)).unwrap();
    front.as_slice_mut().unwrap().fill([7; 3]);
    assert_eq!(back.slice(..100).as_slice().unwrap(), &copied[..100]);
    assert_eq!((front.len(), back.len(), front.is_empty()), (400, 600, false));
    assert_eq!(pinned.slice(399..401).as_slice().unwrap(), [[7; 3], copied[0]]);
    assert_eq!(pinned.slice(..2).as_bytes().as_slice().unwrap(), 7_u16.to_ne_bytes().repeat(6));
    assert!(pinned.slice(5..5).as_slice().unwrap().is_empty());
    let wrong = buffer.copy_to_pinned(&a, pinned.slice_mut(..299));
    assert!(matches!(wrong, Err(Error::InvalidArgument { operation: "Slice::copy_to_pinned", .. })), "{wrong:?}");
    assert!(pinned.slice(..).try_slice(1001..).is_err());
}

/// What is no value is written over by its bytes.
#[test]
fn bytes_of_bools() {
    let stream = stream();
    let mut bools = DeviceBuffer::<bool>::zeroed(&stream, 9).unwrap();
    bools.as_bytes_mut().slice_mut(3..6).fill(&stream, 1).unwrap();
    let mut pinned = PinnedBuffer::<bool>::zeroed(9).unwrap();
    bools.copy_to_pinned(&stream, &mut pinned).unwrap();
    assert_eq!(pinned.as_slice().unwrap(), [false, false, false, true, true, true, false, false, false]);
    pinned.slice_mut(4..).into_bytes().as_slice_mut().unwrap()[0] = 3;
    assert!(pinned.as_slice().is_err() && pinned.as_slice_mut().is_err());
    assert_eq!(pinned.slice(..4).as_slice().unwrap(), [false, false, false, true]);
    bools.copy_from_pinned(&stream, &pinned).unwrap();
    assert!(bools.to_vec(&stream).is_err());
    assert_eq!(bools.as_bytes().to_vec(&stream).unwrap(), [0, 0, 0, 1, 3, 1, 0, 0, 0]);
    pinned.slice_mut(..).into_bytes().as_slice_mut().unwrap().fill(0);
    assert_eq!(pinned.as_slice_mut().unwrap(), [false; 9]);
}

#[test]
fn elements_of_another_type() {
    let stream = stream();
    let mut random = random("elements_of_another_type");
    let values: Vec<Particle> = samples(&mut random, 12);
    let mut buffer = DeviceBuffer::from_slice(&stream, &values).unwrap();
    let words = buffer.as_slice().cast::<u32>().unwrap();
    assert_eq!((words.len(), words.as_raw()), (48, buffer.as_slice().as_raw()));
    let bytes: Vec<u8> = words.to_vec(&stream).unwrap().into_iter().flat_map(u32::to_ne_bytes).collect();
    assert_eq!(buffer.as_bytes().to_vec(&stream).unwrap(), bytes);
    assert_eq!(words.cast::<Particle>().unwrap().to_vec(&stream).unwrap(), values);

    buffer.as_slice_mut().cast_mut::<u64>().unwrap().slice_mut(..2).fill(&stream, 0).unwrap();
    assert_eq!(buffer.slice(..1).as_bytes().to_vec(&stream).unwrap(), [0; 16]);
    assert_eq!(buffer.slice(1..).to_vec(&stream).unwrap(), values[1..]);

    let too_much = buffer.slice(..1).cast::<[u8; 5]>().unwrap_err().to_string();
    assert!(too_much.contains("[u8; 5], of 5 bytes each") && too_much.contains("16 bytes"), "{too_much}");
    let bytes = buffer.as_bytes();
    let odd = bytes.slice(1..5).cast::<u32>().unwrap_err().to_string();
    assert!(odd.contains("a multiple of 4, for u32"), "{odd}");
    assert_eq!(bytes.slice(1..5).cast::<[u8; 4]>().unwrap().len(), 1);

    let words = buffer.into_cast::<u16>().unwrap();
    assert_eq!(words.len(), 96);
    assert!(words.into_cast::<[u8; 7]>().is_err());
    let nothing = DeviceBuffer::<u8>::zeroed(&stream, 0).unwrap();
    assert_eq!(nothing.into_cast::<Particle>().unwrap().len(), 0);
    assert_eq!(stream.device(), device());
}
