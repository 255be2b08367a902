//! What the ranks of an operation must agree on.

use std::sync::atomic::{AtomicU64, Ordering};

use super::operation::Operation;
use super::registered;
use crate::nccl::basics::kind::{Kind, Redop, element_name};
use crate::sys::ncclDataType_t;

/// Words of shared memory that a signature takes.
pub(crate) const SIGNATURE_WORDS: usize = 2;

/// What the ranks of an operation must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    kind: Kind,
    datatype: u32,
    redop: u8,
    count: u64,
    root: u32,
    captured: bool,
    /// Which buffers are registered.
    registered: u8,
    /// What the configuration of the call says.
    config: u16,
}

impl Signature {
    pub(crate) fn of(operation: &Operation) -> Self {
        Self {
            kind: operation.kind,
            datatype: operation.datatype.0,
            redop: operation.redop as u8,
            count: operation.count as u64,
            root: operation.peer as u32,
            captured: operation.captured,
            registered: operation.registered.word,
            config: operation.config,
        }
    }

    /// Two words that say all of it.
    pub(crate) fn words(&self) -> [u64; SIGNATURE_WORDS] {
        let head = self.kind as u64 | u64::from(self.datatype) << 8 | u64::from(self.redop) << 16;
        let head = head | u64::from(self.captured) << 24 | u64::from(self.registered) << 25;
        [head | u64::from(self.root) << 32 | u64::from(self.config) << 48, self.count]
    }

    /// Writes it into shared memory.
    pub(crate) fn put(&self, words: &[AtomicU64]) {
        for (slot, word) in words.iter().zip(self.words()) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    /// Reads what [`Self::put`] has written.
    pub(crate) fn read(words: &[AtomicU64]) -> Option<Self> {
        let [head, count] = [words.first()?, words.get(1)?].map(|word| word.load(Ordering::Relaxed));
        Some(Self {
            kind: Kind::from_code(head & 0xff)?,
            datatype: (head >> 8) as u32 & 0xff,
            redop: (head >> 16) as u8,
            count,
            root: (head >> 32) as u32 & 0xffff,
            captured: head >> 24 & 1 != 0,
            registered: (head >> 25) as u8 & 7,
            config: (head >> 48) as u16,
        })
    }

    pub(crate) fn describe(&self) -> String {
        let name = self.kind.name();
        let datatype = element_name(ncclDataType_t(self.datatype));
        let mut text = format!("{name} of {} elements of {datatype}", self.count);
        if self.kind.reduces() {
            let redop = Redop::from_code(u64::from(self.redop)).map_or("no operator", Redop::name);
            text.push_str(&format!(", {redop}"));
        }
        if self.kind.rooted() {
            text.push_str(&format!(", root {}", self.root));
        }
        if self.captured {
            text.push_str(", in a graph");
        }
        text.push_str(registered::describe(self.registered));
        if self.config != 0 {
            text.push_str(&format!(", with configuration {:04x}", self.config));
        }
        text
    }
}
