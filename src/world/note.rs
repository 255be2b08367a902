//! The note that a rank of a world leaves for the others when it ends.

use crate::nccl::Totals;

/// How a rank has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// In good order, after so many operations, which are done.
    Left(Totals),
    /// For this reason.
    Failed(String),
}

const LEFT: &str = "left";
const FAILED: &str = "failed";

impl Note {
    /// The key of the note of a rank.
    pub(super) fn key(rank: usize) -> String {
        format!("world/end/{rank}")
    }

    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Left(totals) => {
                let messages = totals.messages.iter().map(|[to, from]| format!(" {to},{from}")).collect::<String>();
                format!("{LEFT} {}{messages}", totals.collectives)
            }
            Self::Failed(reason) => format!("{FAILED} {reason}"),
        }
    }

    /// The note with this text. What is no note is the reason of a failure.
    pub(super) fn of(text: &str) -> Self {
        match text.split_once(' ') {
            Some((LEFT, counts)) => parse(counts).map_or_else(|| Self::Failed(text.to_owned()), Self::Left),
            Some((FAILED, reason)) => Self::Failed(reason.to_owned()),
            _ => Self::Failed(text.to_owned()),
        }
    }
}

fn parse(counts: &str) -> Option<Totals> {
    let mut counts = counts.split(' ');
    let collectives = counts.next()?.parse().ok()?;
    let both = |text: &str| text.split_once(',').and_then(|(to, from)| Some([to.parse().ok()?, from.parse().ok()?]));
    let messages = counts.map(both).collect::<Option<_>>()?;
    Some(Totals { collectives, messages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let left = |collectives, messages: &[[u64; 2]]| Note::Left(Totals { collectives, messages: messages.to_vec() });
        let failed = |reason: &str| Note::Failed(reason.to_owned());
        for note in [left(0, &[]), left(7, &[[1, 2], [0, u64::MAX]]), failed(""), failed("left 3"), failed("two words")]
        {
            assert_eq!(Note::of(&note.to_text()), note);
        }
        for text in ["", "left", "left x", "left 1 2", "left 1 2,", "something else"] {
            assert_eq!(Note::of(text), failed(text));
        }
    }
}
