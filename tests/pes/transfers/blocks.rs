//! Blocks of elements: every way, between all PEs.

use gpucomm::nvshmem::{Pe, SymmetricBuffer};
use gpucomm::{DeviceBuffer, Stream};

use crate::support::random::{Bits, lengths, same};
use crate::support::{Here, each_type, with_context};

/// Who waits for a transfer.
#[derive(Debug, Clone, Copy)]
enum Way {
    Host,
    Stream,
    Scope,
    StreamScope,
}

const WAYS: [Way; 4] = [Way::Host, Way::Stream, Way::Scope, Way::StreamScope];

/// Poison, on all PEs.
fn poisoned<'c, T: Bits>(here: &Here<'c>, len: usize) -> SymmetricBuffer<'c, T> {
    let mut buffer = here.ctx.alloc_uninit::<T>(len).unwrap();
    buffer.fill(here.stream, T::poison()).unwrap();
    here.settle();
    buffer
}

/// Everybody puts to everybody, into a slot of its own, from device memory or from symmetric memory.
fn puts<T: Bits>(here: &Here<'_>, way: Way, lengths: &[usize]) {
    let (pe, n_pes, stream) = (here.pe(), here.n_pes(), here.stream);
    for &len in lengths {
        let case = format!("{way:?} {len}");
        let values = |from: usize, to: usize| T::vector(&mut here.rng_of(&format!("{case} to {to}"), from), len);
        let dest = poisoned::<T>(here, len * n_pes + 3);
        let mut own = here.ctx.alloc::<T>(len + 2).unwrap();
        for to in 0..n_pes {
            let slot = dest.symmetric(1 + len * pe..1 + len * (pe + 1));
            let local = DeviceBuffer::from_slice(stream, &values(pe, to)).unwrap();
            let symmetric = to % 2 == 1;
            if symmetric {
                own.symmetric_mut(2..).into_local().copy_from(stream, &local).unwrap();
            }
            let source = if symmetric { own.symmetric(2..).local() } else { local.as_slice() };
            match way {
                Way::Host => here.ctx.put(slot, source, Pe(to)),
                Way::Stream => here.ctx.on(stream).put(slot, source, Pe(to)),
                Way::Scope => here.ctx.nonblocking(|scope| scope.put(slot, source, Pe(to))),
                Way::StreamScope => here.ctx.on(stream).nonblocking(|scope| scope.put(slot, source, Pe(to))),
            }
            .unwrap();
        }
        here.ctx.on(stream).barrier_all().unwrap();
        let got = dest.to_vec(stream).unwrap();
        let want: Vec<T> = (0..n_pes).flat_map(|from| values(from, pe)).collect();
        same(&format!("what was put, {case}"), &got[1..1 + len * n_pes], &want);
        let around = [got[0], got[len * n_pes + 1], got[len * n_pes + 2]];
        same(&format!("around it, {case}"), &around, &[T::poison(); 3]);
        here.settle();
    }
}

/// Everybody gets from everybody, at an offset.
fn gets<T: Bits>(here: &Here<'_>, way: Way, lengths: &[usize]) {
    let (n_pes, stream) = (here.n_pes(), here.stream);
    for &len in lengths {
        let case = format!("{way:?} {len}");
        let values = |of: usize| T::vector(&mut here.rng_of(&case, of), len + 5);
        let mut source = here.ctx.alloc::<T>(len + 5).unwrap();
        source.copy_from_slice(stream, &values(here.pe())).unwrap();
        here.ctx.on(stream).barrier_all().unwrap();
        stream.synchronize().unwrap();
        let mut own = here.ctx.alloc::<T>(len + 2).unwrap();
        for from in 0..n_pes {
            let mut local = DeviceBuffer::from_slice(stream, &vec![T::poison(); len + 2]).unwrap();
            own.fill(stream, T::poison()).unwrap();
            let symmetric = from % 2 == 1;
            let dest = if symmetric { own.symmetric_mut(1..=len).into_local() } else { local.slice_mut(1..=len) };
            let place = source.symmetric(3..3 + len);
            match way {
                Way::Host => here.ctx.get(dest, place, Pe(from)),
                Way::Stream => here.ctx.on(stream).get(dest, place, Pe(from)),
                Way::Scope => here.ctx.nonblocking(|scope| scope.get(dest, place, Pe(from))),
                Way::StreamScope => here.ctx.on(stream).nonblocking(|scope| scope.get(dest, place, Pe(from))),
            }
            .unwrap();
            let got = if symmetric { own.to_vec(stream) } else { local.to_vec(stream) }.unwrap();
            same(&format!("what was got, {case}"), &got[1..=len], &values(from)[3..3 + len]);
            same(&format!("around it, {case}"), &[got[0], got[len + 1]], &[T::poison(); 2]);
        }
        here.settle();
    }
}

