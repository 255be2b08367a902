//! The values of many ranks as one value of the store.

use super::store::MAX_VALUE;
use super::wire::{Reader, Writer};

/// The first byte of a combined value.
const COMBINED: u8 = 1;

/// Set instead of a combined value: each rank reads the values itself.
pub(super) const APART: &[u8] = &[0];

/// The number of the bytes before a value in a combined one.
const LENGTH: usize = 4;

/// The values of some ranks as one value, or [`APART`] if one of them is of another kind or all are
/// too long.
pub(super) fn join_values(values: &[Vec<u8>], kind: u8) -> Vec<u8> {
    let len: usize = values.iter().map(|value| value.len() + LENGTH).sum();
    if len >= MAX_VALUE || values.iter().any(|value| value.first() != Some(&kind)) {
        return APART.to_vec();
    }
    values.iter().fold(Writer::default().u8(COMBINED), |writer, value| writer.bytes(value)).0
}

/// The values of some groups as one value, or [`APART`] as for one group.
pub(super) fn join_groups(groups: &[Vec<u8>]) -> Vec<u8> {
    let len: usize = groups.iter().map(Vec::len).sum();
    if groups.iter().any(|group| group.first() != Some(&COMBINED)) || len >= MAX_VALUE {
        return APART.to_vec();
    }
    groups.iter().fold(vec![COMBINED], |mut combined, group| {
        combined.extend_from_slice(&group[1..]);
        combined
    })
}

/// Where the values of all ranks in a round come as one, to a rank that knows its own value.
#[derive(Debug, Clone)]
pub(super) struct Combined<'a> {
    pub(super) key: String,
    pub(super) rank: usize,
    pub(super) kind: u8,
    pub(super) value: &'a [u8],
}

impl Combined<'_> {
    /// The values of `size` ranks. `None` if they have to be read one by one: these bytes are not their
    /// combined value, or the value of this rank is wrong, because the store has not answered the rank
    /// rightly that combined them.
    pub(super) fn split<'b>(&self, bytes: &'b [u8], size: usize) -> Option<Vec<&'b [u8]>> {
        split(bytes, size).filter(|values| values[self.rank].split_first() == Some((&self.kind, self.value)))
    }
}

/// The values of `size` ranks. `None` if these bytes are not their combined value.
fn split(combined: &[u8], size: usize) -> Option<Vec<&[u8]>> {
    let mut reader = Reader(combined);
    if reader.u8()? != COMBINED {
        return None;
    }
    let mut values = Vec::with_capacity(size);
    for _ in 0..size {
        values.push(reader.bytes()?);
    }
    reader.end(values)
}
