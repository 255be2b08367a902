//! Fills with every kind of pattern.

use gpucomm::{DeviceBuffer, Reduce};

use crate::{Gate, Sample, for_each_element, random, stream};

fn patterns<T: Sample>(random: &mut fastrand::Rng) {
    let stream = stream();
    for len in [0, 1, 2, 31, 4099, 100_003] {
        let mut values = vec![T::ZERO];
        values.extend((0..3).map(|_| T::sample(random)));
        let mut buffer = DeviceBuffer::<T>::zeroed(&stream, len).unwrap();
        assert!(buffer.to_vec(&stream).unwrap().iter().all(|v| *v == T::ZERO));
        for value in values {
            buffer.fill(&stream, value).unwrap();
            assert!(buffer.to_vec(&stream).unwrap().iter().all(|v| *v == value), "{value:?} {len} times");
        }
        // A part: the neighbours keep their value.
        if len > 2 {
            let (inner, outer) = (T::sample(random), T::sample(random));
            buffer.fill(&stream, outer).unwrap();
            buffer.slice_mut(1..len - 1).fill(&stream, inner).unwrap();
            let got = buffer.to_vec(&stream).unwrap();
            assert!(got[0] == outer && got[len - 1] == outer && got[1..len - 1].iter().all(|v| *v == inner));
        }
    }
}

#[test]
fn every_type() {
    let mut random = random("every_type");
    for_each_element!(patterns(&mut random));
}

fn one<T: Reduce>(value: T) {
    let stream = stream();
    let mut buffer = DeviceBuffer::<T>::zeroed(&stream, 1001).unwrap();
    buffer.fill(&stream, value).unwrap();
    assert!(buffer.to_vec(&stream).unwrap().iter().all(|v| *v == value), "{value:?}");
}

#[test]
fn special_patterns() {
    // One byte again and again, equal halves, different halves.
    one(0x5555_5555_5555_5555u64);
    one(0x0102_0304_0102_0304u64);
    one(0x0102_0304_0506_0708u64);
    one(-1i64);
    one(i64::MIN);
    one(f64::MIN_POSITIVE);
    one(-0.0f32);
    one(1.0f64);
}

#[test]
fn fills_keep_the_order_of_the_stream() {
    let stream = stream();
    let gate = Gate::close(&stream);
    let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, 3000).unwrap();
    for value in 0..20u8 {
        buffer.fill(&stream, f32::from(value)).unwrap();
    }
    gate.open();
    assert!(buffer.to_vec(&stream).unwrap().iter().all(|v| *v == 19.0));
}
