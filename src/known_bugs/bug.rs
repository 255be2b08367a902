//! What is known of a bug.

use crate::version::Version;

/// One bug of one library.
///
/// ```
/// use gpucomm::Version;
/// use gpucomm::known_bugs::{Library, TABLE};
///
/// let ours = Version::new(2, 28, 9);
/// for bug in TABLE.iter().filter(|bug| bug.library == Library::Nccl && bug.concerns(ours)) {
///     println!("{} ({} {}): {}", bug.name, bug.library.name(), bug.versions(), bug.status.name());
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownBug {
    /// A short name, which stays the same.
    pub name: &'static str,
    /// Whose bug it is.
    pub library: Library,
    /// The first version that has it, as far as is known; what came before the oldest version that this crate takes does not count.
    pub first: Version,
    /// The last version that has it; `None` where no version is known to be free of it.
    pub last: Option<Version>,
    /// The only compute capability that it concerns, if there is one.
    pub compute_capability: Option<(u32, u32)>,
    /// What happens.
    pub what: &'static str,
    /// What this crate does about it.
    pub status: BugStatus,
    /// How it does so, or what a user can do.
    pub how: &'static str,
    /// Where that is in the source; empty where nothing is done.
    pub place: &'static str,
}

/// A library that has bugs.
///
/// ```
/// assert_eq!(gpucomm::known_bugs::Library::Nvshmem.name(), "NVSHMEM");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Library {
    /// NCCL.
    Nccl,
    /// NVSHMEM.
    Nvshmem,
}

impl Library {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nccl => "NCCL",
            Self::Nvshmem => "NVSHMEM",
        }
    }
}

/// What this crate does about a bug.
///
/// ```
/// use gpucomm::known_bugs::{BugStatus, TABLE};
///
/// let met: Vec<_> = TABLE.iter().filter(|bug| bug.status == BugStatus::Documented).map(|bug| bug.name).collect();
/// println!("{}: {met:?}", BugStatus::Documented.name());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BugStatus {
    /// Programs do not meet it.
    WorkedAround,
    /// What would meet it is an error.
    Refused,
    /// Nothing: programs may meet it.
    Documented,
}

impl BugStatus {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WorkedAround => "worked around",
            Self::Refused => "refused",
            Self::Documented => "documented",
        }
    }
}

impl KnownBug {
    /// Whether the NCCL that is running has it; where that cannot be known, it has.
    #[cfg(feature = "nccl")]
    pub(crate) fn is_running(&self) -> bool {
        crate::version::running_nccl().map_or(true, |version| self.concerns(version))
    }

    /// Whether this version of its library has it.
    pub fn concerns(&self, version: Version) -> bool {
        version >= self.first && self.last.is_none_or(|last| version <= last)
    }

    /// The versions, as text: `2.27.3 to 2.29.7`, `from 2.28.3 on`, `up to 3.2.5`.
    pub fn versions(&self) -> String {
        match self.last {
            Some(last) if self.first == EVER => format!("up to {last}"),
            Some(last) => format!("{} to {last}", self.first),
            None if self.first == EVER => "all".to_owned(),
            None => format!("from {} on", self.first),
        }
    }
}

/// Before every version.
pub(super) const EVER: Version = Version::new(0, 0, 0);
