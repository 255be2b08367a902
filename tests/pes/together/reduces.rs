//! Reduce and reducescatter.

use gpucomm::ReduceOp;
use gpucomm::nvshmem::{Team, TeamConfig, TeamPe, TeamReduce};

use crate::support::random::{Bits, lengths, same};
use crate::support::{Here, with_context};

/// What is reduced, on the host.
trait Host: Bits {
    fn draw(rng: &mut fastrand::Rng) -> Self;
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn min_of(self, other: Self) -> Self;
    fn max_of(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Host for $type {
            fn draw(rng: &mut fastrand::Rng) -> Self { Self::any(rng) }
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            fn prod(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn min_of(self, other: Self) -> Self { if other < self { other } else { self } }
            fn max_of(self, other: Self) -> Self { if other > self { other } else { self } }
        }
    )*};
}

/// Small whole numbers: all results are, in any order.
macro_rules! floats {
    ($($type:ty: $of:expr, $to:expr;)*) => {$(
        impl Host for $type {
            fn draw(rng: &mut fastrand::Rng) -> Self { $of(f64::from(rng.i32(-3..=3)) + 0.5) }
            fn sum(self, other: Self) -> Self { $of($to(self) + $to(other)) }
            fn prod(self, other: Self) -> Self { $of($to(self) * $to(other)) }
            fn min_of(self, other: Self) -> Self { if $to(other) < $to(self) { other } else { self } }
            fn max_of(self, other: Self) -> Self { if $to(other) > $to(self) { other } else { self } }
        }
    )*};
}

integers! { i8 u8 i16 u16 i32 u32 i64 u64 }
floats! {
    f32: |value| value as f32, f64::from;
    f64: |value: f64| value, |value: f64| value;
    gpucomm::f16: gpucomm::f16::from_f64, gpucomm::f16::to_f64;
    gpucomm::bf16: gpucomm::bf16::from_f64, gpucomm::bf16::to_f64;
}

/// Where operands begin in their buffers.
const OFFSET: usize = 5;

/// What the library has room for where its own kernels reduce and scatter: half of `NVSHMEM_REDUCE_SCRATCH_SIZE`.
const ROOM: usize = 1 << 18;

/// How many elements, and whether the host waits.
fn counts() -> [(usize, bool); 6] {
    [(0, false), (1, true), (1, false), (331, true), (1021, false), (lengths()[3], true)]
}

fn reduces<T: Host + TeamReduce>(here: &Here<'_>, team: &mut Team<'_>, by: ReduceOp, name: &str, host: fn(T, T) -> T) {
    let (n, me) = (team.n_pes(), team.pe().0);
    for (count, waits) in counts() {
        // Of the largest, as much is scattered as there is room for.
        let scattered = count.min(ROOM / (n * size_of::<T>()));
        let len = count.max(n * scattered);
        let what = format!("{name} of {count}");
        let all: Vec<Vec<T>> = (0..n)
            .map(|pe| {
                let mut rng = here.rng_of(&what, team.world_pe(TeamPe(pe)).unwrap().0);
                (0..len).map(|_| T::draw(&mut rng)).collect()
            })
            .collect();
        let expected: Vec<T> = (0..len).map(|at| all.iter().map(|one| one[at]).reduce(host).unwrap()).collect();
        // All PEs allocate as much, whatever the size of their teams.
        let mut source = here.ctx.alloc::<T>(OFFSET + here.n_pes() * count).unwrap();
        source.as_slice_mut().slice_mut(OFFSET..OFFSET + len).copy_from_slice(here.stream, &all[me]).unwrap();
        let mut dest = here.ctx.alloc_uninit::<T>(count + OFFSET).unwrap();
        dest.fill(here.stream, T::poison()).unwrap();
        here.settle();
        let from = source.symmetric(OFFSET..OFFSET + count);
        match waits {
            true => team.reduce(dest.symmetric_mut(..count), from, by).unwrap(),
            false => team.on(here.stream).reduce(dest.symmetric_mut(..count), from, by).unwrap(),
        }
        let got = dest.to_vec(here.stream).unwrap();
        same(&format!("reduce by {what}"), &got[..count], &expected[..count]);
        same("what lies behind", &got[count..], &[T::poison(); OFFSET]);

        dest.fill(here.stream, T::poison()).unwrap();
        here.settle();
        let to = dest.symmetric_mut(..scattered);
        let from = source.symmetric(OFFSET..OFFSET + n * scattered);
        match waits {
            true => team.reduce_scatter(to, from, by).unwrap(),
            false => team.on(here.stream).reduce_scatter(to, from, by).unwrap(),
        }
        let got = dest.to_vec(here.stream).unwrap();
        same(&format!("reducescatter by {what}"), &got[..scattered], &expected[me * scattered..(me + 1) * scattered]);
        same("what lies behind", &got[scattered..], &vec![T::poison(); OFFSET + count - scattered]);
        here.settle();
    }
}

