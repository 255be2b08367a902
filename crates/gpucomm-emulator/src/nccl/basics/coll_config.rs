//! `ncclCollConfig_t`: the initialiser, and what of it the emulator obeys.

use std::ffi::{CStr, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::algorithms;
use super::error::{Failure, Outcome};
use super::kind::Kind;
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
        if force == 1 && !selection.is_empty() && !algorithms::has_any(kind, &selection) {
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
