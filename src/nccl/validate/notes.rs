//! What the ranks of several processes write to each other, as bytes: what each is about to do,
//! what each asks for in a split, with which plan each comes to a regroup, and how the communicator
//! ends.

use std::sync::Arc;

use super::ballot::Verdict;
use super::element_type::{self, Type};
use super::operation;
use super::pair::Word;
use super::regroup::{Place, Plan};
use super::signature::Signature;
use super::split::{Choice, Terms};
use crate::error::{Cause, Error};
use crate::exchange::{Reader, Writer, digest};

/// What a rank says when it comes to a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// What it is about to do.
    Does {
        /// Its collectives, or points, in their order.
        signatures: Vec<Signature>,
        /// Where one of them is messages to NCCL: the messages to each rank that it has come to,
        /// then those from each.
        messages: Vec<u64>,
        /// What it shows the others there.
        shown: Vec<u8>,
        /// What it says of the [board](super::board).
        board: Vec<u8>,
    },
    /// It comes to nothing more: how it has left, in words.
    Left(String),
}

impl Note {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Does { signatures, messages, shown, board } => {
                let writer = Writer::default().u8(1).count(signatures.len());
                let writer = signatures.iter().fold(writer, |writer, signature| {
                    encode_type(signature.0.into_iter().fold(writer, Writer::u64), operation::element(signature.head()))
                });
                let writer = writer.count(messages.len());
                messages.iter().fold(writer, |writer, count| writer.u64(*count)).bytes(shown).bytes(board).0
            }
            Self::Left(how) => Writer::default().u8(2).text(how).0,
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let told = match reader.u8()? {
            1 => {
                let signatures = reader.list(|reader| {
                    let mut words = [0; 6];
                    words.iter_mut().try_for_each(|word| reader.u64().map(|value| *word = value))?;
                    let signature = Signature(words);
                    Some(decode_type(reader)?.map_or(signature, |element| signature.of(element)))
                })?;
                let messages = reader.list(Reader::u64)?;
                Self::Does { signatures, messages, shown: reader.bytes()?.to_vec(), board: reader.bytes()?.to_vec() }
            }
            2 => Self::Left(reader.text()?.to_owned()),
            _ => return None,
        };
        reader.end(told)
    }
}

/// An element type, for other processes, which may have another number for it.
fn encode_type(writer: Writer, element: Type) -> Writer {
    match element.told() {
        None => writer.u8(0),
        Some((name, size)) => writer.u8(1).text(name).count(size),
    }
}

/// The same, of another process; `None` where the number is the same here.
fn decode_type(reader: &mut Reader<'_>) -> Option<Option<Type>> {
    match reader.u8()? {
        0 => Some(None),
        _ => Some(Some(Type::of_another(reader.text()?, reader.count()?))),
    }
}

/// Returns the signature as another process would read it: local types of the same name become one.
pub(crate) fn as_read(signature: Signature) -> Signature {
    let element = operation::element(signature.head()).told();
    element.map_or(signature, |(name, size)| signature.of(Type::of_another(name, size)))
}

/// What an end says of a message.
pub(crate) fn encode_word(word: Word) -> Vec<u8> {
    encode_type(Writer::default().u64(word.0), word_type(word)).0
}

/// The same, of another process or of this one.
pub(crate) fn decode_word(bytes: &[u8]) -> Option<Word> {
    let mut reader = Reader(bytes);
    let word = reader.u64()?;
    let element = decode_type(&mut reader)?;
    let of = |element: Type| word & !(TYPES << Word::KIND) | element.number() << Word::KIND;
    reader.end(Word(element.map_or(word, of)))
}

/// The bits of a type.
const TYPES: u64 = (1 << element_type::BITS) - 1;

fn word_type(word: Word) -> Type {
    Type::numbered(word.0 >> Word::KIND & TYPES)
}

