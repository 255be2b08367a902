//! Elements that do not lie side by side.

use gpucomm::DeviceBuffer;
use gpucomm::nvshmem::{Pe, Strides};

use crate::support::random::{Bits, lengths, same};
use crate::support::{Here, each_type, errors, with_context};

fn strided<T: Bits>(here: &Here<'_>) {
    let stream = here.stream;
    for (len, dest, source) in
        [(0, 1, 1), (1, 1, 7), (100, 1, 1), (333, 3, 1), (333, 1, 5), (97, 7, 2), (lengths()[3], 2, 3)]
    {
        let strides = Strides { dest, source };
        let (to_len, from_len) = (len * dest + 2, len * source + 3);
        let values = |of: usize| T::vector(&mut here.rng_of(&format!("{len} {dest} {source}"), of), from_len);
        let spread = |values: &[T]| {
            let mut want = vec![T::poison(); to_len];
            (0..len).for_each(|at| want[1 + at * dest] = values[2 + at * source]);
            want
        };
        let local = DeviceBuffer::from_slice(stream, &values(here.pe())).unwrap();
        for on_stream in [false, true] {
            let mut target = here.ctx.alloc::<T>(to_len).unwrap();
            let mut there = here.ctx.alloc::<T>(from_len).unwrap();
            target.fill(stream, T::poison()).unwrap();
            there.copy_from(stream, &local).unwrap();
            here.settle();
            let (to, from) = (here.next(1), local.slice(2..));
            match on_stream {
                false => here.ctx.iput(target.symmetric(1..), from, strides, len, to),
                true => here.ctx.on(stream).iput(target.symmetric(1..), from, strides, len, to),
            }
            .unwrap();
            here.ctx.on(stream).barrier_all().unwrap();
            same("put with strides", &target.to_vec(stream).unwrap(), &spread(&values(here.before(1))));
            let mut back = DeviceBuffer::from_slice(stream, &vec![T::poison(); to_len]).unwrap();
            match on_stream {
                false => here.ctx.iget(back.slice_mut(1..), there.symmetric(2..), strides, len, here.next(1)),
                true => here.ctx.on(stream).iget(back.slice_mut(1..), there.symmetric(2..), strides, len, here.next(1)),
            }
            .unwrap();
            same("got with strides", &back.to_vec(stream).unwrap(), &spread(&values(here.next(1).0)));
            here.settle();
        }
    }
}

#[test]
fn with_strides() {
    with_context(|here| each_type!(strided(here)));
}

#[test]
fn strides_that_cannot_be() {
    with_context(|here| {
        let target = here.ctx.alloc::<u32>(10).unwrap();
        let local = DeviceBuffer::<u32>::zeroed(here.stream, 10).unwrap();
        let put = |dest, source, len| here.ctx.iput(&target, &local, Strides { dest, source }, len, Pe(0));
        for (dest, source, len) in
            [(0, 1, 2), (1, 0, 2), (1 << 40, 1, 2), (1, 1, 11), (3, 1, 5), (1, 10, 2), (2, 2, usize::MAX)]
        {
            let error = put(dest, source, len).expect_err("strides that cannot be");
            assert!(matches!(error, gpucomm::Error::InvalidArgument { .. }), "{error:?}");
            errors::names(&error, &["Context::iput"]);
        }
        put(3, 3, 4).unwrap();
        here.settle();
    });
}
