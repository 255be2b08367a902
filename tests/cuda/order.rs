//! Uses of one buffer on several streams.

use std::time::Duration;

use gpucomm::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};

use crate::{Gate, LONG, random, stream};

const LEN: usize = 20_000;

#[test]
fn a_read_waits_for_the_write() {
    let (a, b) = (stream(), stream());
    let mut buffer = DeviceBuffer::<u32>::zeroed(&a, LEN).unwrap();
    let gate = Gate::close(&a);
    buffer.fill(&a, 5).unwrap();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        gate.open();
    });
    assert!(buffer.to_vec(&b).unwrap().iter().all(|v| *v == 5));
    opener.join().unwrap();
}

#[test]
fn a_write_waits_for_all_reads() {
    let home = stream();
    let readers: Vec<Stream> = (0..5).map(|_| stream()).collect();
    let mut source = DeviceBuffer::from_slice(&home, &[1i32; LEN]).unwrap();
    let mut copies: Vec<_> = readers.iter().map(|s| DeviceBuffer::<i32>::zeroed(s, LEN).unwrap()).collect();
    let gates: Vec<_> = readers.iter().map(Gate::close).collect();
    for (copy, reader) in copies.iter_mut().zip(&readers) {
        copy.copy_from(reader, &source).unwrap();
    }
    source.fill(&home, 2).unwrap();
    // One after the other, so that the last reader is late.
    for gate in gates {
        assert!(!home.query().unwrap());
        gate.open();
    }
    for (copy, reader) in copies.iter().zip(&readers) {
        assert!(copy.to_vec(reader).unwrap().iter().all(|v| *v == 1));
    }
    assert!(source.to_vec(&home).unwrap().iter().all(|v| *v == 2));
}

/// The stream that has written reads again, when another one has waited for what it wrote.
#[test]
fn a_write_waits_for_a_read_of_the_first_writer() {
    let (a, b) = (stream(), stream());
    let mut source = DeviceBuffer::from_slice(&a, &[1i32; LEN]).unwrap();
    let mut copy = DeviceBuffer::<i32>::zeroed(&a, LEN).unwrap();
    let mut pinned = PinnedBuffer::<i32>::zeroed(LEN).unwrap();
    for to_pinned in [false, true] {
        source.fill(&a, 1).unwrap();
        assert!(source.to_vec(&b).unwrap().iter().all(|v| *v == 1));
        let gate = Gate::close(&a);
        if to_pinned {
            source.copy_to_pinned(&a, &mut pinned).unwrap();
        } else {
            copy.copy_from(&a, &source).unwrap();
        }
        source.fill(&b, 2).unwrap();
        assert!(b.synchronize_timeout(Duration::from_millis(20)).is_err());
        gate.open();
        let got = if to_pinned { pinned.as_slice().unwrap().to_vec() } else { copy.to_vec(&a).unwrap() };
        assert!(got.iter().all(|v| *v == 1), "to pinned memory: {to_pinned}");
        assert!(source.to_vec(&b).unwrap().iter().all(|v| *v == 2));
    }
}

#[test]
fn reads_do_not_wait_for_each_other() {
    let (home, a, b) = (stream(), stream(), stream());
    let source = DeviceBuffer::from_slice(&home, &[4u8; LEN]).unwrap();
    let mut copy = DeviceBuffer::<u8>::zeroed(&a, LEN).unwrap();
    let gate = Gate::close(&a);
    copy.copy_from(&a, &source).unwrap();
    let mut got = vec![0; LEN];
    source.copy_to_slice_timeout(&b, &mut got, LONG / 6).expect("a read that hangs behind a read on another stream");
    assert!(!a.query().unwrap());
    gate.open();
    assert_eq!(copy.to_vec(&a).unwrap(), got);
}

/// One stream writes the second half of a buffer, which it does not come to. Another stream uses the first half meanwhile.
#[test]
fn disjoint_ranges_do_not_wait_for_each_other() {
    let (a, b) = (stream(), stream());
    let mut buffer = DeviceBuffer::<u8>::zeroed(&a, 2 * LEN).unwrap();
    for round in 1..4 {
        let (mut first, mut second) = buffer.split_at_mut(LEN);
        first.fill(&b, round).unwrap();
        let gate = Gate::close(&a);
        second.fill(&a, 10 + round).unwrap();
        first.fill(&b, 20 + round).unwrap();
        let mut got = vec![0; LEN];
        first.copy_to_slice_timeout(&b, &mut got, LONG / 6).expect("a read that hangs behind a write of other bytes");
        assert!(got.iter().all(|v| *v == 20 + round));
        assert!(!a.query().unwrap());
        // A range that has bytes of both waits for both.
        let mut middle = vec![0; 2];
        let across = buffer.slice(LEN - 1..LEN + 1).copy_to_slice_timeout(&b, &mut middle, Duration::from_millis(20));
        assert!(matches!(across, Err(Error::Timeout { .. })), "{across:?}");
        gate.open();
        assert_eq!(buffer.slice(LEN - 1..LEN + 1).to_vec(&b).unwrap(), [20 + round, 10 + round]);
        assert!(buffer.to_vec(&a).unwrap()[LEN..].iter().all(|v| *v == 10 + round));
    }
}

