//! User code on the threads of a world: a panic of it ends here.

use std::cell::Cell;

use crate::{callbacks, panicked};

/// What `run` gives; `None` where it has panicked.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    caught(run).ok()
}

/// What `run` gives, or with what it has panicked.
pub(super) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    panicked::caught(run).map_err(|said| format!("it has panicked: {said}"))
}

/// Drops what others have made, as its drop may be code of users.
pub(super) fn dropped<T>(value: T) {
    guarded(|| drop(value));
}

thread_local! {
    static OF_A_WORLD: Cell<bool> = const { Cell::new(false) };
}

/// Says that this thread is one of a world: answers of others depend on it, and [`discard`] drops nothing here.
pub(super) fn of_a_world() {
    OF_A_WORLD.set(true);
}

/// Drops a value that may have a destructor of the user's: by another thread if this one is of a world.
pub(super) fn discard<T: Send + 'static>(value: T) {
    if OF_A_WORLD.try_with(Cell::get).unwrap_or(false) {
        callbacks::run(move || drop(value));
    } else {
        drop(value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};

    use super::*;

    struct Says(Sender<ThreadId>);

    impl Drop for Says {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    #[test]
    fn a_thread_of_a_world_drops_elsewhere() {
        let (told, tells) = channel();
        let run = move || {
            discard(Says(told.clone()));
            of_a_world();
            discard(Says(told));
            thread::current().id()
        };
        let own = thread::spawn(run).join().unwrap();
        assert_eq!(tells.into_iter().map(|id| id == own).collect::<Vec<_>>(), [true, false]);
    }
}
