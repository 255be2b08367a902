//! Parts of one length, one after the other.

use std::fmt;
use std::iter::FusedIterator;

/// What can be cut in two.
pub trait Cut: Sized {
    /// How many elements.
    #[doc(hidden)]
    fn count(&self) -> usize;

    /// Those before `mid`, which is not beyond the end, and those from it on.
    #[doc(hidden)]
    fn cut(self, mid: usize) -> (Self, Self);
}

/// Parts of one length, one after the other, of a view or a buffer: what the methods `chunks`, `chunks_mut` and `into_chunks` give.
///
/// The parts do not overlap, and those of a view that is written live as long as what it was made of: a loop may hand each of them to
/// another call of one [group](crate::group).
///
/// ```
/// # use gpucomm::{Clique, Device, DeviceBuffer, Result, Stream, group};
/// # fn main() -> Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// // Each rank sends its number to all ranks, and receives theirs into parts of one buffer.
/// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as u16; 10])?;
/// let mut all = DeviceBuffer::<u16>::zeroed(&stream, 10 * comm.size())?;
/// group(|g| {
///     for (peer, part) in all.chunks_mut(10).enumerate() {
///         g.send(comm, &own, peer, &stream)?;
///         g.recv(comm, part, peer, &stream)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(all.slice(10 * comm.rank()..).to_vec(&stream)?[0], comm.rank() as u16);
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
pub struct Chunks<V> {
    /// `None` where all parts were taken.
    rest: Option<V>,
    each: usize,
}

impl<V: Cut> Chunks<V> {
    /// Of `whole`, parts of `each` elements; the last one may be shorter.
    #[track_caller]
    pub(crate) fn new(whole: V, each: usize) -> Self {
        assert!(each > 0, "chunks of no elements");
        Self { rest: Some(whole).filter(|whole| whole.count() > 0), each }
    }

    /// Of `whole`, parts of just `each` elements, and what is left over.
    #[track_caller]
    pub(crate) fn exact(whole: V, each: usize) -> (Self, V) {
        assert!(each > 0, "chunks of no elements");
        let len = whole.count();
        let (even, left) = whole.cut(len - len % each);
        (Self::new(even, each), left)
    }

    /// Takes the part of so many elements, at the beginning or at the end.
    fn take(&mut self, mid: impl FnOnce(usize, usize) -> usize, first: bool) -> Option<V> {
        let rest = self.rest.take()?;
        let (len, each) = (rest.count(), self.each);
        if len <= each {
            return Some(rest);
        }
        let (front, back) = rest.cut(mid(len, each));
        let (part, rest) = if first { (front, back) } else { (back, front) };
        self.rest = Some(rest);
        Some(part)
    }
}

impl<V: Cut> Iterator for Chunks<V> {
    type Item = V;

    fn next(&mut self) -> Option<V> {
        self.take(|_, each| each, true)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.rest.as_ref().map_or(0, |rest| rest.count().div_ceil(self.each));
        (count, Some(count))
    }
}

impl<V: Cut> DoubleEndedIterator for Chunks<V> {
    fn next_back(&mut self) -> Option<V> {
        self.take(|len, each| (len - 1) / each * each, false)
    }
}

impl<V: Cut> ExactSizeIterator for Chunks<V> {}
impl<V: Cut> FusedIterator for Chunks<V> {}

impl<V: Cut> fmt::Debug for Chunks<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks").field("left", &self.len()).field("each", &self.each).finish()
    }
}
