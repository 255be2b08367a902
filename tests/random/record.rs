//! What one rank has seen of a program, in words that are the same wherever the program runs: no times, no addresses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gpucomm::Error;

/// Texts by the number of the step.
#[derive(Debug, Default, Clone)]
pub struct Record(Arc<Mutex<BTreeMap<usize, Vec<String>>>>);

impl Record {
    pub fn add(&self, step: usize, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(step).or_default().push(text);
    }

    /// A line for each step that was recorded.
    pub fn lines(&self) -> BTreeMap<usize, String> {
        let steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.iter().map(|(step, texts)| (*step, texts.join("; "))).collect()
    }
}

/// An error as its kind.
pub fn kind(error: &Error) -> String {
    let text = format!("{error:?}");
    text.rsplit(['[', ']']).nth(1).unwrap_or_default().to_owned()
}

/// An error as its kind and the operation that met it.
pub fn kind_of(error: &Error) -> String {
    let text = error.to_string();
    format!("{} of {}", kind(error), text.split(": ").next().unwrap_or_default())
}

/// A result whose value says nothing.
pub fn outcome<T>(result: &Result<T, Error>) -> String {
    result.as_ref().err().map_or_else(|| "ok".to_owned(), kind_of)
}

/// FNV-1a.
pub fn digest(words: impl Iterator<Item = u64>) -> u64 {
    let bytes = words.flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The same of a text.
pub fn digest_of(text: &str) -> u64 {
    digest(text.bytes().map(u64::from))
}

#[test]
fn errors_as_kind_and_operation() {
    let error = Error::InvalidUsage { operation: "group", reason: "at 0x7f00: 3 ms".into() };
    assert_eq!(outcome::<()>(&Err(error)), "InvalidUsage of group");
}
