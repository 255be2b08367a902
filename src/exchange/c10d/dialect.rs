//! The two protocols: which number each query has.

/// What a connection of today's protocol begins with: a query that has no answer.
pub(super) const HELLO: [u8; 5] = [0, 0xce, 0xf7, 0x85, 0x3c];

/// The answer to a wait: what was waited for is there.
pub(super) const STOP_WAITING: u8 = 0;

/// The answer to the end of a wait.
pub(super) const WAIT_CANCELED: u8 = 1;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Query {
    Set,
    CompareSet,
    Get,
    Add,
    Check,
    Wait,
    CountKeys,
    Delete,
    Append,
    MultiGet,
    MultiSet,
    CancelWait,
    Ping,
    QueuePush,
    QueuePop,
    QueueLen,
    ListKeys,
}

/// Queries by their number.
const TODAY: [Option<Query>; 18] = [
    None,
    Some(Query::Set),
    Some(Query::CompareSet),
    Some(Query::Get),
    Some(Query::Add),
    Some(Query::Check),
    Some(Query::Wait),
    Some(Query::CountKeys),
    Some(Query::Delete),
    Some(Query::Append),
    Some(Query::MultiGet),
    Some(Query::MultiSet),
    Some(Query::CancelWait),
    Some(Query::Ping),
    Some(Query::QueuePush),
    Some(Query::QueuePop),
    Some(Query::QueueLen),
    Some(Query::ListKeys),
];

/// The last four came between 1.13 and the hello.
const OLD: [Option<Query>; 13] = [
    Some(Query::Set),
    Some(Query::CompareSet),
    Some(Query::Get),
    Some(Query::Add),
    Some(Query::Check),
    Some(Query::Wait),
    Some(Query::CountKeys),
    // To be told of all that happens to a key, which nobody serves any more.
    None,
    Some(Query::Delete),
    Some(Query::Append),
    Some(Query::MultiGet),
    Some(Query::MultiSet),
    Some(Query::CancelWait),
];

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Today,
    /// That of PyTorch 1.13.
    Old,
}

impl Dialect {
    const fn queries(self) -> &'static [Option<Query>] {
        match self {
            Self::Today => &TODAY,
            Self::Old => &OLD,
        }
    }

    pub(super) fn query(self, number: u8) -> Option<Query> {
        *self.queries().get(usize::from(number))?
    }

    /// The number of a query; 255, which is none, where this protocol has no such query.
    pub(super) fn number(self, query: Query) -> u8 {
        let at = self.queries().iter().position(|other| *other == Some(query));
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    }

    /// Which one a client speaks, by the first bytes that it has sent; `Ok(None)` for too few of them, `Err` for neither.
    pub(super) fn of(start: &[u8]) -> Result<Option<Self>, ()> {
        match start.first() {
            None => Ok(None),
            Some(0) => match start.first_chunk::<5>() {
                None => Ok(None),
                Some(&HELLO) => Ok(Some(Self::Today)),
                // A set, and the length of its key.
                Some(_) => Ok(Some(Self::Old)),
            },
            Some(number) => Self::Old.query(*number).map(|_| Some(Self::Old)).ok_or(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(Dialect::Today.query(0), None);
        assert_eq!((Dialect::Today.number(Query::Set), Dialect::Old.number(Query::Set)), (1, 0));
        assert_eq!((Dialect::Today.number(Query::CancelWait), Dialect::Old.number(Query::CancelWait)), (12, 12));
        assert_eq!((Dialect::Today.number(Query::Delete), Dialect::Old.number(Query::Delete)), (8, 8));
        assert_eq!((Dialect::Today.number(Query::ListKeys), Dialect::Old.number(Query::Ping)), (17, 255));
        for dialect in [Dialect::Today, Dialect::Old] {
            for number in 0..=u8::MAX {
                assert!(dialect.query(number).is_none_or(|query| dialect.number(query) == number));
            }
        }
    }

    #[test]
    fn who_begins_how() {
        assert_eq!(HELLO[1..], 0x3C85_F7CE_u32.to_le_bytes());
        assert_eq!(Dialect::of(b""), Ok(None));
        assert_eq!(Dialect::of(&HELLO[..4]), Ok(None));
        assert_eq!(Dialect::of(&HELLO), Ok(Some(Dialect::Today)));
        assert_eq!(Dialect::of(&[0, 3, 0, 0, 0]), Ok(Some(Dialect::Old)));
        assert_eq!(Dialect::of(&[6]), Ok(Some(Dialect::Old)));
        assert_eq!(Dialect::of(b"GET / HTTP/1.1"), Err(()));
    }
}
