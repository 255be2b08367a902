//! What the ranks of a checked communicator know, and write to each other, where they meet in [`seats`](super::seats).

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::regroup::{Place, Plan};
use super::told::{self, End};
use crate::exchange::{Reader, Writer, digest};

/// All that go on together, with their places.
pub(super) type Party = Vec<(usize, Place)>;

/// What one rank of a checked communicator knows of its attempts.
#[derive(Debug, Default)]
pub(super) struct Seats {
    /// The next attempt of each plan, whatever its configuration.
    attempts: Mutex<Vec<(Plan, u64)>>,
    /// What was agreed on last.
    last: Mutex<String>,
}

impl Seats {
    pub(super) fn attempt(&self, plan: &Plan) -> u64 {
        let plan = plan.sequence();
        locked(&self.attempts).iter().find(|(known, _)| *known == plan).map_or(0, |(_, next)| *next)
    }

    pub(super) fn set(&self, plan: &Plan, next: u64) {
        let (plan, mut all) = (plan.sequence(), locked(&self.attempts));
        match all.iter_mut().find(|(known, _)| *known == plan) {
            Some((_, known)) => *known = next,
            None => all.push((plan, next)),
        }
    }

    /// What was agreed on last.
    pub(super) fn last(&self) -> String {
        locked(&self.last).clone()
    }

    pub(super) fn agree(&self, what: String) {
        *locked(&self.last) = what;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of how an attempt has ended, as short for a plan that names many ranks.
pub(super) fn decision_key(plan: &Plan, attempt: u64) -> String {
    let what = digest(encode_plan(Writer::default(), &plan.sequence()).0);
    format!("g/{what:032x}/{attempt}")
}

/// What stands in the note of a rank.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Says {
    Waits {
        plan: Plan,
        place: Place,
        attempt: u64,
    },
    /// It comes to nothing more: how it has left, in words.
    Left(String),
}

/// How an attempt has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Go(Party),
    Again,
    Ends(End),
}

/// A plan, for other processes.
fn encode_plan(writer: Writer, plan: &Plan) -> Writer {
    match plan {
        Plan::Split => writer.u8(1),
        Plan::Without(excluded, terms) => {
            let writer = writer.u8(2).count(excluded.len());
            let writer = excluded.iter().fold(writer, |writer, rank| writer.count(*rank));
            told::encode_terms(writer, terms.as_deref())
        }
        Plan::Resume => writer.u8(3),
        Plan::Grow(more) => writer.u8(4).count(*more),
    }
}

fn decode_plan(reader: &mut Reader<'_>) -> Option<Plan> {
    match reader.u8()? {
        1 => Some(Plan::Split),
        2 => {
            let excluded = reader.list(Reader::count)?;
            Some(Plan::Without(excluded.into(), told::decode_terms(reader)?.map(Into::into)))
        }
        3 => Some(Plan::Resume),
        4 => reader.count().map(Plan::Grow),
        _ => None,
    }
}

fn decode_place(reader: &mut Reader<'_>) -> Option<Place> {
    told::decode_choice(reader.bytes()?)
}

impl Says {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Waits { plan, place, attempt } => {
                let writer = encode_plan(Writer::default().u8(1), plan).u64(*attempt);
                writer.bytes(&told::encode_choice(place.as_ref())).0
            }
            Self::Left(how) => Writer::default().u8(2).text(how).0,
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let says = match reader.u8()? {
            1 => {
                let (plan, attempt) = (decode_plan(&mut reader)?, reader.u64()?);
                Self::Waits { plan, attempt, place: decode_place(&mut reader)? }
            }
            2 => Self::Left(reader.text()?.to_owned()),
            _ => return None,
        };
        reader.end(says)
    }
}

impl Decision {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Go(party) => {
                let writer = Writer::default().u8(1).count(party.len());
                let of = |writer: Writer, (rank, place): &(usize, Place)| {
                    writer.count(*rank).bytes(&told::encode_choice(place.as_ref()))
                };
                party.iter().fold(writer, of).0
            }
            Self::Again => Writer::default().u8(2).0,
            Self::Ends(end) => Writer::default().u8(3).bytes(&end.encode()).0,
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let decision = match reader.u8()? {
            1 => Self::Go(reader.list(|reader| Some((reader.count()?, decode_place(reader)?)))?),
            2 => Self::Again,
            3 => Self::Ends(End::decode(reader.bytes()?)?),
            _ => return None,
        };
        reader.end(decision)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::nccl::agree::choice::Choice;
    use crate::nccl::agree::terms::Terms;

    /// What is written is read again, and nothing else is: not with a byte less, nor one more.
    #[test]
    fn what_is_written_is_read() {
        fn check<T: PartialEq + std::fmt::Debug>(value: &T, bytes: &[u8], decode: impl Fn(&[u8]) -> Option<T>) {
            assert_eq!(decode(bytes).as_ref(), Some(value));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
            assert_eq!(decode(&[bytes, &[0]].concat()), None);
        }
        let terms = Arc::new(Terms::new([("a", "1".to_owned())]));
        let place = Some(Choice { color: 7, key: 1, terms: Some(Arc::clone(&terms)) });
        let plans = [
            Plan::Split,
            Plan::Without([1, 4].into(), Some(terms)),
            Plan::Without([0].into(), None),
            Plan::Resume,
            Plan::Grow(3),
        ];
        for (at, plan) in plans.into_iter().enumerate() {
            let says = Says::Waits { plan, place: place.clone().filter(|_| at % 2 == 0), attempt: at as u64 };
            check(&says, &says.encode(), Says::decode);
        }
        let left = Says::Left("nothing".to_owned());
        check(&left, &left.encode(), Says::decode);
        let ends = Decision::Ends(End::Aborted("why".to_owned()));
        for decision in [Decision::Go(vec![(0, None), (3, place)]), Decision::Go(Vec::new()), Decision::Again, ends] {
            check(&decision, &decision.encode(), Decision::decode);
        }
    }

    #[test]
    fn attempts_are_counted_whatever_the_configuration() {
        let seats = Seats::default();
        let terms = Terms::default();
        seats.set(&Plan::Without([1].into(), None), 3);
        let plans = [Plan::Without([1].into(), Some(terms.into())), Plan::Without([2].into(), None), Plan::Split];
        assert_eq!(plans.each_ref().map(|plan| seats.attempt(plan)), [3, 0, 0]);
        assert_eq!(decision_key(&plans[0], 3), decision_key(&Plan::Without([1].into(), None), 3));
        assert_ne!(decision_key(&plans[0], 3), decision_key(&plans[1], 3));
    }

    #[test]
    fn a_key_is_as_short_for_many_ranks() {
        let without = |ranks: std::ops::Range<usize>| decision_key(&Plan::Without(ranks.collect(), None), 3);
        let long = without(0..200);
        assert_eq!(long.len(), without(0..1).len());
        assert!(long.len() < 64, "{long}");
        assert_ne!(long, without(1..201));
    }
}
