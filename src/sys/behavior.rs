//! Where the libraries behind the C interface behave differently from each other: properties that the floors above ask for,
//! instead of asking which library they run on.

/// Whether `ncclGetLastError` with a communicator says what that communicator waits for. NCCL ignores the communicator.
pub(crate) const LAST_ERROR_IS_OF_COMMUNICATOR: bool = cfg!(gpucomm_emulator);

/// Whether the library stands for versions older than its headers and refuses by itself what those versions lack.
pub(crate) const HAS_OLDER_VERSIONS: bool = cfg!(gpucomm_emulator);

/// Whether devices do their work on other processors than this program: then a wait may keep a core busy.
pub(crate) const DEVICES_WORK_ELSEWHERE: bool = cfg!(not(gpucomm_emulator));

/// How to run another version of NCCL without building again.
pub(crate) const OTHER_NCCL: &str =
    if cfg!(gpucomm_emulator) { "; GPUCOMM_EMULATOR_NCCL asks the emulator for another" } else { "" };

/// Says on stderr, after `GPUCOMM_EMULATOR_DEADLOCK` seconds, what a rank waits for before a call: the emulator does so for waits
/// inside its calls. NCCL says nothing.
#[cfg(all(feature = "nccl", gpucomm_emulator))]
pub(crate) use gpucomm_emulator::DeadlockReport;

/// NCCL says nothing of waits.
#[cfg(all(feature = "nccl", not(gpucomm_emulator)))]
#[derive(Debug)]
pub(crate) struct DeadlockReport;

#[cfg(all(feature = "nccl", not(gpucomm_emulator)))]
impl DeadlockReport {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn check_sentence(&mut self, _sentence: impl FnOnce() -> String) {}
}

/// Whether NVSHMEM, which loads NCCL when it starts, has found it. To be asked right after that start: others may load NCCL later.
#[cfg(all(feature = "nvshmem", gpucomm_emulator))]
pub(crate) fn nvshmem_has_found_nccl() -> bool {
    true
}

/// Whether NVSHMEM, which loads NCCL when it starts, has found it. To be asked right after that start: others may load NCCL later.
#[cfg(all(feature = "nvshmem", not(gpucomm_emulator)))]
pub(crate) fn nvshmem_has_found_nccl() -> bool {
    // SAFETY: takes no pointers.
    if unsafe { super::gpucommNvshmemHasNccl() } == 0 {
        return false;
    }
    // SAFETY: the flags ask whether the library is loaded, and load nothing.
    let handle = unsafe { libc::dlopen(c"libnccl.so.2".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: gives back the handle that `dlopen` has just counted.
    unsafe { libc::dlclose(handle) };
    true
}
