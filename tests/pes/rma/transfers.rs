//! What is put arrives, and what is got is what the other has, whichever way.

use gpucomm::nvshmem::{Pe, Strides, SymmetricBuffer};
use gpucomm::{DeviceBuffer, Result};

use crate::support::random::{Bits, lengths, same};
use crate::support::{Here, each_type, with_context};

/// Where operands begin in their buffers.
const OFFSET: usize = 3;

/// How a transfer is asked for.
#[derive(Debug, Clone, Copy)]
enum Way {
    Host,
    Stream,
    HostScope,
    StreamScope,
}

const WAYS: [Way; 4] = [Way::Host, Way::Stream, Way::HostScope, Way::StreamScope];

fn values<T: Bits>(here: &Here<'_>, what: &str, pe: usize, len: usize) -> Vec<T> {
    T::vector(&mut here.rng_of(what, pe), len)
}

/// So many on this PE, behind the offset.
fn symmetric<'c, T: Bits>(here: &Here<'c>, values: &[T]) -> SymmetricBuffer<'c, T> {
    let mut buffer = here.ctx.alloc_uninit::<T>(OFFSET + values.len()).unwrap();
    buffer.fill(here.stream, T::poison()).unwrap();
    buffer.as_slice_mut().slice_mut(OFFSET..).copy_from_slice(here.stream, values).unwrap();
    here.settle();
    buffer
}

/// Each PE puts to the one `by` further on, and gets from it.
fn once<T: Bits>(here: &Here<'_>, way: Way, len: usize, by: usize) {
    let (ctx, stream, to, from) = (here.ctx, here.stream, here.next(by), here.before(by));
    let what = |name| format!("{name} of {len} by {by}, {way:?}");
    let mine = DeviceBuffer::from_slice(stream, &values::<T>(here, "put", here.pe(), len)).unwrap();
    let target = symmetric(here, &vec![T::poison(); len]);
    let others = symmetric(here, &values::<T>(here, "get", here.pe(), len));
    let mut got = DeviceBuffer::from_slice(stream, &vec![T::poison(); len]).unwrap();
    let (dest, source) = (target.symmetric(OFFSET..), others.symmetric(OFFSET..));
    let mut all = || -> Result<()> {
        match way {
            Way::Host => {
                ctx.put(dest, &mine, to)?;
                ctx.get(&mut got, source, to)?;
            }
            Way::Stream => {
                ctx.on(stream).put(dest, &mine, to)?;
                ctx.on(stream).get(&mut got, source, to)?;
            }
            Way::HostScope => ctx.nonblocking(|scope| {
                scope.put(dest, &mine, to)?;
                scope.fence()?;
                scope.get(&mut got, source, to)
            })?,
            Way::StreamScope => ctx.on(stream).nonblocking(|scope| {
                scope.put(dest, &mine, to)?;
                scope.get(&mut got, source, to)
            })?,
        }
        if matches!(way, Way::Stream | Way::StreamScope) { ctx.on(stream).barrier_all() } else { ctx.barrier_all() }
    };
    all().unwrap();
    let here_now = target.to_vec(stream).unwrap();
    same(&what("before the operand"), &here_now[..OFFSET], &[T::poison(); OFFSET]);
    same(&what("put"), &here_now[OFFSET..], &values(here, "put", from, len));
    same(&what("get"), &got.to_vec(stream).unwrap(), &values(here, "get", to.0, len));
    here.settle();
}

fn every_way<T: Bits>(here: &Here<'_>) {
    // Each length comes to each distance.
    for (turn, way) in WAYS.into_iter().enumerate() {
        for (at, len) in lengths().into_iter().enumerate() {
            once::<T>(here, way, len, at + turn);
        }
    }
}

#[test]
fn what_is_put_arrives() {
    with_context(|here| each_type!(every_way(here)));
}

