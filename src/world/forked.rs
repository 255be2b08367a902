//! Locks in a forked child, whose parent had a world.

use crate::lock::{Mutex, MutexGuard, is_forked};

/// Takes the lock. `None` in a forked child where a thread of the parent had it: that thread is not there, and never gives it back.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    if is_forked() { mutex.try_lock() } else { Some(mutex.lock()) }
}

#[cfg(all(test, gpucomm_emulator))]
mod tests {
    use super::*;
    use crate::cuda::Device;

    #[test]
    fn a_lock_that_the_parent_keeps() {
        // From here on a child is known as one.
        Device::count().unwrap();
        let (taken, free) = (Mutex::new(1), Mutex::new(2));
        let kept = taken.lock();
        // SAFETY: the child takes no lock but those two, and ends without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = lock(&taken).is_none() && lock(&free).is_some_and(|value| *value == 2);
            // SAFETY: it ends the child, whatever else is there.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        drop(kept);
        let mut status = -1;
        // SAFETY: the status is valid for a write.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, lock(&taken).map(|value| *value)), (0, Some(1)));
    }
}
