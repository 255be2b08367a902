//! Ranges of elements, as users name them.

use std::ops::{Bound, Range, RangeBounds};

use crate::error::{Error, Result};

/// `range` of `len` elements as begin and end, or an error that says what is wrong.
pub(crate) fn resolve(operation: &'static str, range: &impl RangeBounds<usize>, len: usize) -> Result<Range<usize>> {
    let wrong = |begin: usize, end: usize| {
        Error::argument(operation, "range", format_args!("a range within 0..{len}"), format_args!("{begin}..{end}"))
    };
    let begin = match range.start_bound() {
        Bound::Included(at) => *at,
        Bound::Excluded(at) => at.checked_add(1).ok_or_else(|| wrong(*at, len))?,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(at) => at.checked_add(1).ok_or_else(|| wrong(begin, *at))?,
        Bound::Excluded(at) => *at,
        Bound::Unbounded => len,
    };
    if begin <= end && end <= len { Ok(begin..end) } else { Err(wrong(begin, end)) }
}

/// For methods that panic where their argument is wrong.
#[track_caller]
pub(crate) fn or_panic<V>(result: Result<V>) -> V {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}
