//! What the server holds, as PyTorch's servers have it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::scan::MAX_BYTES;
use crate::exchange::table::{ENTRY, MAX_BYTES as MAX_TOTAL};

/// Keys and their values, and queues.
#[derive(Debug, Default)]
pub(super) struct Values {
    values: HashMap<Arc<[u8]>, Arc<[u8]>>,
    queues: HashMap<Vec<u8>, VecDeque<Arc<[u8]>>>,
    bytes: usize,
}

/// What is refused: a client that asks for it is let go, as PyTorch has it.
pub(super) type Outcome<T> = Result<T, ()>;

impl Values {
    /// Counts `more` bytes, where there is room for them, in place of `less`.
    fn charge(&mut self, more: usize, less: usize) -> Outcome<()> {
        let bytes = self.bytes - less + more;
        if bytes > MAX_TOTAL {
            return Err(());
        }
        self.bytes = bytes;
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = Arc<[u8]>> {
        self.values.keys().cloned()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Arc<[u8]>> {
        self.values.get(key).cloned()
    }

    /// Whether who waits for the key waits no more.
    pub(super) fn is_there(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.charge(cost(key, value), self.values.get(key).map_or(0, |old| cost(key, old)))?;
        self.values.insert(key.into(), value.into());
        Ok(())
    }

    /// What is there afterwards, and whether it was changed. A key that is not there is as good as one with an empty value, but for
    /// what is said then: that all is as it was expected.
    pub(super) fn compare_and_set(&mut self, key: &[u8], expected: &[u8], new: &[u8]) -> Outcome<(Arc<[u8]>, bool)> {
        match self.get(key) {
            None if !expected.is_empty() => Ok((expected.into(), false)),
            Some(found) if *found != *expected => Ok((found, false)),
            _ => {
                self.set(key, new)?;
                Ok((new.into(), true))
            }
        }
    }

    pub(super) fn add(&mut self, key: &[u8], by: i64) -> Outcome<i64> {
        let number = self.values.get(key).map_or(Some(0), |value| number(value));
        let sum = number.and_then(|number| number.checked_add(by)).ok_or(())?;
        self.set(key, sum.to_string().as_bytes())?;
        Ok(sum)
    }

    pub(super) fn append(&mut self, key: &[u8], more: &[u8]) -> Outcome<()> {
        match self.get(key) {
            None => self.set(key, more),
            Some(value) if value.len() + more.len() <= MAX_BYTES => self.set(key, &[&value, more].concat()),
            Some(_) => Err(()),
        }
    }

    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        let old = self.values.remove(key);
        self.bytes -= old.as_ref().map_or(0, |old| cost(key, old));
        old.is_some()
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.charge(cost(key, value), 0)?;
        self.queues.entry(key.to_vec()).or_default().push_back(value.into());
        Ok(())
    }

    /// How many there were, and the first of them.
    pub(super) fn pop(&mut self, key: &[u8]) -> (usize, Option<Arc<[u8]>>) {
        let Some(queue) = self.queues.get_mut(key) else { return (0, None) };
        let (len, value) = (queue.len(), queue.pop_front());
        if queue.is_empty() {
            self.queues.remove(key);
        }
        self.bytes -= value.as_ref().map_or(0, |value| cost(key, value));
        (len, value)
    }

    /// Whether it has counted right.
    #[cfg(any(test, fuzzing))]
    pub(super) fn adds_up(&self) -> bool {
        let queued = self.queues.iter().flat_map(|(key, queue)| queue.iter().map(move |value| cost(key, value)));
        let bytes: usize = self.values.iter().map(|(key, value)| cost(key, value)).chain(queued).sum();
        self.bytes == bytes && self.queues.values().all(|queue| !queue.is_empty())
    }

    pub(super) fn queued(&self, key: &[u8]) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }
}

fn cost(key: &[u8], value: &[u8]) -> usize {
    ENTRY + key.len() + value.len()
}

/// The number that a value begins with, as C reads one: behind blanks, as far as there are digits.
fn number(value: &[u8]) -> Option<i64> {
    let blanks = value.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let rest = &value[blanks..];
    let sign = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
    let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..sign + digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_c_reads_them() {
        let cases: [(&[u8], Option<i64>); 9] = [
            (b"12", Some(12)),
            (b" -7 apples", Some(-7)),
            (b"+3\0\x99\x01", Some(3)),
            (b"", None),
            (b"x1", None),
            (b"-", None),
            (b"9223372036854775807", Some(i64::MAX)),
            (b"9223372036854775808", None),
            (b"1_000", Some(1)),
        ];
        for (text, expected) in cases {
            assert_eq!(number(text), expected, "{text:?}");
        }
    }

    #[test]
    fn values_as_pytorch_has_them() {
        let mut values = Values::default();
        let swap = |values: &mut Values, expected: &[u8], new: &[u8]| {
            let (found, changed) = values.compare_and_set(b"k", expected, new).unwrap();
            (found.to_vec(), changed)
        };
        assert_eq!(swap(&mut values, b"x", b"y"), (b"x".to_vec(), false));
        assert_eq!(values.len(), 0);
        assert_eq!(swap(&mut values, b"", b"y"), (b"y".to_vec(), true));
        assert_eq!(swap(&mut values, b"", b"z"), (b"y".to_vec(), false));
        assert_eq!(swap(&mut values, b"y", b"z"), (b"z".to_vec(), true));
        values.append(b"k", b"end").unwrap();
        assert_eq!(values.get(b"k").as_deref(), Some(&b"zend"[..]));
        assert_eq!(values.add(b"k", 1), Err(()));
        assert_eq!(
            (values.add(b"n", i64::MAX), values.add(b"n", 1), values.add(b"n", -1)),
            (Ok(i64::MAX), Err(()), Ok(i64::MAX - 1))
        );
        values.append(b"new", b"x").unwrap();
        assert!(values.delete(b"new") && !values.delete(b"new"));
        assert_eq!(values.pop(b"q"), (0, None));
        values.push(b"q", b"1").unwrap();
        values.push(b"q", b"2").unwrap();
        assert!(values.is_there(b"q") && values.queued(b"q") == 2 && values.len() == 2);
        assert_eq!(values.pop(b"q"), (2, Some(b"1".to_vec().into())));
        assert_eq!(values.pop(b"q"), (1, Some(b"2".to_vec().into())));
        assert!(!values.is_there(b"q"));
        assert!(values.delete(b"k") && values.delete(b"n"));
        // Nothing is counted that is not there.
        assert_eq!(values.bytes, 0);
    }

    #[test]
    fn a_full_store_takes_no_more() {
        let mut values = Values { bytes: MAX_TOTAL - 200, ..Values::default() };
        values.set(b"k", &[0; 100]).unwrap();
        assert_eq!(values.set(b"l", &[0; 100]), Err(()));
        assert_eq!(values.push(b"l", &[0; 100]), Err(()));
        values.set(b"k", &[1; 120]).unwrap();
        assert!(values.delete(b"k"));
        values.set(b"l", &[0; 100]).unwrap();
    }
}
