//! Random inputs: the same for the same seed and the same case.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;

pub use super::seed::{rng, seed};
use super::{Number, Op};

/// Returns true if every case of a matrix runs: on GPUs, and if `GPUCOMM_TEST_THOROUGH` is set, as in `.ci/long`.
pub fn is_thorough() -> bool {
    gpucomm::backend() == gpucomm::Backend::Nvidia || std::env::var_os("GPUCOMM_TEST_THOROUGH").is_some()
}

/// Returns true if a case of a matrix runs this time: about one in ten, drawn from the seed, unless all do.
pub fn takes(case: impl Debug) -> bool {
    let mut hasher = DefaultHasher::new();
    (seed(), format!("{case:?}")).hash(&mut hasher);
    is_thorough() || hasher.finish().is_multiple_of(10)
}

/// One case of the matrix: what is said when it fails, and where its random numbers come from.
#[derive(Debug, Clone)]
pub struct Case {
    text: String,
    op: Op,
}

impl Case {
    /// A case of an operation that reduces.
    pub fn reducing<T: Number>(what: &str, op: Op, ranks: usize, len: usize, in_place: bool) -> Self {
        let place = if in_place { "in place" } else { "out of place" };
        Self { text: format!("{what} {op:?} of {len} {} by {ranks} ranks, {place}", T::KIND), op }
    }

    /// A case of an operation that only moves data, so that any value will do.
    pub fn moving<T: Number>(what: &str, ranks: usize, len: usize, in_place: bool) -> Self {
        let place = if in_place { "in place" } else { "out of place" };
        Self { text: format!("{what} of {len} {} by {ranks} ranks, {place}", T::KIND), op: Op::Min }
    }

    /// The random numbers of one rank.
    pub fn rng(&self, rank: usize) -> Rng {
        let mut hasher = DefaultHasher::new();
        (seed(), &self.text, rank).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }

    /// The input of one rank.
    pub fn input<T: Number>(&self, rank: usize, len: usize) -> Vec<T> {
        let mut rng = self.rng(rank);
        T::draw_all(&mut rng, self.op, len)
    }

    /// The inputs of all ranks, each `len` elements long.
    pub fn inputs<T: Number>(&self, ranks: usize, len: usize) -> Vec<Vec<T>> {
        (0..ranks).map(|rank| self.input(rank, len)).collect()
    }

    /// Panics unless `got` is exactly `want`.
    pub fn same<T: Number>(&self, rank: usize, got: &[T], want: &[T]) {
        assert_eq!(got.len(), want.len(), "{self}: rank {rank}: length");
        if let Some((wrong, at)) = T::differences(got, want) {
            panic!("{self}: rank {rank}: {wrong} wrong, first [{at}]: got {:?}, expected {:?}", got[at], want[at]);
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (GPUCOMM_TEST_SEED={})", self.text, seed())
    }
}
