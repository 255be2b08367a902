//! What one rank leaves for the others under a key, without all doing something together: for who compares what ranks are about to do.

use std::time::Duration;

use super::handle::Exchange;
use super::store::{MAX_KEYS, Swap};
use super::view::{Came, GRACE};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

impl Exchange {
    /// The name of a note in the store.
    fn note(&self, key: &str) -> String {
        format!("{}n/{key}", self.view.path)
    }

    /// Leaves a note.
    pub(crate) fn leave_note(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        self.view.store.set(&self.note(key), value, within)
    }

    /// Leaves a note, unless somebody has left one under that key: what stands there then.
    pub(crate) fn leave_first(
        &self,
        operation: &'static str,
        key: &str,
        value: &[u8],
        within: Duration,
    ) -> Result<Vec<u8>> {
        let name = self.note(key);
        match self.view.store.compare_and_set(&name, None, value, within)? {
            Swap::Done => Ok(value.to_vec()),
            Swap::Found(Some(bytes)) => Ok(bytes),
            Swap::Found(None) => {
                let reason = "expected a value, or that it could be set, got neither".to_owned();
                Err(Error::Exchange { operation, key: name, reason })
            }
        }
    }

    /// The notes under these keys, beside each of which stands the rank that leaves it; waits `within` for those that are not there.
    pub(crate) fn notes(&self, keys: &[(usize, String)], within: Duration) -> Result<Vec<Came>> {
        let keys: Vec<_> = keys.iter().map(|(rank, key)| (*rank, self.note(key))).collect();
        let came = self.view.await_keys(&keys, &Deadline::after(within), |came| {
            Ok(came.iter().any(|came| matches!(came, Came::Ended(_))))
        });
        match came {
            // The store is slow to answer: whoever asks has a deadline of its own.
            Err(Error::Timeout { .. }) => Ok(vec![Came::NotYet; keys.len()]),
            came => came,
        }
    }

    /// The notes that stand under these keys now.
    ///
    /// # Errors
    /// [`Error::Timeout`] where the store does not answer: nobody knows whether they stand there.
    pub(crate) fn notes_now(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut all = Vec::with_capacity(keys.len());
        for part in keys.chunks(MAX_KEYS) {
            let names: Vec<_> = part.iter().map(|key| self.note(key)).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            all.extend(self.view.store.get(&names, Duration::ZERO)?);
        }
        Ok(all)
    }

    /// The note under a key that any rank may leave; waits `within` for it.
    pub(crate) fn note_of_any(&self, key: &str, within: Duration) -> Result<Option<Vec<u8>>> {
        match self.view.store.get(&[&self.note(key)], within) {
            Err(Error::Timeout { .. }) => Ok(None),
            found => Ok(found?.swap_remove(0)),
        }
    }

    /// Takes a note away. One that stays costs its bytes until the generation ends.
    pub(crate) fn take_note(&self, key: &str) {
        let _ = self.view.store.delete(&self.note(key), GRACE);
    }

    /// Takes all notes away whose keys begin with `prefix`, which ends with `/`.
    pub(crate) fn take_notes(&self, prefix: &str) {
        let _ = self.view.store.clear(&self.note(prefix), GRACE);
    }
}
