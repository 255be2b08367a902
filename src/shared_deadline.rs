//! One deadline for all that a call waits for in turn, such as room on a stream, a lock and other ranks.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::deadline::Deadline;

/// How far a call of this thread is.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// There is none, or one that waits once.
    None,
    Begun,
    /// It waits since then, for one thing after the other.
    Waits(Instant),
}

thread_local! {
    static CALL: Cell<Stage> = const { Cell::new(Stage::None) };
}

/// While it lives, the waits of this thread that have the [deadline](SharedDeadline::within) of the call have the same one. What a call does when it has
/// failed has time of its own.
#[derive(Debug)]
pub(crate) struct SharedDeadline {
    is_outermost: bool,
    _of_this_thread: PhantomData<*const ()>,
}

impl SharedDeadline {
    /// Begins one, unless this is part of one.
    #[inline]
    pub(crate) fn begin() -> Self {
        let is_outermost = matches!(CALL.get(), Stage::None);
        if is_outermost {
            CALL.with(|call| call.set(Stage::Begun));
        }
        Self { is_outermost, _of_this_thread: PhantomData }
    }

    /// That of a wait of the call that goes on, which counts from its first wait; of another wait, its own.
    pub(crate) fn within(timeout: Duration) -> Deadline {
        let now = Instant::now();
        match CALL.get() {
            Stage::None => Deadline::since(now, timeout),
            Stage::Waits(start) => Deadline::since(start, timeout),
            Stage::Begun => {
                CALL.set(Stage::Waits(now));
                Deadline::since(now, timeout)
            }
        }
    }
}

impl Drop for SharedDeadline {
    #[inline]
    fn drop(&mut self) {
        if self.is_outermost {
            CALL.with(|call| call.set(Stage::None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_waits_of_a_call_have_one_deadline() {
        let pause = Duration::from_millis(5);
        let waits_already = move || SharedDeadline::within(SECOND).remaining() <= SECOND - pause;
        {
            let _call = SharedDeadline::begin();
            std::thread::sleep(pause);
            assert!(!waits_already(), "it has waited for nothing before");
            std::thread::sleep(pause);
            {
                let _part = SharedDeadline::begin();
                assert!(waits_already());
            }
            assert!(waits_already());
            assert!(Deadline::after(SECOND).remaining() > SECOND - pause);
            std::thread::spawn(move || assert!(!waits_already(), "another thread")).join().unwrap();
        }
        assert!(!waits_already(), "another call");
    }
}
