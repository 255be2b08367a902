//! What ranks ask for when they split a communicator: a part, a key, and a configuration.
//!
//! Each rank shows the others what it asks for. So all know who is in which part, and whether the
//! ranks of a part want the same.

use std::borrow::Cow;
use std::sync::Arc;

use super::ballot::Verdict;
use crate::lock::Mutex;

/// What a rank asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) color: usize,
    pub(crate) key: usize,
    /// `None`: as what the part comes from.
    pub(crate) terms: Option<Arc<Terms>>,
}

/// The first part whose ranks do not ask for the same configuration. All ranks find the same one,
/// as all see what everybody asks for.
pub(crate) fn dispute<'a>(all: impl Iterator<Item = (usize, &'a Choice)> + Clone) -> Option<Verdict> {
    let of_color = |color| all.clone().find(|(_, choice)| choice.color == color);
    let differing = all.clone().filter_map(|(rank, choice)| {
        let (peer, first) = of_color(choice.color)?;
        (first.terms != choice.terms).then_some((choice.color, rank, choice, peer, first))
    });
    let (color, rank, got, peer, expected) = differing.min_by_key(|(color, rank, ..)| (*color, *rank))?;
    let of = |own: &Choice, other: &Choice| {
        format!("{} for the part of color {color}", against(own.terms.as_deref(), other.terms.as_deref()))
    };
    Some(Verdict::new(rank, peer, of(expected, got), of(got, expected)))
}

/// The fields, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Terms(Vec<(Cow<'static, str>, String)>);

impl Terms {
    pub(crate) fn new(fields: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// What another process has sent.
    pub(crate) fn of_another(fields: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// The fields, for another process.
    pub(crate) fn fields(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, value.as_str()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// What it says of the fields in which `other` differs.
    fn against(&self, other: &Self) -> String {
        let own = self.0.iter().filter(|(name, value)| other.get(name) != Some(value));
        let missing = other.0.iter().filter(|(name, _)| self.get(name).is_none());
        let own = own.map(|(name, value)| format!("{name} {value}"));
        let all: Vec<_> = own.chain(missing.map(|(name, _)| format!("{name} not set"))).collect();
        all.join(", ")
    }
}

/// What one rank brings, in words, for an error that sets it against what another brings: `None` is
/// no configuration at all.
pub(crate) fn against(own: Option<&Terms>, other: Option<&Terms>) -> String {
    match (own, other) {
        (None, _) => "no configuration".to_owned(),
        (Some(_), None) => "a configuration".to_owned(),
        (Some(own), Some(other)) => format!("a configuration with {}", own.against(other)),
    }
}

/// What a rank asks for; `None` for a rank that will be in no part.
type Shown = Option<Choice>;

/// What each rank has shown in its last two splits.
///
/// Two are enough: a rank comes to a split only after all have left the one before the last,
/// because at the last one each has waited for all others to come.
#[derive(Debug)]
pub(crate) struct Splits(Box<[Mutex<[Shown; 2]>]>);

impl Splits {
    pub(crate) fn new(size: usize) -> Self {
        Self((0..size).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn show(&self, rank: usize, split: u64, shown: Shown) {
        self.0[rank].lock()[(split % 2) as usize] = shown;
    }

    /// What they have shown, each with its rank.
    fn shown(&self, split: u64) -> Vec<(usize, Choice)> {
        let shown = |rank: &Mutex<[Shown; 2]>| rank.lock()[(split % 2) as usize].clone();
        self.0.iter().enumerate().filter_map(|(rank, one)| Some((rank, shown(one)?))).collect()
    }

    /// The ranks that have this colour, in their order there, once all have shown theirs.
    pub(crate) fn members(&self, split: u64, color: usize) -> Vec<usize> {
        let all = self.shown(split).into_iter().filter(|(_, choice)| choice.color == color);
        let mut members: Vec<_> = all.map(|(rank, choice)| (choice.key, rank)).collect();
        members.sort_unstable();
        members.into_iter().map(|(_, rank)| rank).collect()
    }

    /// Ranks of one part that have not shown the same configuration, once all have shown theirs.
    pub(crate) fn dispute(&self, split: u64) -> Option<Verdict> {
        let shown = self.shown(split);
        dispute(shown.iter().map(|(rank, choice)| (*rank, choice)))
    }
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

    #[test]
    fn only_what_differs_is_told() {
        let of =
            |fields: &[(&'static str, i32)]| Terms::new(fields.iter().map(|(name, value)| (*name, value.to_string())));
        let (one, other) = (of(&[("a", 1), ("b", 2)]), of(&[("b", 3), ("a", 1), ("c", 4)]));
        assert_eq!(against(Some(&one), Some(&other)), "a configuration with b 2, c not set");
        assert_eq!(against(Some(&other), Some(&one)), "a configuration with b 3, c 4");
        assert_eq!(against(None, Some(&one)), "no configuration");
    }

    #[test]
    fn who_is_in_which_part() {
        let splits = Splits::new(5);
        let choice = |(color, key)| Choice { color, key, terms: None };
        let shown = [Some((0, 9)), Some((7, 4)), None, Some((7, 3)), Some((7, 4))];
        shown.into_iter().enumerate().for_each(|(rank, shown)| splits.show(rank, 1, shown.map(choice)));
        // A rank that is quick.
        splits.show(1, 2, Some(choice((0, 0))));
        assert_eq!([0, 7, 1].map(|color| splits.members(1, color)), [vec![0], vec![3, 1, 4], vec![]]);
        assert_eq!(splits.members(2, 0), [1]);
    }
}
