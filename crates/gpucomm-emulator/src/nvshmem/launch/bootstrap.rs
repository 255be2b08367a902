//! How PEs are to find each other: by what flags and the environment say.

use crate::nvshmem::basics::entry::{Outcome, refused};
use crate::sys::{NVSHMEMX_ERROR_INTERNAL, NVSHMEMX_INIT_WITH_UNIQUEID};

/// A flag: a communicator of MPI.
const WITH_MPI_COMM: u32 = 2;
/// A flag: OpenSHMEM, which has started.
const WITH_SHMEM: u32 = 4;

/// A variable of the environment.
pub(crate) type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Ways to find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bootstrap {
    UniqueId,
    Mpi,
    Shmem,
    Plugin,
    Pmi,
    Pmi2,
    Pmix,
}

impl Bootstrap {
    /// Of several flags one counts, and the environment where there is none of these.
    pub(crate) fn of(flags: u32, read: Read<'_>) -> Outcome<Self> {
        if flags & WITH_MPI_COMM != 0 {
            return Ok(Self::Mpi);
        }
        if flags & WITH_SHMEM != 0 {
            return Ok(Self::Shmem);
        }
        if flags & NVSHMEMX_INIT_WITH_UNIQUEID != 0 {
            return Ok(Self::UniqueId);
        }
        let internal = |text: String| refused(NVSHMEMX_ERROR_INTERNAL, text);
        let name = read("NVSHMEM_BOOTSTRAP").unwrap_or_else(|| "PMI".to_owned());
        match name.to_ascii_uppercase().as_str() {
            "MPI" => return Ok(Self::Mpi),
            "SHMEM" => return Ok(Self::Shmem),
            "PLUGIN" => return Ok(Self::Plugin),
            "PMI" => {}
            _ => {
                let expected = "expected PMI, MPI, SHMEM or plugin, or a unique id and its flag";
                return Err(internal(format!("NVSHMEM_BOOTSTRAP is {name:?}, {expected}")));
            }
        }
        let name = read("NVSHMEM_BOOTSTRAP_PMI").unwrap_or_else(|| "PMI".to_owned());
        match name.to_ascii_uppercase().as_str() {
            "PMI" => Ok(Self::Pmi),
            "PMI-2" | "PMI2" => Ok(Self::Pmi2),
            "PMIX" => Ok(Self::Pmix),
            _ => Err(internal(format!("NVSHMEM_BOOTSTRAP_PMI is {name:?}, expected PMI, PMI-2 or PMIX"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flags: u32, pairs: &[(&str, &str)]) -> Option<Bootstrap> {
        let read = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Bootstrap::of(flags, &read).ok()
    }

    #[test]
    fn flags_come_before_the_environment() {
        let mpi = [("NVSHMEM_BOOTSTRAP", "MPI")];
        assert_eq!(of(8, &mpi), Some(Bootstrap::UniqueId));
        assert_eq!(of(2 | 4 | 8, &[]), Some(Bootstrap::Mpi));
        assert_eq!(of(4 | 8, &[]), Some(Bootstrap::Shmem));
        // Flags of something else.
        assert_eq!((of(1, &mpi), of(16, &mpi)), (Some(Bootstrap::Mpi), Some(Bootstrap::Mpi)));
    }

    #[test]
    fn the_environment_says_it_in_letters_of_any_case() {
        let bootstrap = |name| of(0, &[("NVSHMEM_BOOTSTRAP", name), ("NVSHMEM_BOOTSTRAP_PMI", "pmix")]);
        assert_eq!((bootstrap("mpi"), bootstrap("Plugin")), (Some(Bootstrap::Mpi), Some(Bootstrap::Plugin)));
        assert_eq!((bootstrap("shmem"), bootstrap("pmi")), (Some(Bootstrap::Shmem), Some(Bootstrap::Pmix)));
        assert_eq!((bootstrap("UID"), bootstrap(""), bootstrap("PMIX")), (None, None, None));
        let pmi = |name| of(0, &[("NVSHMEM_BOOTSTRAP_PMI", name)]);
        assert_eq!((of(0, &[]), pmi("PMI")), (Some(Bootstrap::Pmi), Some(Bootstrap::Pmi)));
        assert_eq!((pmi("PMI-2"), pmi("pmi2")), (Some(Bootstrap::Pmi2), Some(Bootstrap::Pmi2)));
        assert_eq!((pmi("PMI-3"), pmi("")), (None, None));
    }
}
