//! A store in which a test decides what happens when it is asked.

use std::path::PathBuf;
use std::time::Duration;

use gpucomm::exchange::{Directory, Exchange, Store};
use gpucomm::{Error, Result};

use super::hooked_store::{HookedStore, Hooks};
use super::seat::{DIRECTORY, Seat};

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Answers,
    /// Nothing is done, and the answer is a timeout.
    Refused,
    /// It is done, and the answer is a timeout.
    Lost,
    /// All of which that is asked have ended.
    Ended,
}

/// Gets the name of a method and the key, and may block, or panic.
type Hook = Box<dyn Fn(&'static str, &str) -> Fate + Send + Sync>;

/// All PEs meet in a directory of its own.
pub struct Hooked {
    inner: Directory,
    hook: Hook,
}

impl Hooked {
    /// An exchange of all PEs, which nobody else keeps. Collective.
    pub fn join(seat: &Seat, hook: impl Fn(&'static str, &str) -> Fate + Send + Sync + 'static) -> Exchange {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("a PE of a test")).join("hooked");
        if seat.pe == 0 {
            std::fs::create_dir_all(&directory).expect("a directory");
        }
        seat.meet();
        let inner = Directory::open(directory, seat.pe, seat.n_pes).expect("the meeting");
        Exchange::join(HookedStore(Self { inner, hook: Box::new(hook) })).expect("an exchange")
    }
}

impl Hooks for Hooked {
    fn store(&self) -> &dyn Store {
        &self.inner
    }

    fn around<R>(
        &self,
        method: &'static str,
        keys: &[&str],
        within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let late = || Error::Timeout {
            operation: method,
            timeout: within,
            detail: "on purpose".to_owned(),
            rank: None,
            peer: None,
        };
        match (self.hook)(method, keys.first().unwrap_or(&"")) {
            Fate::Answers | Fate::Ended => call(),
            Fate::Refused => Err(late()),
            Fate::Lost => call().and_then(|_| Err(late())),
        }
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        if (self.hook)("ended", "") == Fate::Ended {
            return Ok(vec![Some("has died".to_owned()); ids.len()]);
        }
        self.inner.ended(ids, within)
    }
}
