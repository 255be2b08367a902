//! Reductions of types that have several names, and those that wait.

use std::ffi::{c_int, c_void};

use gpucomm::ReduceOp;
use gpucomm::nvshmem::{SymmetricBuffer, Team, TeamReduce};

use super::{counts, symbol};
use crate::support::random::{Bits, same};
use crate::support::{Here, with_contexts};

type Host = unsafe extern "C" fn(i32, *mut c_void, *const c_void, usize) -> c_int;
type OnStream = unsafe extern "C" fn(i32, *mut c_void, *const c_void, usize, *mut c_void) -> c_int;

const LEN: usize = 33;

/// What all comparisons of a type use.
struct Memory<'c, T: Bits> {
    source: SymmetricBuffer<'c, T>,
    raw: SymmetricBuffer<'c, T>,
    own: SymmetricBuffer<'c, T>,
}

impl<'c, T: Bits> Memory<'c, T> {
    fn new(here: &Here<'c>, number: fn(i32) -> T) -> Self {
        let alloc = |len: usize| here.ctx.alloc::<T>(len).unwrap();
        let mut source = alloc(LEN * here.n_pes());
        let mut rng = here.rng_of("reduced", here.pe());
        // Small ones: of floats too, all results are exact, in any order.
        let values: Vec<T> = (0..LEN * here.n_pes()).map(|_| number(rng.i32(1..4))).collect();
        source.copy_from_slice(here.stream, &values).unwrap();
        Self { source, raw: alloc(LEN), own: alloc(LEN) }
    }
}

fn compare<T: Bits + TeamReduce>(
    here: &Here<'_>,
    team: &mut Team<'_>,
    memory: &mut Memory<'_, T>,
    names: &[&str],
    op: ReduceOp,
) {
    let (stream, Memory { source, raw, own }) = (here.stream, memory);
    for (of, what, on_stream) in names.iter().flat_map(|of| {
        [("reduce", true), ("reducescatter", true), ("reduce", false), ("reducescatter", false)]
            .map(|(what, on_stream)| (of, what, on_stream))
    }) {
        let name = match on_stream {
            true => format!("nvshmemx_{of}_{op}_{what}_on_stream"),
            false => format!("nvshmem_{of}_{op}_{what}"),
        };
        raw.fill(stream, T::poison()).unwrap();
        own.fill(stream, T::poison()).unwrap();
        here.settle();
        let _current = here.seat.device.set_current().unwrap();
        let (function, dest, from) = (symbol(&name), raw.as_raw(), source.as_raw().cast_const());
        // SAFETY: the header declares them so; symmetric memory with room for so many elements, for each member of the source. All members call it.
        let code = unsafe {
            match on_stream {
                true => {
                    let function = std::mem::transmute::<*mut c_void, OnStream>(function);
                    function(team.as_raw(), dest, from, LEN, stream.as_raw().cast())
                }
                false => std::mem::transmute::<*mut c_void, Host>(function)(team.as_raw(), dest, from, LEN),
            }
        };
        assert_eq!(code, 0, "{name}");
        here.settle();
        match what {
            "reduce" => team.on(stream).reduce(&mut *own, source.symmetric(..LEN), op),
            _ => team.on(stream).reduce_scatter(&mut *own, &*source, op),
        }
        .unwrap();
        let got = raw.to_vec(stream).unwrap();
        same(&name, &got, &own.to_vec(stream).unwrap());
        assert!(got.iter().any(|value| value.bits() != T::poison().bits()), "{name} has done nothing");
        here.settle();
    }
}

macro_rules! numbers {
    ($here:ident $team:ident: $($type:ty, $number:expr, [$($name:literal)*];)*) => {$({
        let mut memory = Memory::<$type>::new($here, $number);
        let names = [$($name),*];
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
            compare($here, &mut $team, &mut memory, &names, op);
        }
    })*};
}

macro_rules! bits {
    ($here:ident $team:ident: $($type:ty, $number:expr, [$($name:literal)*];)*) => {$({
        let mut memory = Memory::<$type>::new($here, $number);
        let names = [$($name),*];
        for op in [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor] {
            compare($here, &mut $team, &mut memory, &names, op);
        }
    })*};
}

#[test]
fn numbers_of_signed_integers() {
    with_contexts(counts(), |here| {
        if here.is_whole() {
            let mut world = here.ctx.world().unwrap();
            numbers! { here world:
                i8, |value| value as i8 - 2, ["char" "schar" "int8"];
                i16, |value| value as i16 - 2, ["short" "int16"];
                i32, |value| value - 2, ["int" "int32"];
                i64, |value| i64::from(value) - 2, ["long" "longlong" "int64"];
            }
        }
    });
}

#[test]
fn numbers_of_unsigned_integers_and_floats() {
    with_contexts(counts(), |here| {
        if here.is_whole() {
            let mut world = here.ctx.world().unwrap();
            numbers! { here world:
                u8, |value| value as u8, ["uchar" "uint8"];
                u16, |value| value as u16, ["ushort" "uint16"];
                u32, |value| value as u32, ["uint" "uint32"];
                u64, |value| value as u64, ["ulong" "ulonglong" "size" "uint64"];
                f32, |value| value as f32, ["float"];
                f64, f64::from, ["double"];
                gpucomm::f16, |value| gpucomm::f16::from_f32(value as f32), ["half"];
                gpucomm::bf16, |value| gpucomm::bf16::from_f32(value as f32), ["bfloat16"];
            }
        }
    });
}

#[test]
fn bits_of_integers() {
    with_contexts(counts(), |here| {
        if here.is_whole() {
            let mut world = here.ctx.world().unwrap();
            bits! { here world:
                i8, |value| value as i8, ["int8"];
                i16, |value| value as i16, ["int16"];
                i32, |value| value, ["int32"];
                i64, i64::from, ["int64"];
                u8, |value| value as u8, ["uchar" "uint8"];
                u16, |value| value as u16, ["ushort" "uint16"];
                u32, |value| value as u32, ["uint" "uint32"];
                u64, |value| value as u64, ["ulong" "ulonglong" "size" "uint64"];
            }
        }
    });
}
