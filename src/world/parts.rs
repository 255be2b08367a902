//! How requests divide a buffer among the ranks.

use crate::nccl::Layout;

/// How a buffer is divided among the ranks: [`Layout`], owned. Made of counts, or of counts and offsets.
///
/// ```
/// use gpucomm::world::requests::Parts;
///
/// // Two elements for rank 0, three for rank 1; packed, and with a gap between them.
/// let (packed, apart) = (Parts::from([2, 3]), Parts::from((vec![2, 3], vec![0, 5])));
/// assert_eq!((packed.counts, apart.offsets), (vec![2, 3], Some(vec![0, 5])));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// How many elements each rank has.
    pub counts: Vec<usize>,
    /// Where they begin; one rank's behind the other's where it is not said.
    pub offsets: Option<Vec<usize>>,
}

impl Parts {
    pub(super) fn layout(&self) -> Layout<'_> {
        Layout { counts: &self.counts, offsets: self.offsets.as_deref() }
    }
}

impl From<Vec<usize>> for Parts {
    fn from(counts: Vec<usize>) -> Self {
        Self { counts, offsets: None }
    }
}

impl<const N: usize> From<[usize; N]> for Parts {
    fn from(counts: [usize; N]) -> Self {
        Self::from(counts.to_vec())
    }
}

impl From<&[usize]> for Parts {
    fn from(counts: &[usize]) -> Self {
        Self::from(counts.to_vec())
    }
}

impl From<(Vec<usize>, Vec<usize>)> for Parts {
    fn from((counts, offsets): (Vec<usize>, Vec<usize>)) -> Self {
        Self { counts, offsets: Some(offsets) }
    }
}
