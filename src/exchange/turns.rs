//! Takes turns at a place whose server does not know its clients.
//!
//! Two starts of one rank that meet the others at once cannot be told apart there: each takes the
//! other for an earlier start that has ended. So the starts of one process meet one after the other.

use crate::deadline::Deadline;
use crate::error::Result;
use crate::lock::{Condvar, Mutex};

/// The names of the turns that are taken.
static TAKEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn(String);

impl Turn {
    /// Waits until no other thread of this process has the turn `name`.
    pub(super) fn take(operation: &'static str, name: String, deadline: &Deadline) -> Result<Self> {
        let mut taken = TAKEN.lock();
        while taken.contains(&name) {
            if deadline.expired() {
                return Err(deadline.error(operation, format!("another thread of this process still meets at {name}")));
            }
            taken = CHANGED.wait_timeout(taken, deadline.remaining());
        }
        taken.push(name.clone());
        Ok(Self(name))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.lock().retain(|name| *name != self.0);
        CHANGED.notify_all();
    }
}
