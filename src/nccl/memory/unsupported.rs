//! Why there is no window.

use std::fmt;

/// Why NCCL has made no window over memory that it could be made over: not here. Operations on the memory go on all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// NCCL has windows since 2.27.
    Version,
    /// Windows of the version that is running have this bug: its name in [`known_bugs`](crate::known_bugs).
    KnownBug(&'static str),
    /// NCCL says that it makes none of this communicator's: its devices cannot map each other's memory, or the environment has switched that
    /// off (`NCCL_WIN_ENABLE=0`, `NCCL_CUMEM_ENABLE=0`).
    Library,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("NCCL is older than 2.27"),
            Self::KnownBug(name) => write!(f, "windows of the running NCCL have the known bug {name} (docs/known-bugs.md says in which versions)"),
            Self::Library => f.write_str(
                "NCCL makes none here: the devices cannot map each other's memory, or NCCL_WIN_ENABLE or NCCL_CUMEM_ENABLE says so",
            ),
        }
    }
}
