//! Notes: values that one rank leaves for the others, without a collective call. Checked mode uses them
//! to compare the operations of ranks.

#[cfg(feature = "nccl")]
use std::sync::Arc;
use std::time::Duration;

use super::handle::Exchange;
use super::store::{MAX_KEYS, Swap};
use super::view::{Came, GRACE};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

impl Exchange {
    /// The key of a note in the store.
    fn note(&self, key: &str) -> String {
        format!("{}n/{key}", self.view.path)
    }

    /// Leaves a note.
    pub(crate) fn leave_note(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        self.view.store.set(&self.note(key), value, within)
    }

    /// Returns a function that leaves a note and does not keep the exchange meanwhile. It returns `None` once all handles of
    /// the exchange are gone.
    #[cfg(feature = "nccl")]
    pub(crate) fn note_for_later(&self, key: &str) -> impl Fn(&[u8], Duration) -> Option<Result<()>> + use<> {
        let (store, name) = (Arc::downgrade(&self.view.store), self.note(key));
        move |value, within| Some(store.upgrade()?.set(&name, value, within))
    }

    /// Leaves a note, unless there is already one under this key. Returns the value that is now there.
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

    /// Reads notes. Each key comes with the rank that leaves the note. Waits up to `within` for missing
    /// notes, until a rank ends without leaving its note.
    pub(crate) fn notes(&self, keys: &[(usize, String)], within: Duration) -> Result<Vec<Came>> {
        let keys: Vec<_> = keys.iter().map(|(rank, key)| (*rank, self.note(key))).collect();
        let came = self.view.await_keys(&keys, &Deadline::after(within), |came| {
            Ok(came.iter().any(|came| matches!(came, Came::Ended(_))))
        });
        match came {
            // The store is slow. The caller has its own deadline and asks again.
            Err(Error::Timeout { .. }) => Ok(vec![Came::NotYet; keys.len()]),
            came => came,
        }
    }

    /// Reads the notes that exist now.
    ///
    /// # Errors
    /// Returns [`Error::Timeout`] if the store does not answer. It is then unknown whether the notes exist.
    pub(crate) fn notes_now(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut all = Vec::with_capacity(keys.len());
        for part in keys.chunks(MAX_KEYS) {
            let names: Vec<_> = part.iter().map(|key| self.note(key)).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            all.extend(self.view.store.get(&names, Duration::ZERO)?);
        }
        Ok(all)
    }

    /// Reads a note that any rank may leave. Waits up to `within` for it.
    pub(crate) fn note_of_any(&self, key: &str, within: Duration) -> Result<Option<Vec<u8>>> {
        match self.view.store.get(&[&self.note(key)], within) {
            Err(Error::Timeout { .. }) => Ok(None),
            found => Ok(found?.swap_remove(0)),
        }
    }

    /// Deletes a note. If that fails, the note takes space in the store until the generation ends.
    pub(crate) fn take_note(&self, key: &str) {
        let _ = self.view.store.delete(&self.note(key), GRACE);
    }

    /// Deletes all notes whose keys begin with `prefix`, which ends with `/`.
    pub(crate) fn take_notes(&self, prefix: &str) {
        let _ = self.view.store.clear(&self.note(prefix), GRACE);
    }
}
