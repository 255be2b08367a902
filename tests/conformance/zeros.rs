//! The signs of zeros: for Max and Min, -0 is less than +0, whatever rank has which.

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
