//! `ncclCollConfig_t`: the initialiser, the algorithms that it may name, and what of it the emulator obeys.

use std::ffi::{CStr, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::Kind;
use crate::settings::settings;
use crate::sys::{NCCL_VERSION_CODE, cudaEvent_t, ncclCollConfig_t};

const MAGIC: u32 = 0xcafe_beef;
const UNSET: c_int = c_int::MIN;
/// The bytes of the struct as NCCL 2.31 has it, which is the smallest.
const SMALLEST: usize = 64;

/// What `NCCL_COLLCONFIG_INITIALIZER` holds.
pub(crate) fn initial() -> ncclCollConfig_t {
    ncclCollConfig_t {
        size: size_of::<ncclCollConfig_t>(),
        magic: MAGIC,
        version: NCCL_VERSION_CODE,
        ext: std::ptr::null_mut(),
        minCTAs: UNSET,
        maxCTAs: UNSET,
        nvlsCTAs: UNSET,
        cgaClusterSize: UNSET,
        algSelection: std::ptr::null(),
        forceAlgSelection: 1,
        CTAPolicy: UNSET,
        userProfilerTag: 0,
        launchCompletionEvent: std::ptr::null_mut(),
    }
}

/// The configuration of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CollConfig {
    /// A number for all in which ranks must agree; 0 where nothing was set.
    pub(crate) number: u16,
    /// Null, or what is recorded.
    pub(crate) event: cudaEvent_t,
}

impl CollConfig {
    /// Reads a user's configuration of a call of `kind`; null means nothing.
    ///
    /// # Safety
    /// `config` is null or points to a struct that starts with its own size and is that large; its texts are C strings.
    pub(crate) unsafe fn read(kind: Kind, config: *const ncclCollConfig_t) -> Outcome<Self> {
        let mut known = initial();
        if config.is_null() {
            return Ok(Self { number: 0, event: known.launchCompletionEvent });
        }
        // SAFETY: the caller vouches for a size at the front.
        let size = unsafe { config.cast::<usize>().read_unaligned() };
        if size < SMALLEST {
            return Err(Failure::argument(format!(
                "ncclCollConfig_t says that its size is {size} bytes, expected at least {SMALLEST}"
            )));
        }
        // SAFETY: the caller vouches for `size` bytes; no more than our own struct holds are copied.
        unsafe {
            std::ptr::copy_nonoverlapping(
                config.cast::<u8>(),
                (&raw mut known).cast::<u8>(),
                size.min(size_of::<ncclCollConfig_t>()),
            );
        }
        if known.magic != MAGIC {
            return Err(Failure::argument(format!(
                "ncclCollConfig_t was not made by NCCL_COLLCONFIG_INITIALIZER: magic is {:#x}, expected {MAGIC:#x}",
                known.magic
            )));
        }
        if settings().nccl < 2_32_00 {
            known.launchCompletionEvent = std::ptr::null_mut();
        }
        let force = known.forceAlgSelection;
        if !(0..=1).contains(&force) {
            return Err(Failure::argument(format!("config forceAlgSelection is {force}, expected 0 or 1")));
        }
        let selection = if known.algSelection.is_null() {
            String::new()
        } else {
            // SAFETY: the caller vouches for a C string.
            unsafe { CStr::from_ptr(known.algSelection) }.to_string_lossy().to_ascii_lowercase()
        };
        if force == 1 && !selection.is_empty() && !has_any(kind, &selection) {
            return Err(Failure::argument(format!(
                "config algSelection {selection:?} cannot be honored for {} (set forceAlgSelection=0 to fall back)",
                kind.name()
            )));
        }
        Ok(Self { number: number(&known, &selection), event: known.launchCompletionEvent })
    }
}