/// Written on one stream, read on two others, freed while the last one still reads, and allocated anew.
#[test]
fn memory_is_not_reused_under_a_reader() {
    let (home, second, third) = (stream(), stream(), stream());
    for round in 0..10u32 {
        let buffer = DeviceBuffer::from_slice(&home, &vec![round; LEN]).unwrap();
        let mut copies = [&second, &third].map(|s| DeviceBuffer::<u32>::zeroed(s, LEN).unwrap());
        let gate = Gate::close(&third);
        copies[0].copy_from(&second, &buffer).unwrap();
        copies[1].copy_from(&third, &buffer).unwrap();
        drop(buffer);
        let next = DeviceBuffer::from_slice(&home, &vec![999u32; LEN]).unwrap();
        second.synchronize().unwrap();
        gate.open();
        assert!(copies[1].to_vec(&third).unwrap().iter().all(|v| *v == round), "round {round}");
        assert!(copies[0].to_vec(&second).unwrap().iter().all(|v| *v == round));
        assert!(next.to_vec(&home).unwrap().iter().all(|v| *v == 999));
    }
}

#[test]
fn the_allocation_itself_is_ordered() {
    let (a, b) = (stream(), stream());
    for _ in 0..10 {
        let gate = Gate::close(&a);
        // Exists only after the gate; `b` has to wait for that.
        let mut buffer = DeviceBuffer::<i32>::uninit(&a, LEN).unwrap();
        buffer.fill(&b, 3).unwrap();
        assert!(b.synchronize_timeout(Duration::from_millis(20)).is_err());
        gate.open();
        assert!(buffer.to_vec(&b).unwrap().iter().all(|v| *v == 3));
    }
}

#[test]
fn halves_on_two_streams() {
    let (home, a, b) = (stream(), stream(), stream());
    for len in [0, 1, 2, LEN + 1] {
        let mut buffer = DeviceBuffer::<u64>::zeroed(&home, len).unwrap();
        for round in 0..20u64 {
            let (mut low, mut high) = buffer.split_at_mut(len / 2);
            low.fill(&a, 2 * round).unwrap();
            high.fill(&b, 2 * round + 1).unwrap();
            let got = buffer.to_vec(&home).unwrap();
            assert!(
                got[..len / 2].iter().all(|v| *v == 2 * round) && got[len / 2..].iter().all(|v| *v == 2 * round + 1)
            );
        }
    }
}

/// A random program on random streams of all devices gives what it gives on one thread of the host.
#[test]
fn random_programs() {
    let mut random = random("random_programs");
    let streams: Vec<Stream> = Device::all()
        .unwrap()
        .into_iter()
        .take(2)
        .flat_map(|device| (0..3).map(move |_| Stream::new(device).unwrap()))
        .collect();
    let pick = |random: &mut fastrand::Rng| streams[random.usize(..streams.len())].clone();
    for _ in 0..15 {
        let len = random.usize(1..3000);
        let mut memory: Vec<(DeviceBuffer<i32>, Vec<i32>)> = (0..4)
            .map(|at| (DeviceBuffer::from_slice(&pick(&mut random), &vec![at; len]).unwrap(), vec![at; len]))
            .collect();
        let mut gates = Vec::new();
        for _ in 0..120 {
            let (to, from) = (random.usize(..4), random.usize(..4));
            let begin = random.usize(..len);
            let end = random.usize(begin..=len);
            match random.usize(..8) {
                0..4 if to != from => {
                    let [target, source] = memory.get_disjoint_mut([to, from]).unwrap();
                    let device = if random.bool() { target.0.device() } else { source.0.device() };
                    let on: Vec<_> = streams.iter().filter(|s| s.device() == device).collect();
                    let stream = on[random.usize(..on.len())];
                    target.0.slice_mut(begin..end).copy_from(stream, source.0.slice(begin..end)).unwrap();
                    target.1[begin..end].copy_from_slice(&source.1[begin..end]);
                }
                4 => {
                    let target = &mut memory[to];
                    let on: Vec<_> = streams.iter().filter(|s| s.device() == target.0.device()).collect();
                    let value = random.i32(..);
                    target.0.slice_mut(begin..end).fill(on[random.usize(..on.len())], value).unwrap();
                    target.1[begin..end].fill(value);
                }
                5 => {
                    // Freed and made anew, somewhere else.
                    let value = random.i32(..);
                    memory[to] =
                        (DeviceBuffer::from_slice(&pick(&mut random), &vec![value; len]).unwrap(), vec![value; len]);
                }
                6 if gates.len() < 3 => gates.push(Gate::close(&pick(&mut random))),
                _ => {
                    if !gates.is_empty() {
                        let at = random.usize(..gates.len());
                        gates.swap_remove(at).open();
                    }
                }
            }
        }
        gates.into_iter().for_each(Gate::open);
        for (buffer, expected) in &memory {
            let stream = streams.iter().find(|s| s.device() == buffer.device()).unwrap();
            assert!(buffer.to_vec(stream).unwrap() == *expected);
        }
    }
}
