//! Buffers that show the same memory.

use gpucomm::{DeviceBuffer, Error, Stream};

use crate::{Gate, LONG, Sample, for_each_element, random, samples, stream};

#[test]
fn uses_of_all_are_ordered_as_those_of_one() {
    let (a, b, c) = (stream(), stream(), stream());
    let mut buffer = DeviceBuffer::<u32>::zeroed(&a, 1000).unwrap();
    // SAFETY: this thread alone uses them, one after the other.
    let (mut part, whole) = unsafe { (buffer.alias(500..).unwrap(), buffer.alias(..).unwrap()) };
    let gate = Gate::close(&a);
    buffer.fill(&a, 5).unwrap();
    part.fill(&b, 6).unwrap();
    let mut copy = DeviceBuffer::<u32>::zeroed(&c, 1000).unwrap();
    copy.copy_from(&c, &whole).unwrap();
    // Behind the read.
    buffer.fill(&a, 7).unwrap();
    assert!(!b.query().unwrap() && !c.query().unwrap());
    gate.open();
    assert_eq!(copy.to_vec(&c).unwrap(), [[5; 500], [6; 500]].concat());
    assert_eq!((part.to_vec(&b).unwrap(), whole.to_vec(&c).unwrap()), (vec![7; 500], vec![7; 1000]));
}

#[test]
fn memory_lives_as_long_as_one_buffer_shows_it() {
    let (a, b) = (stream(), stream());
    let mut random = random("memory_lives_as_long_as_one_buffer_shows_it");
    for _ in 0..40 {
        let buffer = DeviceBuffer::from_slice(&a, &[9u8; 5000]).unwrap();
        // SAFETY: this thread alone uses them, one after the other.
        let mut all: Vec<_> = (0..4).map(|at| unsafe { buffer.alias(at * 1000..).unwrap() }).collect();
        all.push(buffer);
        random.shuffle(&mut all);
        let mut last = all.pop().unwrap();
        let gate = Gate::close(&a);
        all[0].fill(&a, 1).unwrap();
        drop(all);
        // Freed memory would go to the next that is allocated.
        let other = DeviceBuffer::from_slice(&b, &[3u8; 5000]).unwrap();
        last.slice_mut(..10).fill(&b, 4).unwrap();
        gate.open();
        assert_eq!(last.slice(..10).to_vec(&b).unwrap(), [4; 10]);
        assert_eq!(other.to_vec(&b).unwrap(), [3; 5000]);
    }
}

#[test]
fn aliases_show_the_same_elements() {
    for_each_element!(show_the_same());
}

fn show_the_same<T: Sample + PartialEq>() {
    let mut random = random("aliases_show_the_same_elements");
    let streams: Vec<Stream> = (0..3).map(|_| stream()).collect();
    let len = random.usize(1..300);
    let mut model: Vec<T> = samples(&mut random, len);
    let mut shown = vec![(0, DeviceBuffer::from_slice(&streams[0], &model).unwrap())];
    for _ in 0..50 {
        let stream = random.choice(&streams).unwrap();
        let at = random.usize(..shown.len());
        let (begin, buffer) = &mut shown[at];
        let len = buffer.len();
        let from = random.usize(..=len);
        let to = random.usize(from..=len);
        match random.u32(..4) {
            0 => {
                // SAFETY: this thread alone uses them, one after the other.
                let alias = unsafe { buffer.alias(from..to).unwrap() };
                assert_eq!((alias.len(), alias.device()), (to - from, buffer.device()));
                assert_eq!(alias.as_raw().cast_const(), buffer.slice(from..to).as_raw());
                let begin = *begin + from;
                shown.push((begin, alias));
            }
            1 => {
                let values: Vec<T> = samples(&mut random, to - from);
                buffer.slice_mut(from..to).copy_from_slice(stream, &values).unwrap();
                model[*begin + from..*begin + to].copy_from_slice(&values);
            }
            2 => {
                let value = T::sample(&mut random);
                buffer.slice_mut(from..to).fill(stream, value).unwrap();
                model[*begin + from..*begin + to].fill(value);
            }
            _ if shown.len() > 1 => drop(shown.swap_remove(at)),
            _ => {}
        }
        let (begin, buffer) = random.choice(&shown).unwrap();
        let mut got = vec![T::sample(&mut random); buffer.len()];
        buffer.copy_to_slice_timeout(random.choice(&streams).unwrap(), &mut got, LONG).unwrap();
        assert!(got == model[*begin..*begin + buffer.len()]);
    }
}

#[test]
fn a_range_outside_is_refused() {
    let stream = stream();
    let buffer = DeviceBuffer::<f32>::zeroed(&stream, 8).unwrap();
    // SAFETY: they are not used.
    let (wrong, none) = unsafe { (buffer.alias(4..9), buffer.alias(8..).unwrap()) };
    let error = wrong.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { operation: "DeviceBuffer::alias", .. }), "{error:?}");
    assert!(error.to_string().contains("4..9") && error.to_string().contains("0..8"), "{error}");
    assert!(none.is_empty() && none.to_vec(&stream).unwrap().is_empty());
    // SAFETY: as above.
    let error = unsafe { none.alias(..1) }.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
}