macro_rules! arithmetic {
    ($here:ident $world:ident: $($type:ty)*) => {$(
        reduces::<$type>($here, &mut $world, ReduceOp::Sum, "sum", <$type>::sum);
        reduces::<$type>($here, &mut $world, ReduceOp::Prod, "product", <$type>::prod);
        reduces::<$type>($here, &mut $world, ReduceOp::Min, "minimum", <$type>::min_of);
        reduces::<$type>($here, &mut $world, ReduceOp::Max, "maximum", <$type>::max_of);
    )*};
}

macro_rules! bits {
    ($here:ident $world:ident: $($type:ty)*) => {$(
        reduces::<$type>($here, &mut $world, ReduceOp::And, "and", |one, other| one & other);
        reduces::<$type>($here, &mut $world, ReduceOp::Or, "or", |one, other| one | other);
        reduces::<$type>($here, &mut $world, ReduceOp::Xor, "xor", |one, other| one ^ other);
    )*};
}

#[test]
fn arithmetic_of_all_integers() {
    with_context(|here| {
        if here.is_whole() {
            let mut world = here.ctx.world().unwrap();
            arithmetic!(here world: i8 u8 i16 u16 i32 u32 i64 u64);
        }
    });
}

#[test]
fn arithmetic_of_all_floats() {
    with_context(|here| {
        if here.is_whole() {
            let mut world = here.ctx.world().unwrap();
            arithmetic!(here world: f32 f64 gpucomm::f16 gpucomm::bf16);
        }
    });
}

#[test]
fn bits_of_all_integers() {
    with_context(|here| {
        if here.is_whole() {
            let mut world = here.ctx.world().unwrap();
            bits!(here world: i8 u8 i16 u16 i32 u32 i64 u64);
        }
    });
}

/// Teams side by side, of sizes that differ: all but the last, and the last; the even ones, and the odd ones.
#[test]
fn in_teams_of_some() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        let n = here.n_pes();
        for (stride, sizes) in [(1, [n - 1, 1]), (2, [n.div_ceil(2), n / 2])] {
            let mut mine = None;
            for (start, size) in [if stride == 1 { n - 1 } else { 1 }, 0].into_iter().zip([sizes[1], sizes[0]]) {
                if size > 0 && start < n {
                    let team = world.split_strided(TeamPe(start), stride, size, &TeamConfig::default()).unwrap();
                    mine = team.or(mine);
                }
            }
            let mut team = mine.expect("each PE is in one of them");
            reduces::<u16>(here, &mut team, ReduceOp::Sum, "sum of some", u16::sum);
            reduces::<i64>(here, &mut team, ReduceOp::Min, "minimum of some", i64::min_of);
            reduces::<f32>(here, &mut team, ReduceOp::Prod, "product of some", f32::prod);
            reduces::<u32>(here, &mut team, ReduceOp::Xor, "xor of some", |one, other| one ^ other);
        }
    });
}

/// Zeros of both signs: what comes out is a zero, and has the sign that all have. (NVSHMEM's own kernels give each PE the sign of another
/// one, NCCL's take -0 for less than +0.)
fn zeros<T: Host + PartialEq + TeamReduce>(here: &Here<'_>, by: ReduceOp, waits: bool, zero: fn(bool) -> T) {
    let mut world = here.ctx.world().unwrap();
    let len = 1 << here.n_pes();
    // Element `at` of PE `pe` is -0 where that bit of `at` is set.
    let mine: Vec<T> = (0..len).map(|at| zero(at >> here.pe() & 1 == 1)).collect();
    let mut source = here.ctx.alloc::<T>(len).unwrap();
    source.copy_from_slice(here.stream, &mine).unwrap();
    let mut dest = here.ctx.alloc_uninit::<T>(len).unwrap();
    dest.fill(here.stream, T::poison()).unwrap();
    here.settle();
    match waits {
        true => world.reduce(&mut dest, &source, by).unwrap(),
        false => world.on(here.stream).reduce(&mut dest, &source, by).unwrap(),
    }
    let got = dest.to_vec(here.stream).unwrap();
    here.settle();
    assert!(got.iter().all(|value| *value == zero(false)));
    let last = len - 1;
    same("the sign that all have", &[got[0], got[last]], &[zero(false), zero(true)]);
}

#[test]
fn signs_of_zeros() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        for waits in [true, false] {
            macro_rules! each {
                ($($zero:expr, $minus:expr;)*) => {$(
                    zeros(here, ReduceOp::Max, waits, |is_minus| if is_minus { $minus } else { $zero });
                    zeros(here, ReduceOp::Min, waits, |is_minus| if is_minus { $minus } else { $zero });
                )*};
            }
            each! {
                0.0_f32, -0.0;
                0.0_f64, -0.0;
                gpucomm::f16::ZERO, gpucomm::f16::NEG_ZERO;
                gpucomm::bf16::ZERO, gpucomm::bf16::NEG_ZERO;
            }
        }
    });
}