/// How a checked communicator ends, for all of its ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The ranks disagree.
    Disagreement(Verdict),
    /// This rank has ended it, for this reason.
    Aborted(usize, String),
    /// This rank has ended, as the text says.
    Departed(usize, String),
}

impl Ending {
    /// The end that the other ranks see after `error` has ended the communicator on `rank`.
    pub(crate) fn of(rank: usize, error: &Error) -> Self {
        match error {
            Error::Disagreement { rank, peer, expected, got, departed, in_part, .. } => {
                let verdict = Verdict::new(*rank, *peer, expected.clone(), got.clone());
                Self::Disagreement(Verdict { departed: *departed, in_part: *in_part, ..verdict })
            }
            Error::Departed { rank, how, .. } => Self::Departed(*rank, how.clone()),
            Error::Aborted { reason, .. } => match reason.error() {
                Some(Error::Departed { rank, how, .. }) => Self::Departed(*rank, how.clone()),
                _ => Self::Aborted(rank, reason.to_string()),
            },
            other => Self::Aborted(rank, other.to_string()),
        }
    }

    /// The error of `operation` on the rank `own`.
    pub(crate) fn error(&self, operation: &'static str, own: usize) -> Error {
        match self {
            Self::Disagreement(verdict) => verdict.error(operation),
            Self::Aborted(rank, reason) => {
                let of_another = if *rank == own { "" } else { ", of another process" };
                let reason = Cause::from(format!("rank {rank}{of_another}: {reason}")).of_rank(*rank);
                Error::Aborted { operation, reason }
            }
            Self::Departed(rank, how) => Error::Departed { operation, rank: *rank, how: how.clone() },
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Disagreement(Verdict { rank, peer, expected, got, departed, in_part }) => {
                let writer = Writer::default().u8(1).count(*rank).count(*peer).text(expected).text(got);
                writer.u8((*departed).into()).u8((*in_part).into()).0
            }
            Self::Aborted(rank, reason) => Writer::default().u8(2).count(*rank).text(reason).0,
            Self::Departed(rank, how) => Writer::default().u8(3).count(*rank).text(how).0,
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let end = match reader.u8()? {
            1 => {
                let (rank, peer) = (reader.count()?, reader.count()?);
                let (expected, got) = (reader.text()?.to_owned(), reader.text()?.to_owned());
                let (departed, in_part) = (reader.u8()? != 0, reader.u8()? != 0);
                Self::Disagreement(Verdict { rank, peer, expected, got, departed, in_part })
            }
            2 => Self::Aborted(reader.count()?, reader.text()?.to_owned()),
            3 => Self::Departed(reader.count()?, reader.text()?.to_owned()),
            _ => return None,
        };
        reader.end(end)
    }
}

/// A configuration, for other processes; `None`: none at all.
pub(crate) fn encode_terms(writer: Writer, terms: Option<&Terms>) -> Writer {
    let writer = writer.u8(terms.is_some().into());
    let Some(terms) = terms else { return writer };
    let fields = terms.fields();
    let writer = writer.count(fields.len());
    fields.fold(writer, |writer, (name, value)| writer.text(name).text(value))
}

/// The same, of another process.
pub(crate) fn decode_terms(reader: &mut Reader<'_>) -> Option<Option<Terms>> {
    if reader.u8()? == 0 {
        return Some(None);
    }
    let fields = reader.list(|reader| Some((reader.text()?.to_owned(), reader.text()?.to_owned())))?;
    Some(Some(Terms::of_another(fields)))
}

/// What a rank asks for in a split; `None` for one that will be in no part.
pub(crate) fn encode_choice(choice: Option<&Choice>) -> Vec<u8> {
    let writer = Writer::default().u8(choice.is_some().into());
    let Some(Choice { color, key, terms }) = choice else { return writer.0 };
    encode_terms(writer.u64(*color as u64).u64(*key as u64), terms.as_deref()).0
}

/// The same, of another process.
pub(crate) fn decode_choice(bytes: &[u8]) -> Option<Option<Choice>> {
    let mut reader = Reader(bytes);
    if reader.u8()? == 0 {
        return reader.end(None);
    }
    let (color, key) = (reader.u64()? as usize, reader.u64()? as usize);
    let terms = decode_terms(&mut reader)?.map(Arc::new);
    reader.end(Some(Choice { color, key, terms }))
}

/// What a rank shows at a point: windows that it has dropped, and how large that is which it makes.
#[cfg(nccl_ge_2_27)]
pub(crate) fn encode_point(dropped: &[u64], bytes: usize) -> Vec<u8> {
    let writer = Writer::default().u64(bytes as u64).count(dropped.len());
    dropped.iter().fold(writer, |writer, number| writer.u64(*number)).0
}

/// The same, of another process.
#[cfg(nccl_ge_2_27)]
pub(crate) fn decode_point(bytes: &[u8]) -> Option<(Vec<u64>, usize)> {
    let mut reader = Reader(bytes);
    let bytes = reader.u64()? as usize;
    let dropped = reader.list(Reader::u64)?;
    reader.end((dropped, bytes))
}

/// All that go on together, with their places.
pub(super) type Party = Vec<(usize, Place)>;

/// The key of how an attempt has ended, as short for a plan that names many ranks.
pub(super) fn decision_key(plan: &Plan, attempt: u64) -> String {
    let what = digest(encode_plan(Writer::default(), &plan.sequence()).0);
    format!("g/{what:032x}/{attempt}")
}

/// What stands in the note of a rank.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RegroupNote {
    Waits { plan: Plan, place: Place, attempt: u64 },
    Left(Leave),
}