/// A number for what ranks must agree in: what a profiler is told, and which event it is, they need not.
fn number(config: &ncclCollConfig_t, selection: &str) -> u16 {
    let told = |config: &ncclCollConfig_t, selection: &str| {
        let mut hasher = DefaultHasher::new();
        let numbers = [
            config.minCTAs,
            config.maxCTAs,
            config.nvlsCTAs,
            config.cgaClusterSize,
            config.forceAlgSelection,
            config.CTAPolicy,
            c_int::from(!config.launchCompletionEvent.is_null()),
        ];
        (numbers, selection).hash(&mut hasher);
        hasher.finish()
    };
    match told(config, selection) {
        nothing if nothing == told(&initial(), "") => 0,
        said => (said % u64::from(u16::MAX)) as u16 + 1,
    }
}

const ALL_REDUCE: &[&str] = &[
    "tree_ll",
    "tree_ll128",
    "tree_simple",
    "ring_ll",
    "ring_ll128",
    "ring_simple",
    "collnet_direct_simple",
    "collnet_chain_simple",
    "nvls_simple",
    "nvlstree_simple",
    "symk_agxll_r",
    "symk_agxllmc_r",
    "symk_rsxtmald_agxtmast",
    "symk_rsxld_agxst",
    "symk_rsxldmc_agxstmc",
];
const ALL_GATHER: &[&str] = &[
    "ring_ll",
    "ring_ll128",
    "ring_simple",
    "collnet_direct_simple",
    "nvls_simple",
    "pat_simple",
    "symk_ll",
    "symk_llmc",
    "symk_tmast",
    "symk_st",
    "symk_tmastmc",
    "symk_stmc",
    "symk_railring_lsastmc",
];
const REDUCE_SCATTER: &[&str] = &[
    "ring_ll",
    "ring_ll128",
    "ring_simple",
    "collnet_direct_simple",
    "nvls_simple",
    "pat_simple",
    "symk_ll",
    "symk_tmald",
    "symk_ld",
    "symk_ldmc",
    "symk_raila2a_lsald",
    "symk_raila2a_lsaldmc",
];
const RING: &[&str] = &["ring_ll", "ring_ll128", "ring_simple"];

/// The beginnings of those that this machine has, as one without switches, networks and windows.
const HERE: [&str; 2] = ["tree_", "ring_"];

/// The names for a kind of operation; what is made of messages has none.
fn names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::AllReduce => ALL_REDUCE,
        Kind::AllGather => ALL_GATHER,
        Kind::ReduceScatter => REDUCE_SCATTER,
        Kind::Broadcast | Kind::Reduce => RING,
        _ => &[],
    }
}

/// Whether `selection` (`,` or, `+` and, `^` not; beginnings of names) leaves an algorithm for an operation. One whose words nobody
/// knows leaves none.
pub(super) fn has_any(kind: Kind, selection: &str) -> bool {
    let word = |word: &str| word.trim().trim_start_matches('^').trim().to_owned();
    let known = |word: &str| {
        !word.is_empty()
            && [ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER].into_iter().flatten().any(|name| name.starts_with(word))
    };
    if !selection.split([',', '+']).all(|text| known(&word(text))) {
        return false;
    }
    let holds = |name: &str, text: &str| name.starts_with(&*word(text)) != text.trim().starts_with('^');
    let selected = |name: &&&str| selection.split(',').any(|all| all.split('+').all(|text| holds(name, text)));
    names(kind).iter().filter(|name| HERE.iter().any(|here| name.starts_with(here))).any(|name| selected(&name))
}

#[cfg(test)]
mod algorithms_tests {
    use super::*;

    #[test]
    fn selections() {
        for (kind, selection, any) in [
            (Kind::AllReduce, "tree", true),
            (Kind::AllReduce, "tree,ring", true),
            (Kind::AllReduce, "ring + ^ring_ll128", true),
            (Kind::AllReduce, "ring+^ring", false),
            (Kind::AllReduce, "^symk", true),
            (Kind::AllReduce, "nvls", false),
            (Kind::AllReduce, "rung", false),
            (Kind::AllReduce, "ring,", false),
            (Kind::Broadcast, "tree", false),
            (Kind::Broadcast, "ring_simple", true),
            (Kind::AlltoAll, "ring", false),
        ] {
            assert_eq!(has_any(kind, selection), any, "{kind:?} {selection}");
        }
    }
}
