//! What reductions must give, computed on the host in the simplest way.

pub use gpucomm_reference::{Want, bound};

use super::{Case, Number, Op};

/// The reduction of one vector from each rank.
pub fn reduce<T: Number>(inputs: &[Vec<T>], op: Op) -> Vec<Want<T>> {
    T::reduce_all(inputs, op)
}

/// Panics unless every element of `got` is what it should be.
pub fn check<T: Number>(case: &Case, rank: usize, got: &[T], want: &[Want<T>]) {
    assert_eq!(got.len(), want.len(), "{case}: rank {rank}: length");
    if let Some((wrong, at)) = T::wrong(got, want) {
        panic!("{case}: rank {rank}: {wrong} wrong, first [{at}]: got {:?}, expected {:?}", got[at], want[at]);
    }
}
