//! Answers, as both ends know them: a 0 and what was asked for, or a 1 and why not.

use std::sync::Arc;

use crate::exchange::net::line::Piece;
use crate::exchange::store::Swap;
use crate::exchange::wire::{Reader, Writer};

pub(super) fn done(writer: Writer) -> Vec<Piece> {
    let mut bytes = vec![0];
    bytes.extend(writer.0);
    vec![Piece::Own(bytes)]
}

pub(super) fn refused(reason: &str) -> Vec<Piece> {
    vec![Piece::Own(Writer::default().u8(1).text(reason).0)]
}

pub(super) fn swap(swap: &Swap) -> Vec<Piece> {
    done(match swap {
        Swap::Done => Writer::default().u8(0),
        Swap::Found(None) => Writer::default().u8(1),
        Swap::Found(Some(value)) => Writer::default().u8(2).bytes(value),
    })
}

pub(super) fn values(values: Vec<Option<Arc<[u8]>>>) -> Vec<Piece> {
    let mut pieces = done(Writer::default().count(values.len()));
    for value in values {
        match value {
            None => pieces.push(Piece::Own(vec![0])),
            Some(value) => {
                pieces.push(Piece::Own(Writer::default().u8(1).count(value.len()).0));
                pieces.push(Piece::Value(value));
            }
        }
    }
    pieces
}

pub(super) fn ends<'a>(ends: impl ExactSizeIterator<Item = Option<&'a str>>) -> Vec<Piece> {
    let start = Writer::default().count(ends.len());
    done(ends.fold(start, |writer, end| match end {
        None => writer.u8(0),
        Some(how) => writer.u8(1).text(how),
    }))
}

/// What stands behind the 0 of an answer, or the reason behind its 1; `None` for neither.
pub(super) fn open(bytes: &[u8]) -> Option<Result<Reader<'_>, &str>> {
    let mut reader = Reader(bytes);
    match reader.u8()? {
        0 => Some(Ok(reader)),
        1 => reader.text().map(Err),
        _ => None,
    }
}

pub(super) fn read_swap(mut reader: Reader<'_>) -> Option<Swap> {
    Some(match reader.u8()? {
        0 => Swap::Done,
        1 => Swap::Found(None),
        2 => Swap::Found(Some(reader.bytes()?.to_vec())),
        _ => return None,
    })
}

pub(super) fn read_values(mut reader: Reader<'_>) -> Option<Vec<Option<Vec<u8>>>> {
    reader.list(|reader| match reader.u8()? {
        0 => Some(None),
        1 => Some(Some(reader.bytes()?.to_vec())),
        _ => None,
    })
}

pub(super) fn read_ends(mut reader: Reader<'_>) -> Option<Vec<Option<String>>> {
    reader.list(|reader| match reader.u8()? {
        0 => Some(None),
        1 => Some(Some(reader.text()?.to_owned())),
        _ => None,
    })
}
