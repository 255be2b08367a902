//! Waits of a stream for values in symmetric memory.

use gpucomm::DeviceBuffer;
use gpucomm::nvshmem::{Comparison, Pe, Waited};

use super::words::has_waits;
use crate::support::random::{Bits, same};
use crate::support::{Here, errors, with_context};

/// Each comparison comes true by a value that another PE puts.
fn comparisons<T: Bits + Waited>(here: &Here<'_>) {
    use Comparison::{Eq, Ge, Gt, Le, Lt, Ne};
    let number = T::of_bits;
    let cases = [(Eq, 7, 7), (Ne, 9, 5), (Gt, 8, 7), (Ge, 7, 7), (Lt, 3, 4), (Le, 4, 4)];
    let mut flags = here.ctx.alloc::<T>(cases.len() + 1).unwrap();
    // What they hold before compares otherwise.
    let before: Vec<T> = [1, 5, 7, 6, 4, 5, 77].into_iter().map(number).collect();
    flags.copy_from_slice(here.stream, &before).unwrap();
    here.settle();
    for (at, (comparison, value, bound)) in cases.into_iter().enumerate() {
        let slot = flags.symmetric(at..=at);
        here.ctx.on(here.stream).put_value(slot, number(value), here.next(1)).unwrap();
        here.ctx.on(here.stream).wait_until(slot, comparison, number(bound), ()).unwrap();
    }
    let mut want: Vec<T> = cases.iter().map(|(_, value, _)| number(*value)).collect();
    want.push(number(77));
    same("flags", &flags.to_vec(here.stream).unwrap(), &want);
    here.settle();
}

/// For all of them, some left out; and each for a value of its own.
fn vectors<T: Bits + Waited>(here: &Here<'_>) {
    for len in [0, 1, 33] {
        let flags = here.ctx.alloc::<T>(len + 2).unwrap();
        let skip: Vec<i32> = (0..len).map(|at| i32::from(at % 3 == 1)).collect();
        let left_out = DeviceBuffer::from_slice(here.stream, &skip).unwrap();
        let wanted: Vec<T> = (0..len).map(|at| T::of_bits(at as u64 + 10)).collect();
        let values = DeviceBuffer::from_slice(here.stream, &wanted).unwrap();
        let part = flags.symmetric(1..1 + len);
        let put = |value: &dyn Fn(usize) -> u64, skip_too: bool| {
            for at in (0..len).filter(|at| skip_too || skip[*at] == 0) {
                let slot = part.slice(at..=at);
                here.ctx.on(here.stream).put_value(slot, T::of_bits(value(at)), here.next(1)).unwrap();
            }
            // What is put to the same place later comes later.
            here.ctx.on(here.stream).quiet().unwrap();
        };
        put(&|_| 5, false);
        let slice = Some(left_out.as_slice());
        here.ctx.on(here.stream).wait_until_all(part, slice, Comparison::Ge, T::of_bits(5), ()).unwrap();
        put(&|at| at as u64 + 10, false);
        here.ctx.on(here.stream).wait_until_all_vector(part, slice, Comparison::Ge, &values, ()).unwrap();
        put(&|at| at as u64 + 11, true);
        here.ctx.on(here.stream).wait_until_all_vector(part, None, Comparison::Gt, &values, ()).unwrap();
        here.ctx.on(here.stream).wait_until_all(part, None, Comparison::Ge, T::of_bits(11), ()).unwrap();
        let got = flags.to_vec(here.stream).unwrap();
        let want: Vec<T> = (0..len).map(|at| T::of_bits(at as u64 + 11)).collect();
        same("flags", &got[1..1 + len], &want);
        same("around", &[got[0], got[len + 1]], &[T::of_bits(0); 2]);
        here.settle();
    }
}

#[test]
fn waits_for_values() {
    with_context(|here| {
        if !has_waits(here) {
            return;
        }
        comparisons::<i32>(here);
        comparisons::<u32>(here);
        comparisons::<i64>(here);
        comparisons::<u64>(here);
        vectors::<i32>(here);
        vectors::<u32>(here);
        vectors::<i64>(here);
        vectors::<u64>(here);
    });
}

/// -1 is less than 0 for those with a sign, and the most for those without.
#[test]
fn signs() {
    with_context(|here| {
        if !has_waits(here) {
            return;
        }
        let signed = here.ctx.alloc::<i32>(1).unwrap();
        let unsigned = here.ctx.alloc::<u32>(1).unwrap();
        here.ctx.on(here.stream).put_value(&signed, -1, here.next(1)).unwrap();
        here.ctx.on(here.stream).put_value(&unsigned, u32::MAX, here.next(1)).unwrap();
        here.ctx.on(here.stream).wait_until(&signed, Comparison::Lt, 0, ()).unwrap();
        here.ctx.on(here.stream).wait_until(&unsigned, Comparison::Gt, 1, ()).unwrap();
        here.settle();
    });
}

#[test]
fn what_waits_refuse() {
    with_context(|here| {
        if !has_waits(here) {
            return;
        }
        let flags = here.ctx.alloc::<u64>(4).unwrap();
        let three = DeviceBuffer::<i32>::zeroed(here.stream, 3).unwrap();
        let wait = here.ctx.on(here.stream).wait_until(&flags, Comparison::Eq, 0, ());
        errors::argument(wait, "OnStream::wait_until", "one element", "4");
        let slice = Some(three.as_slice());
        let wait = here.ctx.on(here.stream).wait_until_all(&flags, slice, Comparison::Eq, 0, ());
        errors::argument(wait, "OnStream::wait_until_all", "4 elements", "3");
        let five = DeviceBuffer::<u64>::zeroed(here.stream, 5).unwrap();
        let wait = here.ctx.on(here.stream).wait_until_all_vector(&flags, None, Comparison::Eq, &five, ());
        errors::argument(wait, "OnStream::wait_until_all_vector", "4 elements", "5");
        assert_eq!(here.ctx.get_value(flags.symmetric(..1), Pe(here.pe())).unwrap(), 0);
        here.settle();
    });
}