/// Why a rank comes to nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leave {
    /// It has closed its communicator: how, in words.
    Departed(String),
    /// Its communicator has ended: how, in words.
    Ended(String),
}

impl Leave {
    /// The verdict on `rank`, which has left in place of what `peer` expects.
    pub(super) fn verdict(self, rank: usize, peer: usize, expected: String) -> Verdict {
        match self {
            Self::Departed(how) => Verdict::departed(rank, peer, expected, how),
            Self::Ended(how) => Verdict::new(rank, peer, expected, how),
        }
    }
}

/// How an attempt has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Go(Party),
    Again,
    Ends(Ending),
}

/// A plan, for other processes.
fn encode_plan(writer: Writer, plan: &Plan) -> Writer {
    match plan {
        Plan::Split => writer.u8(1),
        Plan::Without(excluded, terms) => {
            let writer = writer.u8(2).count(excluded.len());
            let writer = excluded.iter().fold(writer, |writer, rank| writer.count(*rank));
            encode_terms(writer, terms.as_deref())
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
            Some(Plan::Without(excluded.into(), decode_terms(reader)?.map(Into::into)))
        }
        3 => Some(Plan::Resume),
        4 => reader.count().map(Plan::Grow),
        _ => None,
    }
}

fn decode_place(reader: &mut Reader<'_>) -> Option<Place> {
    decode_choice(reader.bytes()?)
}

impl RegroupNote {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Waits { plan, place, attempt } => {
                let writer = encode_plan(Writer::default().u8(1), plan).u64(*attempt);
                writer.bytes(&encode_choice(place.as_ref())).0
            }
            Self::Left(Leave::Departed(how)) => Writer::default().u8(2).text(how).0,
            Self::Left(Leave::Ended(how)) => Writer::default().u8(3).text(how).0,
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let says = match reader.u8()? {
            1 => {
                let (plan, attempt) = (decode_plan(&mut reader)?, reader.u64()?);
                Self::Waits { plan, attempt, place: decode_place(&mut reader)? }
            }
            2 => Self::Left(Leave::Departed(reader.text()?.to_owned())),
            3 => Self::Left(Leave::Ended(reader.text()?.to_owned())),
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
                    writer.count(*rank).bytes(&encode_choice(place.as_ref()))
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
            3 => Self::Ends(Ending::decode(reader.bytes()?)?),
            _ => return None,
        };
        reader.end(decision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written is read again, and nothing else is: not with a byte less, nor one more.
    fn check<T: PartialEq + std::fmt::Debug>(value: &T, bytes: &[u8], decode: impl Fn(&[u8]) -> Option<T>) {
        assert_eq!(decode(bytes).as_ref(), Some(value));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode(&[bytes, &[0]].concat()), None);
    }

