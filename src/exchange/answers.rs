//! What a store answers, checked: a store of the user may break its rules, and everything above takes answers as they should be.

use std::time::Duration;

use super::store::{MAX_VALUE, Store, Swap};
use crate::error::{Error, Result};

/// A store whose answers have the right number of values, none of them too long.
#[derive(Debug)]
pub(super) struct Answers<S>(pub(super) S);

fn wrong(method: &'static str, key: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Error {
    let reason = format!("the store has broken its rules: expected {expected}, got {got}");
    Error::Exchange { operation: method, key: key.to_owned(), reason }
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
        self.0.set(key, value, within)
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        const METHOD: &str = "Store::get";
        let values = self.0.get(keys, within)?;
        if values.len() != keys.len() {
            let key = keys.first().copied().unwrap_or_default();
            return Err(wrong(METHOD, key, format_args!("{} values", keys.len()), values.len()));
        }
        keys.iter().zip(&values).try_for_each(|(key, value)| check_value(METHOD, key, value.as_deref()))?;
        Ok(values)
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.0.add(key, by, within)
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        let swap = self.0.compare_and_set(key, expected, value, within)?;
        if let Swap::Found(found) = &swap {
            check_value("Store::compare_and_set", key, found.as_deref())?;
        }
        Ok(swap)
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        self.0.delete(key, within)
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        self.0.clear(prefix, within)
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        let ends = self.0.ended(ids, within)?;
        if ends.len() != ids.len() {
            return Err(wrong("Store::ended", "", format_args!("{} answers", ids.len()), ends.len()));
        }
        Ok(ends)
    }
}
