//! What was put, or is to be got, and has not come: as over a network, until somebody waits for it.
//!
//! Some of it, by a chance that depends on the seed of the faults only, waits for a quiet, or for [`HELD`]: a program that has forgotten
//! the quiet sees old values then. This is so in strict mode, and nowhere else: it costs time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::boot::Boot;
use crate::fault;
use crate::lock::lock;
use crate::settings::settings;

/// How long something is held where nobody waits for it.
const HELD: Duration = Duration::from_millis(5);

/// What comes late.
pub(crate) type Delivery = Box<dyn FnOnce(&Boot) + Send>;

/// What has not come, oldest first.
#[derive(Default)]
pub(crate) struct Late {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    held: VecDeque<(Instant, Delivery)>,
    /// How many there ever were that might have been held.
    asked: u64,
    /// A thread sees to them.
    attended: bool,
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Late({})", lock(&self.inner).held.len())
    }
}

impl Late {
    /// Whether the next one comes late: of what does not block, more does.
    pub(crate) fn holds(&self, boot: &Boot, blocks: bool) -> bool {
        if !settings().strict {
            return false;
        }
        let mut inner = lock(&self.inner);
        inner.asked += 1;
        fault::chance(boot.me as u64, inner.asked) < if blocks { 0.25 } else { 0.5 }
    }

    /// Lets it come later.
    pub(crate) fn hold(self: &Arc<Self>, boot: &Arc<Boot>, delivery: Delivery) {
        let mut inner = lock(&self.inner);
        inner.held.push_back((Instant::now() + HELD, delivery));
        if !inner.attended {
            let (late, theirs) = (self.clone(), boot.clone());
            let thread = std::thread::Builder::new().name("gpucomm-late".to_owned());
            inner.attended = thread.spawn(move || late.attend(&theirs)).is_ok();
            if !inner.attended {
                Self::empty(&mut inner, boot);
            }
        }
    }

    /// Everything has come that was asked for before.
    pub(crate) fn quiet(&self, boot: &Boot) {
        Self::empty(&mut lock(&self.inner), boot);
    }

    fn empty(inner: &mut Inner, boot: &Boot) {
        inner.held.drain(..).for_each(|(_, delivery)| delivery(boot));
    }

    /// Lets come what is held for too long, until nothing is held.
    fn attend(&self, boot: &Boot) {
        loop {
            let mut inner = lock(&self.inner);
            let now = Instant::now();
            while inner.held.front().is_some_and(|(due, _)| *due <= now)
                && let Some((_, delivery)) = inner.held.pop_front()
            {
                delivery(boot);
            }
            let Some((due, _)) = inner.held.front() else {
                inner.attended = false;
                return;
            };
            let pause = *due - now;
            drop(inner);
            std::thread::sleep(pause);
        }
    }
}
