//! Which thread of this process has the ranks of a launch meet.

use std::sync::{Arc, Weak};

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, Store};
use crate::lock::{Condvar, Mutex};

/// What the clones of a launch have made so far. One thread at a time has the ranks meet.
#[derive(Debug, Default)]
pub(super) struct Meets {
    made: Mutex<Made>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Made {
    /// The exchange, once the ranks have met.
    exchange: Option<Exchange>,
    /// The call of the thread whose turn it is.
    by: Option<&'static str>,
    /// The last store, which may be gone.
    store: Option<Weak<dyn Store>>,
}

impl Made {
    fn has_store(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.strong_count() > 0)
    }
}

/// What a thread gets that wants the exchange.
pub(super) enum Turn<'m> {
    /// The ranks have met.
    Met(Exchange),
    /// The thread has them meet.
    First(Making<'m>),
}

/// The turn of one thread, until it is dropped.
pub(super) struct Making<'m>(&'m Meets);

impl Meets {
    /// Waits for another thread that has the ranks meet, and returns the exchange that it gets. If there is no such thread, or it fails, it is the
    /// turn of this one, unless this rank `serves` a store for another purpose.
    ///
    /// # Errors
    /// [`Error::Timeout`] if the other thread is not done in time. [`Error::InvalidUsage`] if there is a store that this rank serves.
    pub(super) fn turn(&self, operation: &'static str, deadline: &Deadline, serves: bool) -> Result<Turn<'_>> {
        let made = self.made.lock();
        let mut made = self.changed.wait_timeout_while(made, deadline.remaining(), |made| made.by.is_some());
        if let Some(exchange) = &made.exchange {
            return Ok(Turn::Met(exchange.clone()));
        }
        if let Some(by) = made.by {
            let detail = format!("another thread of this process is in {by} of the same launch, and is not done");
            return Err(deadline.error(operation, detail));
        }
        if serves && made.has_store() {
            let reason = "this rank serves the store that Launch::store has returned: expected Exchange::join over that \
                          store, or the store dropped before";
            return Err(Error::InvalidUsage { operation, reason: reason.to_owned() });
        }
        made.by = Some(operation);
        Ok(Turn::First(Making(self)))
    }

    /// The turn of a thread that makes a store which this rank serves.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] if there is one, or another thread is making it.
    pub(super) fn turn_to_serve(&self, operation: &'static str) -> Result<Making<'_>> {
        let mut made = self.made.lock();
        let whose = match made.by {
            Some(by) => format!("another thread of this process is in {by} and serves the store"),
            None if made.exchange.is_some() => "this rank serves the store of Launch::join".to_owned(),
            None if made.has_store() => "this rank serves the store that Launch::store has returned".to_owned(),
            None => {
                made.by = Some(operation);
                return Ok(Making(self));
            }
        };
        let reason = format!("{whose}: expected one store for each launch, of either Launch::join or Launch::store");
        Err(Error::InvalidUsage { operation, reason })
    }

    /// Whether the ranks have met, or a thread has them meet.
    pub(super) fn have_begun(&self) -> bool {
        let made = self.made.lock();
        made.exchange.is_some() || made.by.is_some()
    }
}

impl Making<'_> {
    pub(super) fn has_store(&self, store: &Arc<dyn Store>) {
        self.0.made.lock().store = Some(Arc::downgrade(store));
    }

    pub(super) fn has_met(&self, exchange: &Exchange) {
        self.0.made.lock().exchange = Some(exchange.clone());
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.made.lock().by = None;
        self.0.changed.notify_all();
    }
}
