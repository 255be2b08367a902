//! What can be set for a team.

use std::ffi::{c_int, c_long};
use std::mem::MaybeUninit;

use crate::error::{Error, Result};
use crate::sys;

/// How a team is to be, or is.
///
/// ```
/// use gpucomm::nvshmem::TeamConfig;
///
/// let config = TeamConfig::new().with_num_contexts(2);
/// assert_eq!((config.num_contexts(), TeamConfig::new().num_contexts()), (Some(2), None));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TeamConfig {
    num_contexts: Option<usize>,
}

impl TeamConfig {
    /// Returns a configuration in which nothing is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many communication contexts are wanted. The library takes it, and has none of them so far.
    #[must_use]
    pub fn with_num_contexts(mut self, count: usize) -> Self {
        self.num_contexts = Some(count);
        self
    }

    /// Returns how many communication contexts are wanted at a time, or `None` if nobody has set
    /// it.
    pub fn num_contexts(&self) -> Option<usize> {
        self.num_contexts
    }

    /// As a word that PEs compare.
    pub(crate) fn word(&self) -> u64 {
        self.num_contexts.map_or(0, |count| count as u64 + 1)
    }

    /// What a word says, behind something else.
    pub(crate) fn said(word: u64) -> String {
        word.checked_sub(1).map_or_else(String::new, |count| format!(", for {count} contexts"))
    }

    /// As the library has it, and what of it is set.
    pub(crate) fn raw(&self, operation: &'static str) -> Result<(sys::nvshmem_team_config_t, c_long)> {
        let mut raw = empty();
        let Some(count) = self.num_contexts else { return Ok((raw, 0)) };
        raw.num_contexts = c_int::try_from(count)
            .map_err(|_| Error::argument(operation, "num_contexts", "a number of contexts that fits a C int", count))?;
        #[cfg(nvshmem_ge_3_3)]
        return Ok((raw, sys::NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS));
        // The headers before have the same number under another name.
        #[cfg(not(nvshmem_ge_3_3))]
        return Ok((raw, 1));
    }

    pub(crate) fn of(raw: &sys::nvshmem_team_config_t) -> Self {
        Self { num_contexts: usize::try_from(raw.num_contexts).ok() }
    }
}

/// Nothing is set.
pub(crate) fn empty() -> sys::nvshmem_team_config_t {
    let mut raw = MaybeUninit::<sys::nvshmem_team_config_t>::zeroed();
    // SAFETY: a place for one of them, whose fields are integers, for which zeros are values.
    unsafe {
        sys::gpucommNvshmemTeamConfigInit(raw.as_mut_ptr());
        raw.assume_init()
    }
}
