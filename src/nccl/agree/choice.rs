//! Which part of a communicator a rank asks for when that is split, and how it is to be configured.

use std::sync::Arc;

use super::dispute::Verdict;
use super::terms::{self, Terms};

/// What a rank asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) color: usize,
    pub(crate) key: usize,
    /// `None`: as what the part comes from.
    pub(crate) terms: Option<Arc<Terms>>,
}

/// The first part whose ranks do not ask for the same configuration. All ranks find the same one, as all see what everybody asks for.
pub(crate) fn dispute<'a>(all: impl Iterator<Item = (usize, &'a Choice)> + Clone) -> Option<Verdict> {
    let of_color = |color| all.clone().find(|(_, choice)| choice.color == color);
    let differing = all.clone().filter_map(|(rank, choice)| {
        let (peer, first) = of_color(choice.color)?;
        (first.terms != choice.terms).then_some((choice.color, rank, choice, peer, first))
    });
    let (color, rank, got, peer, expected) = differing.min_by_key(|(color, rank, ..)| (*color, *rank))?;
    let of = |own: &Choice, other: &Choice| {
        format!("{} for the part of color {color}", terms::against(own.terms.as_deref(), other.terms.as_deref()))
    };
    Some(Verdict { rank, peer, expected: of(expected, got), got: of(got, expected) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(terms: &[(usize, Option<i32>)]) -> Option<(usize, usize)> {
        let choice = |&(color, number): &(usize, Option<i32>)| {
            let terms = number.map(|number| Arc::new(Terms::new([("max_ctas", number.to_string())])));
            Choice { color, key: 0, terms }
        };
        let all: Vec<_> = terms.iter().map(choice).collect();
        dispute(all.iter().enumerate()).map(|verdict| (verdict.rank, verdict.peer))
    }

    #[test]
    fn parts_may_differ_ranks_of_a_part_may_not() {
        assert_eq!(asks(&[(0, Some(1)), (1, Some(2)), (0, Some(1)), (1, Some(2)), (2, None)]), None);
        assert_eq!(asks(&[(0, Some(1)), (1, Some(2)), (0, Some(2)), (1, None)]), Some((2, 0)));
        assert_eq!(asks(&[(1, Some(2)), (0, None), (1, Some(2)), (0, Some(2))]), Some((3, 1)));
    }
}