/// More than go before one quiet.
#[test]
fn scopes_have_room_for_many() {
    with_context(|here| {
        let (ctx, stream, to, from) = (here.ctx, here.stream, here.next(1), here.before(1));
        let mine = values::<u32>(here, "many", here.pe(), 200);
        let source = DeviceBuffer::from_slice(stream, &mine).unwrap();
        for on_host in [true, false] {
            let target = symmetric(here, &[0u32; 200]);
            if on_host {
                assert_eq!(ctx.nonblocking(|scope| Ok(scope.n_pes())).unwrap(), here.n_pes());
                ctx.nonblocking(|scope| {
                    (0..200).try_for_each(|at| {
                        scope.put(target.symmetric(OFFSET + at..=OFFSET + at), source.slice(at..=at), to)
                    })
                })
                .unwrap();
            } else {
                ctx.on(stream)
                    .nonblocking(|scope| {
                        (0..200).try_for_each(|at| {
                            scope.put(target.symmetric(OFFSET + at..=OFFSET + at), source.slice(at..=at), to)
                        })
                    })
                    .unwrap();
                stream.synchronize().unwrap();
            }
            ctx.barrier_all().unwrap();
            assert_eq!(target.to_vec(stream).unwrap()[OFFSET..], values::<u32>(here, "many", from, 200));
            here.settle();
        }
    });
}

fn strided<T: Bits>(here: &Here<'_>) {
    let (ctx, stream, to, from) = (here.ctx, here.stream, here.next(1), here.before(1));
    const LEN: usize = 37;
    for (put, on_stream) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut rng = here.rng("strides");
        let strides = Strides { dest: rng.usize(1..5), source: rng.usize(1..5) };
        let (to_len, from_len) = (strides.dest * (LEN - 1) + 1, strides.source * (LEN - 1) + 1);
        let mine = values::<T>(here, "strided", here.pe(), from_len);
        let giver = if put { from } else { to.0 };
        let given = values::<T>(here, "strided", giver, from_len);
        let mut expected = vec![T::poison(); to_len];
        (0..LEN).for_each(|at| expected[at * strides.dest] = given[at * strides.source]);
        let came = if put {
            let (dest, source) =
                (symmetric(here, &vec![T::poison(); to_len]), DeviceBuffer::from_slice(stream, &mine).unwrap());
            let place = dest.symmetric(OFFSET..);
            match on_stream {
                true => ctx.on(stream).iput(place, &source, strides, LEN, to).unwrap(),
                false => ctx.iput(place, &source, strides, LEN, to).unwrap(),
            }
            stream.synchronize().unwrap();
            ctx.barrier_all().unwrap();
            dest.to_vec(stream).unwrap()[OFFSET..].to_vec()
        } else {
            let (mut dest, source) =
                (DeviceBuffer::from_slice(stream, &vec![T::poison(); to_len]).unwrap(), symmetric(here, &mine));
            let place = source.symmetric(OFFSET..);
            match on_stream {
                true => ctx.on(stream).iget(&mut dest, place, strides, LEN, to).unwrap(),
                false => ctx.iget(&mut dest, place, strides, LEN, to).unwrap(),
            }
            let came = dest.to_vec(stream).unwrap();
            here.settle();
            came
        };
        same(&format!("strided, put {put}, on a stream {on_stream}, {strides:?}"), &came, &expected);
        here.settle();
    }
}

#[test]
fn strides_are_kept() {
    with_context(|here| {
        strided::<u8>(here);
        strided::<i16>(here);
        strided::<f32>(here);
        strided::<u64>(here);
    });
}

#[test]
fn values_of_the_host_arrive() {
    with_context(|here| {
        let (ctx, stream, from) = (here.ctx, here.stream, here.before(1));
        let places = symmetric(here, &[0u64; 2]);
        ctx.put_value(places.symmetric(OFFSET..=OFFSET), here.pe() as u64 + 5, here.next(1)).unwrap();
        ctx.on(stream).put_value(places.symmetric(OFFSET + 1..), here.pe() as u64 + 9, here.next(1)).unwrap();
        stream.synchronize().unwrap();
        ctx.barrier_all().unwrap();
        assert_eq!(places.to_vec(stream).unwrap()[OFFSET..], [from as u64 + 5, from as u64 + 9]);
        let get = |pe| ctx.get_value(places.symmetric(OFFSET..=OFFSET), Pe(pe)).unwrap();
        let before = |pe: usize| (pe + here.n_pes() - 1) % here.n_pes();
        (0..here.n_pes()).for_each(|pe| assert_eq!(get(pe), before(pe) as u64 + 5));
        here.settle();
    });
}
