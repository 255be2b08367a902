//! How it goes: dropped in any order, forgotten, while a panic unwinds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpucomm::Stream;
use gpucomm::nvshmem::SymmetricBuffer;

use crate::support::random::same;
use crate::support::{SIZES, as_pes, with_context};

/// Every PE has an order of its own; what all have dropped is freed, and nobody waits for anybody.
#[test]
fn in_another_order_on_each_pe() {
    with_context(|here| {
        let (mut common, mut own) = (here.rng("lengths"), here.rng_of("order", here.pe()));
        let mut all: Vec<SymmetricBuffer<'_, u32>> = Vec::new();
        for round in 0..20 {
            for _ in 0..common.usize(1..6) {
                let len = common.usize(..3000);
                let mut buffer = here.ctx.alloc::<u32>(len).unwrap();
                same("zeros", &buffer.to_vec(here.stream).unwrap(), &vec![0; len]);
                buffer.fill(here.stream, u32::MAX - round).unwrap();
                all.push(buffer);
            }
            own.shuffle(&mut all);
            all.truncate(own.usize(..=all.len()));
            if common.bool() {
                here.ctx.reclaim().unwrap();
            }
        }
    });
}

/// As much as the device has, again and again: what was dropped is there again.
#[test]
fn what_all_have_dropped_is_there_again() {
    with_context(|here| {
        let free = here.seat.gather(&here.seat.device.memory_info().unwrap().free.to_string());
        let least = free.iter().map(|free| free.parse::<usize>().unwrap()).min().unwrap();
        // All PEs may be on one device.
        let bytes = least / 10 / here.n_pes();
        for round in 0..30 {
            let mut buffer = here.ctx.alloc_uninit::<u8>(bytes).unwrap();
            for part in [0..1000, bytes - 1000..bytes] {
                buffer.symmetric_mut(part.clone()).into_local().fill(here.stream, round).unwrap();
                same("an end", &buffer.symmetric(part).local().to_vec(here.stream).unwrap(), &[round; 1000]);
            }
        }
    });
}

/// What one PE keeps is freed on none.
#[test]
fn what_one_pe_keeps_stays() {
    with_context(|here| {
        for keeper in 0..here.n_pes() {
            let mut rng = here.rng_of("kept", keeper);
            let values: Vec<u64> = (0..2000).map(|_| rng.u64(..)).collect();
            let mut kept = None;
            let mut buffer = here.ctx.alloc::<u64>(2000).unwrap();
            if here.pe() == keeper {
                buffer.copy_from_slice(here.stream, &values).unwrap();
                kept = Some(buffer);
            } else {
                drop(buffer);
            }
            for _ in 0..5 {
                here.ctx.reclaim().unwrap();
                let mut other = here.ctx.alloc::<u64>(2000).unwrap();
                other.fill(here.stream, u64::MAX).unwrap();
            }
            if let Some(kept) = kept {
                same("kept", &kept.to_vec(here.stream).unwrap(), &values);
            }
        }
    });
}

