//! Locks that ignore poisoning.
//!
//! The data behind these locks is consistent between any two statements, so a panic while a lock is
//! held does not break it. Methods therefore return a guard, where those of `std` return a result.
//!
//! In a forked child the threads of the parent are not there, and a lock that one of them had is never
//! given back. A thread of the child that needs such a lock would wait for ever, so the child is aborted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use std::sync::MutexGuard;

/// How long a thread of a forked child waits for a lock.
const IN_CHILD: Duration = Duration::from_secs(5);

static FORKED: AtomicBool = AtomicBool::new(false);

/// Notes that this process is a forked child, whose parent has used this crate.
pub(crate) fn note_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether this process is a forked child, whose parent has used this crate.
#[inline]
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// The guard, if the attempt has taken the lock.
fn taken<G>(tried: Result<G, TryLockError<G>>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Takes a lock in a forked child, or aborts that.
#[cold]
fn in_child<G>(take: impl Fn() -> Option<G>) -> G {
    let begin = Instant::now();
    loop {
        match take() {
            Some(guard) => return guard,
            None if begin.elapsed() < IN_CHILD => thread::sleep(Duration::from_millis(1)),
            None => {
                say_at_once(
                    "gpucomm: a thread of the parent held a lock when this process was forked, and never gives it back here: fork before \
                     the first use of a device, or have the child run a program by exec. The process is aborted.\n",
                );
                std::process::abort()
            }
        }
    }
}

/// Writes `text` on stderr if there is room for it. The lock of [`std::io::stderr`] may be one that is never given back.
fn say_at_once(text: &str) {
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one place, which is valid. It does not wait.
    let ready = unsafe { libc::poll(&raw mut stderr, 1, 0) } == 1 && stderr.revents & libc::POLLOUT != 0;
    if ready {
        // SAFETY: so many bytes are there to be read. Where a pipe takes anything, it takes as many as these.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}

/// A [`std::sync::Mutex`] that ignores poisoning.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if is_forked() {
            return in_child(|| self.try_lock());
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` if another thread holds the lock.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        taken(self.0.try_lock())
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`std::sync::Condvar`] that ignores poisoning.
#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a notification, for `most` at most.
    pub(crate) fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, most: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits while `waits` returns true, for `most` at most.
    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        most: Duration,
        waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_timeout_while(guard, most, waits).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A [`std::sync::RwLock`] that ignores poisoning.
#[cfg(feature = "nvshmem")]
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(sync::RwLock<T>);

#[cfg(feature = "nvshmem")]
impl<T> RwLock<T> {
    pub(crate) fn read(&self) -> sync::RwLockReadGuard<'_, T> {
        if is_forked() {
            return in_child(|| taken(self.0.try_read()));
        }
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
        if is_forked() {
            return in_child(|| taken(self.0.try_write()));
        }
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::sync::mpsc::channel;

    use super::*;

    /// A child that runs `act`, and then ends well.
    fn forked(act: impl FnOnce()) -> libc::pid_t {
        // SAFETY: the child takes no lock but those that are tested, writes without one, and ends without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            note_fork();
            act();
            // SAFETY: it ends the child, whatever else is there.
            unsafe { libc::_exit(0) };
        }
        child
    }

    fn ended(child: libc::pid_t) -> ExitStatus {
        let mut status = -1;
        // SAFETY: the status is valid for a write.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        ExitStatus::from_raw(status)
    }

    #[test]
    fn a_lock_that_the_parent_keeps_ends_the_child() {
        let (taken, free) = (Mutex::new(()), Mutex::new(()));
        let kept = taken.lock();
        assert!(ended(forked(|| drop(free.lock()))).success());
        // Nor does the child wait for the lock of stderr, which another thread has.
        let ((has, had), (ends, end)) = (channel(), channel::<()>());
        let other = thread::spawn(move || {
            let _stderr = std::io::stderr().lock();
            has.send(()).unwrap();
            let _ = end.recv();
        });
        had.recv().unwrap();
        let child = forked(|| drop(taken.lock()));
        drop(ends);
        other.join().unwrap();
        assert_eq!(ended(child).signal(), Some(libc::SIGABRT));
        drop(kept);
    }
}
