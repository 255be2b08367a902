//! A handle that says whether a signal has come.

use std::time::{Duration, Instant};

use super::came::Set;
use crate::error::Result;

/// How long a wait sleeps before it looks again.
const LOOK: Duration = Duration::from_millis(5);

/// Says whether a signal has come that asks the program to end; see [the module](super) for how to answer it.
///
/// While there is one, the signal does not end the process. When it comes a second time, a second or more after the first, it does, unless it was
/// [forgotten](Self::forget); and without any `Termination` that has it, it does so the first time, as by default. What has come is known to
/// all handles of a process, those that are made later too. Handlers that were there before are called as well.
///
/// It can be had by several threads: cloned, or by reference.
#[derive(Debug)]
pub struct Termination {
    set: Set,
}

impl Termination {
    /// Waits for `SIGTERM`.
    ///
    /// ```
    /// use gpucomm::signals::Termination;
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let termination = Termination::new()?;
    /// assert!(!termination.is_requested());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](crate::Error::InvalidUsage) where the system refuses a handler.
    pub fn new() -> Result<Self> {
        Self::watch("Termination::new", &[libc::SIGTERM])
    }

    /// Waits for any of `signals`, by their numbers: `SIGTERM`, `SIGINT`, `SIGHUP`, `SIGQUIT`, `SIGXCPU`, or `SIGUSR1` and `SIGUSR2`, which Slurm sends some
    /// time before the end where it is asked to (`--signal=USR1@120`).
    ///
    /// ```
    /// use gpucomm::signals::Termination;
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let termination = Termination::on(&[libc::SIGTERM, libc::SIGUSR1])?;
    /// # assert!(std::process::Command::new("kill").args(["-USR1", &std::process::id().to_string()]).status().expect("kill").success());
    /// assert!(termination.wait_timeout(std::time::Duration::from_secs(10)));
    /// assert_eq!(termination.signal(), Some(libc::SIGUSR1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for other signals, or none; as [`Termination::new`].
    pub fn on(signals: &[i32]) -> Result<Self> {
        Self::watch("Termination::on", signals)
    }

    fn watch(operation: &'static str, signals: &[i32]) -> Result<Self> {
        let set = Set::of(operation, signals)?;
        set.watch(operation)?;
        Ok(Self { set })
    }

    /// Whether one of its signals has come: a load of an atomic, for use in each step.
    pub fn is_requested(&self) -> bool {
        self.set.came()
    }

    /// Which of its signals came first.
    pub fn signal(&self) -> Option<i32> {
        self.set.first().map(|(signal, _)| signal)
    }

    /// How long ago the first of its signals came: what of the grace time is spent.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use gpucomm::signals::Termination;
    /// # fn main() -> gpucomm::Result<()> {
    /// let termination = Termination::new()?;
    /// # assert!(std::process::Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status().expect("kill").success());
    /// # assert!(termination.wait_timeout(Duration::from_secs(10)));
    /// if let Some(spent) = termination.elapsed() {
    ///     let left = Duration::from_secs(30).saturating_sub(spent);
    ///     println!("{left:?} are left for a checkpoint");
    /// }
    /// # assert!(termination.elapsed().is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn elapsed(&self) -> Option<Duration> {
        self.set.first().map(|(_, elapsed)| elapsed)
    }

    /// Waits until one of its signals comes, no longer than `timeout`; whether one has come.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            if self.is_requested() || left.is_zero() {
                return self.is_requested();
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Forgets what has come, for a program that has answered it and goes on, as after a `SIGUSR1` that asks for a checkpoint: the next one counts as
    /// the first.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use gpucomm::signals::Termination;
    /// # fn main() -> gpucomm::Result<()> {
    /// let checkpoint = Termination::on(&[libc::SIGUSR2])?;
    /// # for _ in 0..2 {
    /// # assert!(std::process::Command::new("kill").args(["-USR2", &std::process::id().to_string()]).status().expect("kill").success());
    /// # assert!(checkpoint.wait_timeout(Duration::from_secs(10)));
    /// if checkpoint.is_requested() {
    ///     // …
    ///     checkpoint.forget();
    /// }
    /// # }
    /// assert!(!checkpoint.is_requested());
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(&self) {
        self.set.forget();
    }
}

impl Clone for Termination {
    fn clone(&self) -> Self {
        self.set.share();
        Self { set: self.set }
    }
}

impl Drop for Termination {
    fn drop(&mut self) {
        self.set.leave();
    }
}