/// Large ones of one type: bytes are bytes, and the host of the emulator draws each of them.
fn all_ways<T: Bits>(here: &Here<'_>) {
    let lengths = lengths();
    let lengths = if T::NAME == "u32" { &lengths[..] } else { &lengths[..3] };
    for way in WAYS {
        puts::<T>(here, way, lengths);
        gets::<T>(here, way, lengths);
    }
}

#[test]
fn every_type_in_every_way() {
    with_context(|here| each_type!(all_ways(here)));
}

/// Elements of users, and those that no function of the library is for.
#[test]
fn odd_elements() {
    with_context(|here| {
        let mut rng = here.rng_of("odd elements", here.before(1));
        let mut own = here.rng_of("odd elements", here.pe());
        let draw =
            |rng: &mut fastrand::Rng| -> Vec<[u8; 3]> { (0..333).map(|_| [rng.u8(..), rng.u8(..), 7]).collect() };
        let dest = here.ctx.alloc::<[u8; 3]>(335).unwrap();
        let source = DeviceBuffer::from_slice(here.stream, &draw(&mut own)).unwrap();
        here.ctx.on(here.stream).put(dest.symmetric(1..334), &source, here.next(1)).unwrap();
        here.ctx.on(here.stream).barrier_all().unwrap();
        assert_eq!(dest.symmetric(1..334).local().to_vec(here.stream).unwrap(), draw(&mut rng));
        here.settle();
    });
}

/// Streams of one PE: what one puts to this PE itself, the other reads after it.
#[test]
fn two_streams_of_one_pe_are_ordered() {
    with_context(|here| {
        let other = Stream::new(here.seat.device).unwrap();
        let me = Pe(here.pe());
        let dest = here.ctx.alloc::<u32>(1 << 16).unwrap();
        let mut source = here.ctx.alloc::<u32>(1 << 16).unwrap();
        for round in 1..20 {
            source.fill(here.stream, round).unwrap();
            here.ctx.on(&other).put(&dest, &source, me).unwrap();
            let mut back = DeviceBuffer::<u32>::zeroed(here.stream, 1 << 16).unwrap();
            here.ctx.on(here.stream).get(&mut back, &dest, me).unwrap();
            same("what the other stream put", &back.to_vec(here.stream).unwrap(), &vec![round; 1 << 16]);
        }
        here.settle();
    });
}

/// The source may be used again as soon as the call is over, and be dropped.
#[test]
fn sources_that_go_at_once() {
    with_context(|here| {
        let dest = here.ctx.alloc::<u64>(50 * 1021).unwrap();
        for at in 0..50 {
            let source = DeviceBuffer::from_slice(here.stream, &[at * 100 + here.pe() as u64; 1021]).unwrap();
            let part = dest.symmetric(at as usize * 1021..(at as usize + 1) * 1021);
            if at % 2 == 0 {
                here.ctx.on(here.stream).put(part, &source, here.next(1)).unwrap();
            } else {
                here.ctx.put(part, &source, here.next(1)).unwrap();
            }
        }
        here.ctx.on(here.stream).barrier_all().unwrap();
        let want: Vec<u64> = (0..50).flat_map(|at| [at * 100 + here.before(1) as u64; 1021]).collect();
        same("from sources that went", &dest.to_vec(here.stream).unwrap(), &want);
        here.settle();
    });
}
