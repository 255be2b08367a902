//! What is made once for all ranks of a communicator that comes from another.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Which child of a communicator: all ranks that are in it call it the same. Ordered so that earlier ones of a kind come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Child {
    /// A part: the number of the split, which all ranks count alike, and the colour.
    Part(u64, usize),
    /// The same of one that was revoked, where they count anew.
    RevokedPart(u64, usize),
    /// What is left without these ranks, in order, and how often that was asked for before.
    Rest(Arc<[usize]>, u64),
    /// With so many ranks more, and how often that was asked for before.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    Grown(usize, u64),
}

impl Child {
    /// It, in bytes: no two are the same, nor does one begin with another.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (kind, first, second, others): (u8, u64, u64, &[usize]) = match self {
            Self::Part(times, color) => (0, *times, *color as u64, &[]),
            Self::RevokedPart(times, color) => (1, *times, *color as u64, &[]),
            Self::Rest(excluded, times) => (2, *times, excluded.len() as u64, excluded),
            Self::Grown(more, times) => (3, *times, *more as u64, &[]),
        };
        let words = [first, second].into_iter().chain(others.iter().map(|rank| *rank as u64));
        std::iter::once(kind).chain(words.flat_map(u64::to_le_bytes)).collect()
    }

    /// Which part it is, in words: "of color" and so on.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Part(_, color) | Self::RevokedPart(_, color) => format!("of color {color}"),
            Self::Grown(more, _) => format!("with {more} more"),
            Self::Rest(excluded, _) => match &**excluded {
                [one] => format!("without rank {one}"),
                all => format!("without ranks {}", all.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
            },
        }
    }
}

/// What the children of a communicator have, each by its [`Child`], in their order: they are few. Who is first makes it; it lives as long
/// as anybody has it.
#[derive(Debug)]
pub(crate) struct Children<T>(Mutex<Vec<(Child, Weak<T>)>>);

impl<T> Default for Children<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Children<T> {
    /// That of one child. All ranks ask for it before the first of them can be done with it, as NCCL has them meet in between.
    pub(crate) fn of(&self, child: Child, make: impl FnOnce() -> T) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, known)| known.strong_count() > 0);
        let at = all.partition_point(|(known, _)| *known < child);
        if let Some((known, one)) = all.get(at)
            && *known == child
            && let Some(one) = one.upgrade()
        {
            return one;
        }
        let one = Arc::new(make());
        all.insert(at, (child, Arc::downgrade(&one)));
        one
    }

    /// Those that there are.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|(_, one)| one.upgrade()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_once_and_forgotten() {
        let children = Children::default();
        let first = children.of(Child::Part(1, 0), || 10);
        assert!(Arc::ptr_eq(&first, &children.of(Child::Part(1, 0), || 11)));
        let (other, later) = (children.of(Child::Part(1, 1), || 12), children.of(Child::Part(2, 0), || 13));
        assert_eq!(children.all(), [first, other, later]);
        assert!(children.all().is_empty());
        assert_eq!(*children.of(Child::Part(1, 0), || 14), 14);
    }
}
