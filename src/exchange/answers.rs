//! What a store answers, checked: a store of the user may break its rules, or panic, and everything above takes answers as they should be.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::store::{MAX_VALUE, Store, Swap};
use crate::error::{Error, Result};
use crate::panicked;

/// A store whose answers have the right number of values, none of them too long, and which does not panic where it is asked for something.
#[derive(Debug)]
pub(super) struct Answers<S>(pub(super) S);

fn wrong(method: &'static str, key: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Error {
    let reason = format!("the store has broken its rules: expected {expected}, got {got}");
    Error::Exchange { operation: method, key: key.to_owned(), reason }
}

/// What `ask`, a call of the store, answers: a panic is an error, which takes no thread with it.
fn contain<T>(method: &'static str, key: &str, ask: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|payload| {
        let said = panicked::said(&*payload).unwrap_or("(no message)");
        let reason = format!("the store has panicked: {said}");
        // It may panic again when it is dropped.
        std::mem::forget(payload);
        Err(Error::Exchange { operation: method, key: key.to_owned(), reason })
    })
}

/// The first of some keys, for an error.
fn first<'k>(keys: &[&'k str]) -> &'k str {
    keys.first().copied().unwrap_or_default()
}

fn check_value(method: &'static str, key: &str, value: Option<&[u8]>) -> Result<()> {
    match value {
        Some(value) if value.len() > MAX_VALUE => {
            Err(wrong(method, key, format_args!("at most {MAX_VALUE} bytes"), value.len()))
        }
        _ => Ok(()),
    }
}

impl<S: Store> Store for Answers<S> {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn id(&self) -> u64 {
        self.0.id()
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        contain("Store::set", key, || self.0.set(key, value, within))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        const METHOD: &str = "Store::get";
        let values = contain(METHOD, first(keys), || self.0.get(keys, within))?;
        if values.len() != keys.len() {
            return Err(wrong(METHOD, first(keys), format_args!("{} values", keys.len()), values.len()));
        }
        keys.iter().zip(&values).try_for_each(|(key, value)| check_value(METHOD, key, value.as_deref()))?;
        Ok(values)
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        contain("Store::add", key, || self.0.add(key, by, within))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        const METHOD: &str = "Store::compare_and_set";
        let swap = contain(METHOD, key, || self.0.compare_and_set(key, expected, value, within))?;
        if let Swap::Found(found) = &swap {
            check_value(METHOD, key, found.as_deref())?;
        }
        Ok(swap)
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        contain("Store::delete", key, || self.0.delete(key, within))
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        contain("Store::clear", prefix, || self.0.clear(prefix, within))
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        const METHOD: &str = "Store::ended";
        let ends = contain(METHOD, "", || self.0.ended(ids, within))?;
        if ends.len() != ids.len() {
            return Err(wrong(METHOD, "", format_args!("{} answers", ids.len()), ends.len()));
        }
        Ok(ends)
    }
}
