//! Max and Min of what compares oddly: -0 is less than +0, and NaN counts only where all ranks have it.

use gpucomm::{InPlace, ReduceOp};

use crate::support::{Number, Rig, rank_counts, watched};

/// The bits of a number.
fn bits<T: Number>(value: T) -> Vec<u8> {
    bytes_of(std::slice::from_ref(&value))
}

fn bytes_of<T: Number>(values: &[T]) -> Vec<u8> {
    // SAFETY: numbers are plain data without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }.to_vec()
}

/// Element `at` of rank `rank` is -0 where that bit of `at` is set: all signs of all ranks.
fn of<T: Number>(rig: &Rig, plus: T, minus: T) {
    let ranks = rig.size();
    let len = 1 << ranks;
    let all = len - 1;
    for (op, want) in [
        (ReduceOp::Max, (0..len).map(|at| if at == all { minus } else { plus }).collect::<Vec<_>>()),
        (ReduceOp::Min, (0..len).map(|at| if at == 0 { plus } else { minus }).collect()),
    ] {
        for in_window in [false, true] {
            rig.run(|comm, stream| {
                let mine: Vec<T> = (0..len).map(|at| if at >> comm.rank() & 1 == 1 { minus } else { plus }).collect();
                let got = if in_window {
                    let mut x = comm.alloc_from(stream, &mine)?;
                    comm.all_reduce(InPlace(&mut x), op, stream)?;
                    x.to_vec(stream)?
                } else {
                    let mut x = gpucomm::DeviceBuffer::from_slice(stream, &mine)?;
                    comm.all_reduce(InPlace(&mut x), op, stream)?;
                    x.to_vec(stream)?
                };
                assert_eq!(
                    bytes_of(&got),
                    bytes_of(&want),
                    "{op:?} of {} by {ranks}, in a window: {in_window}",
                    T::KIND
                );
                Ok(())
            });
        }
    }
    assert_ne!(bits(plus), bits(minus));
}

#[test]
fn minus_zero_is_less_than_zero() {
    watched(100.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            of(&rig, 0.0_f32, -0.0);
            of(&rig, 0.0_f64, -0.0);
            of(&rig, gpucomm::f16::ZERO, gpucomm::f16::NEG_ZERO);
            of(&rig, gpucomm::bf16::ZERO, gpucomm::bf16::NEG_ZERO);
            rig.close();
        }
    });
}

/// Element `at` of rank `rank` is NaN where that bit of `at` is set, and otherwise the number of the rank.
fn ignores_nan<T: Number>(rig: &Rig, nan: T, is_nan: fn(T) -> bool) {
    let ranks = rig.size();
    let len = 1_usize << ranks;
    for op in [ReduceOp::Max, ReduceOp::Min] {
        rig.run(|comm, stream| {
            let has = |rank: usize, at: usize| at >> rank & 1 == 0;
            let mine: Vec<T> =
                (0..len).map(|at| if has(comm.rank(), at) { T::of(comm.rank() as u8 + 1) } else { nan }).collect();
            let mut x = gpucomm::DeviceBuffer::from_slice(stream, &mine)?;
            comm.all_reduce(InPlace(&mut x), op, stream)?;
            for (at, got) in x.to_vec(stream)?.into_iter().enumerate() {
                let mut numbers = (0..ranks).filter(|rank| has(*rank, at));
                let want = if matches!(op, ReduceOp::Max) { numbers.next_back() } else { numbers.next() };
                match want {
                    Some(rank) => assert_eq!(got, T::of(rank as u8 + 1), "{op:?} of {}, {at:#b}", T::KIND),
                    None => assert!(is_nan(got), "{op:?} of {}, all NaN", T::KIND),
                }
            }
            Ok(())
        });
    }
}

#[test]
fn nan_is_ignored_unless_all_are() {
    watched(100.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            ignores_nan(&rig, f32::NAN, f32::is_nan);
            ignores_nan(&rig, f64::NAN, f64::is_nan);
            ignores_nan(&rig, gpucomm::f16::NAN, gpucomm::f16::is_nan);
            ignores_nan(&rig, gpucomm::bf16::NAN, gpucomm::bf16::is_nan);
            rig.close();
        }
    });
}