    #[test]
    fn ending_by_a_death_is_the_same_for_all() {
        let died = Error::Departed { operation: "all_reduce", rank: 2, how: "has died".to_owned() };
        for first in [died.clone(), died.later("barrier")] {
            let error = Ending::of(0, &first).error("wait", 1);
            assert_eq!((error.kind(), error.rank()), (died.kind(), Some(2)), "{error:?}");
        }
    }

    #[test]
    fn ending_names_the_rank() {
        let end = Ending::of(1, &Error::Unsupported { operation: "step", needs: "more".into() });
        for (own, text) in [(0, "rank 1, of another process: step"), (1, "rank 1: step")] {
            let error = end.error("wait", own);
            assert_eq!(error.rank(), Some(1));
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for len in [0, 1, 3] {
            let mut numbers = |count: usize| (0..count).map(|_| random.u64(..)).collect::<Vec<_>>();
            let element = [Type::of::<f32>(), Type::of::<[i16; 7]>()][len % 2];
            let signatures = (0..len).map(|_| Signature(numbers(6).try_into().unwrap()).of(element)).collect();
            let word = Word(numbers(1)[0] & !(TYPES << Word::KIND) | element.number() << Word::KIND);
            check(&word, &encode_word(word), decode_word);
            let told = Note::Does { signatures, messages: numbers(2 * len), shown: vec![7; len], board: vec![8; len] };
            check(&told, &told.encode(), Note::decode);
            #[cfg(nccl_ge_2_27)]
            {
                let point = (numbers(len), len);
                check(&point, &encode_point(&point.0, point.1), decode_point);
            }
            let terms = (len > 0).then(|| Arc::new(Terms::new([("a", "1".to_owned()), ("b", "\u{e9}".to_owned())])));
            let choice = Some(Choice { color: len, key: 5, terms });
            check(&choice, &encode_choice(choice.as_ref()), decode_choice);
        }
        let left = Note::Left("nothing".to_owned());
        check(&left, &left.encode(), Note::decode);
        check(&None, &encode_choice(None), decode_choice);
        let verdict = Verdict::new(3, 1, "this".to_owned(), String::new());
        let departed = Verdict::departed(3, 1, "this".to_owned(), "nothing".to_owned());
        let in_part = Verdict { in_part: true, ..verdict.clone() };
        let verdicts = [verdict, departed, in_part].map(Ending::Disagreement);
        for end in
            verdicts.into_iter().chain([Ending::Aborted(3, "why".to_owned()), Ending::Departed(2, "how".to_owned())])
        {
            check(&end, &end.encode(), Ending::decode);
        }
    }

    #[test]
    fn notes_of_a_regroup_are_read() {
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
            let says = RegroupNote::Waits { plan, place: place.clone().filter(|_| at % 2 == 0), attempt: at as u64 };
            check(&says, &says.encode(), RegroupNote::decode);
        }
        for leave in [Leave::Departed, Leave::Ended] {
            let left = RegroupNote::Left(leave("nothing".to_owned()));
            check(&left, &left.encode(), RegroupNote::decode);
        }
        let ends = Decision::Ends(Ending::Aborted(3, "why".to_owned()));
        for decision in [Decision::Go(vec![(0, None), (3, place)]), Decision::Go(Vec::new()), Decision::Again, ends] {
            check(&decision, &decision.encode(), Decision::decode);
        }
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
