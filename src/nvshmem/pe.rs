//! Numbers of PEs.

use std::fmt;

/// A processing element: a process, with its number among all of them.
///
/// ```
/// use gpucomm::nvshmem::Pe;
///
/// let next = |pe: Pe, n_pes: usize| Pe((pe.0 + 1) % n_pes);
/// assert_eq!(next(Pe(3), 4), Pe(0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pe(pub usize);

/// A member of a team, with its number in that team, which is not its number among all.
///
/// ```
/// use gpucomm::nvshmem::TeamPe;
///
/// let root = TeamPe(0);
/// assert_eq!(root.to_string(), "0 of its team");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TeamPe(pub usize);

impl fmt::Display for Pe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for TeamPe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of its team", self.0)
    }
}