#[test]
fn while_a_panic_unwinds() {
    with_context(|here| {
        for who in 0..=here.n_pes() {
            let mut buffers: Vec<_> = (1..5).map(|len| here.ctx.alloc::<u16>(len * 100).unwrap()).collect();
            buffers[1].fill(here.stream, 9).unwrap();
            let panics = who == here.pe() || who == here.n_pes();
            let result = catch_unwind(AssertUnwindSafe(|| {
                let _all = buffers;
                if panics {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            }));
            assert_eq!(result.is_err(), panics);
            here.ctx.reclaim().unwrap();
        }
    });
}

/// Some are forgotten on some PEs: the end comes all the same, and says how many.
#[test]
fn forgotten_here_and_there() {
    as_pes(&SIZES, |seat| {
        let ctx = seat.start().unwrap();
        let mut forgotten = 0;
        for number in 0..12 {
            let buffer = ctx.alloc::<u8>(100 + number).unwrap();
            if (number + seat.pe).is_multiple_of(3) {
                std::mem::forget(buffer);
                forgotten += 1;
            }
            if number % 4 == 3 {
                ctx.reclaim().unwrap();
            }
        }
        assert_eq!(ctx.close().unwrap().buffers, forgotten);
    });
}

/// With work on two streams that is not done.
#[test]
fn under_work() {
    with_context(|here| {
        let other = Stream::new(here.seat.device).unwrap();
        for round in 0..10 {
            let mut one = here.ctx.alloc::<u32>(1 << 18).unwrap();
            let mut two = here.ctx.alloc::<u32>(1 << 18).unwrap();
            one.fill(here.stream, round).unwrap();
            two.copy_from(&other, &one).unwrap();
            drop(one);
            if round % 2 == 0 {
                here.ctx.reclaim().unwrap();
            }
            same("a copy of what was dropped", &two.to_vec(here.stream).unwrap(), &vec![round; 1 << 18]);
        }
    });
}

/// Puts are under way as both ends are dropped: none of them lands in memory that is allocated later.
#[test]
fn under_puts() {
    with_context(|here| {
        const BYTES: usize = 1 << 18;
        let (ctx, stream, next) = (here.ctx, here.stream, here.next(1));
        for round in 0..8 {
            let target = ctx.alloc::<u8>(BYTES).unwrap();
            let mut source = ctx.alloc::<u8>(BYTES).unwrap();
            source.fill(stream, 0xee).unwrap();
            ctx.on(stream).put(&target, &source, next).unwrap();
            match round % 4 {
                1 => ctx.on(stream).nonblocking(|scope| scope.put(&target, &source, next)).unwrap(),
                2 => ctx.nonblocking(|scope| scope.put(target.as_symmetric(), source.as_slice(), next)).unwrap(),
                3 => {
                    if let Some(mut there) = target.peer(next).unwrap() {
                        there.copy_from(stream, &source).unwrap();
                    }
                }
                _ => {}
            }
            drop((target, source));
            ctx.reclaim().unwrap();
            let later = [(); 2].map(|()| ctx.alloc::<u8>(BYTES).unwrap());
            ctx.barrier_all().unwrap();
            later.iter().for_each(|later| same("zeros", &later.to_vec(stream).unwrap(), &vec![0; BYTES]));
            // Nobody puts the next before all have looked.
            ctx.barrier_all().unwrap();
        }
    });
}

/// All free one buffer, and what they have dropped before goes with it: there is room for as much again at once.
#[test]
fn freed_by_all_at_once() {
    with_context(|here| {
        let free = here.seat.gather(&here.seat.device.memory_info().unwrap().free.to_string());
        let least = free.iter().map(|free| free.parse::<usize>().unwrap()).min().unwrap();
        let bytes = least / 4 / here.n_pes();
        for round in 0..10 {
            let dropped = here.ctx.alloc_uninit::<u8>(bytes).unwrap();
            let mut freed = here.ctx.alloc_uninit::<u8>(bytes).unwrap();
            freed.symmetric_mut(..1000).into_local().fill(here.stream, round).unwrap();
            drop(dropped);
            freed.free(here.ctx).unwrap();
        }
        let none = here.ctx.alloc::<u32>(0).unwrap();
        none.free(here.ctx).unwrap();
    });
}

/// Parts of a buffer, split elsewhere on each PE: the memory is freed when all parts are gone on all PEs.
#[test]
fn parts_are_freed_together() {
    with_context(|here| {
        let free = here.seat.gather(&here.seat.device.memory_info().unwrap().free.to_string());
        let least = free.iter().map(|free| free.parse::<usize>().unwrap()).min().unwrap();
        let bytes = least / 3 / here.n_pes();
        let mut rng = here.rng_of("splits", here.pe());
        for round in 0..5 {
            let whole = here.ctx.alloc_uninit::<u8>(bytes).unwrap();
            let (mut front, back) = whole.into_split(bytes - rng.usize(1000..2000));
            let (middle, mut end) = back.into_shared().into_split(rng.usize(..500));
            front.slice_mut(..1000).fill(here.stream, round).unwrap();
            end.fill(here.stream, round + 1).unwrap();
            drop(middle);
            // The other parts are still there, so this frees nothing.
            here.ctx.reclaim().unwrap();
            let other = here.ctx.alloc_uninit::<u8>(bytes).unwrap();
            same("the front", &front.slice(..1000).to_vec(here.stream).unwrap(), &[round; 1000]);
            same("the end", &end.slice(..100).to_vec(here.stream).unwrap(), &[round + 1; 100]);
            drop(end);
            other.free(here.ctx).unwrap();
            front.free(here.ctx).unwrap();
        }
    });
}

/// Split memory, joined again: it is the same memory to other PEs.
#[test]
fn parts_are_joined() {
    with_context(|here| {
        let buffer = here.ctx.alloc::<u32>(100).unwrap();
        let (other, _) = here.ctx.alloc::<u32>(100).unwrap().into_split(50);
        let (front, back) = buffer.into_split(here.pe() + 1);
        let (back, end) = back.into_split(10);
        assert!(front.join(end).is_err());
        assert!(other.join(back).is_err());
        let (front, back) = here.ctx.alloc::<u32>(100).unwrap().into_split(here.pe() + 1);
        let mut whole = front.join(back).unwrap();
        assert_eq!(whole.len(), 100);
        whole.fill(here.stream, here.pe() as u32).unwrap();
        here.stream.synchronize().unwrap();
        here.ctx.barrier_all().unwrap();
        let (next, mut got) = (here.next(1), here.ctx.alloc::<u32>(100).unwrap());
        here.ctx.on(here.stream).get(&mut got, &whole, next).unwrap();
        same("of the next", &got.to_vec(here.stream).unwrap(), &[next.0 as u32; 100]);
        here.ctx.barrier_all().unwrap();
    });
}
