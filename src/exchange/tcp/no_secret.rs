//! What stands for a shared secret without the feature `secret`: nobody has one.

use std::fmt;

use super::proof::{End, Tag};

/// A secret: there is none.
#[derive(Debug, Clone)]
pub(super) enum Secret {}

impl Secret {
    pub(super) fn is_empty(&self) -> bool {
        match *self {}
    }

    pub(super) fn prove(&self, _by: End, _said: &[&[u8]]) -> Tag {
        match *self {}
    }

    pub(super) fn proves(&self, _by: End, _said: &[&[u8]], _tag: &[u8]) -> bool {
        match *self {}
    }

    pub(super) fn seals(&self, _end: End, _said: &[&[u8]]) -> Seals {
        match *self {}
    }
}

/// The marks of a connection: there are none.
pub(super) enum Seals {}

impl fmt::Debug for Seals {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Seals {
    pub(super) fn mark<'a>(&mut self, _parts: impl Iterator<Item = &'a [u8]>) -> Tag {
        match *self {}
    }

    #[must_use]
    pub(super) fn open(&mut self, _frame: &mut Vec<u8>) -> bool {
        match *self {}
    }
}
