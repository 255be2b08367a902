//! What is waited for just now, in words, so that it can stand in the errors of who gives up waiting.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::lock;

/// The waits of one party that have lasted for a while.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<Vec<(u64, String)>>);

impl Waits {
    /// All of them.
    pub(crate) fn text(&self) -> Option<String> {
        let waits = lock(&self.0);
        let texts: Vec<_> = waits.iter().map(|(_, text)| text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// One wait, as long as this lives.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    waits: &'a Waits,
    /// Among the waits, once it has been described.
    number: Option<u64>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(waits: &'a Waits) -> Self {
        Self { waits, number: None }
    }

    /// Says what is waited for, in place of what was said before.
    pub(crate) fn say(&mut self, text: String) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = *self.number.get_or_insert_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
        let mut waits = lock(&self.waits.0);
        match waits.iter_mut().find(|(other, _)| *other == number) {
            Some((_, said)) => *said = text,
            None => waits.push((number, text)),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.waits.0).retain(|(other, _)| *other != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_told_while_they_last() {
        let waits = Waits::default();
        let (mut one, mut two) = (Wait::new(&waits), Wait::new(&waits));
        assert_eq!(waits.text(), None);
        one.say("one".to_owned());
        two.say("two".to_owned());
        one.say("three".to_owned());
        assert_eq!(waits.text().as_deref(), Some("three; two"));
        drop(one);
        assert_eq!(waits.text().as_deref(), Some("two"));
        drop(two);
        assert_eq!(waits.text(), None);
    }
}
