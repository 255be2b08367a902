//! Failures: a result code with the sentence that `ncclGetLastError` gives.
//!
//! Those that NCCL 2.28.9 gives too, with the same code, are plain. What only this emulator notices is a violation as well.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use crate::cuda::core::capture;
use crate::cuda::error::meaning;
use crate::lock::Mutex;
use crate::meet::segment::Trouble;
use crate::report;
use crate::sys::{cudaError, ncclResult_t};

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub(crate) code: ncclResult_t,
    pub(crate) text: String,
}

/// What a function of this emulator gives back.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: ncclResult_t, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(ncclResult_t::ncclInvalidArgument, text)
    }

    /// A mistake that NCCL does not look for: what it does then is undefined, wrong or for ever. It is reported as a violation;
    /// where that does not end the process, the call fails, as NCCL's would not.
    pub(crate) fn unnoticed(text: impl Into<String>) -> Self {
        Self::argument(text).reported()
    }

    /// As [`Self::unnoticed`], for any code.
    pub(crate) fn reported(self) -> Self {
        report::violation(&self.text);
        self
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(ncclResult_t::ncclInvalidUsage, text)
    }

    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self::new(ncclResult_t::ncclInternalError, text)
    }

    pub(crate) fn system(text: impl Into<String>) -> Self {
        Self::new(ncclResult_t::ncclSystemError, text)
    }

    pub(crate) fn remote(text: impl Into<String>) -> Self {
        Self::new(ncclResult_t::ncclRemoteError, text)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Invalid(text) => Self::argument(text),
            Trouble::System(text) => Self::system(text),
        }
    }
}

/// A CUDA error as NCCL reports it: which one it was is in the text only.
pub(crate) fn cuda(what: &str, error: cudaError) -> Failure {
    let text = meaning(error).to_string_lossy();
    Failure::new(ncclResult_t::ncclUnhandledCudaError, format!("{what}: Cuda failure {} '{text}'", error.0))
}

/// The last failure of any thread. NCCL has only this one text; here a thread whose last call failed gets that call's.
static LAST: Mutex<String> = Mutex::new(String::new());

/// Remembers `text` as the process's last error.
pub(crate) fn remember(text: &str) {
    let mut last = LAST.lock();
    last.clear();
    last.push_str(text);
}

thread_local! {
    /// Why the last call of this thread failed, if it did.
    static OWN: RefCell<Option<String>> = const { RefCell::new(None) };
    /// What `ncclGetLastError` handed out on this thread; it lives until the thread asks again.
    static HANDED_OUT: RefCell<CString> = RefCell::new(CString::default());
}

/// Why the last call of this thread failed, if it did.
pub(crate) fn own() -> Option<String> {
    OWN.try_with(|own| own.borrow().clone()).ok().flatten()
}

/// Remembers why the last call of this thread failed.
pub(crate) fn remember_own(text: String) {
    remember(&text);
    let _ = OWN.try_with(|own| own.replace(Some(text)));
}

/// The last call of this thread did not fail.
pub(crate) fn forget_own() {
    let _ = OWN.try_with(|own| own.take());
}

/// The pointer that `ncclGetLastError` returns: `text` if given, else the thread's last error, else the process's.
///
/// It stays valid until the thread's next call.
pub(crate) fn last(text: Option<String>) -> *const c_char {
    let text = text.or_else(own);
    let text = text.unwrap_or_else(|| LAST.lock().clone());
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    HANDED_OUT
        .try_with(|slot| match slot.try_borrow_mut() {
            Ok(mut slot) => {
                *slot = text;
                slot.as_ptr()
            }
            Err(_) => c"".as_ptr(),
        })
        .unwrap_or(c"".as_ptr())
}

/// Makes the calls of CUDA that a function makes and a capture may forbid, as a failure of that function.
pub(crate) fn heed_captures(function: &str) -> Outcome {
    capture::check().map_err(|error| cuda(&format!("the calls of {function} beside a stream capture"), error))
}

/// The sentence for a result code.
pub(crate) fn describe(code: ncclResult_t) -> &'static CStr {
    match code {
        ncclResult_t::ncclSuccess => c"success",
        ncclResult_t::ncclUnhandledCudaError => c"a CUDA call failed",
        ncclResult_t::ncclSystemError => c"a system call failed",
        ncclResult_t::ncclInternalError => c"internal error",
        ncclResult_t::ncclInvalidArgument => c"invalid argument",
        ncclResult_t::ncclInvalidUsage => c"invalid usage",
        ncclResult_t::ncclRemoteError => c"a remote rank failed or ended",
        ncclResult_t::ncclInProgress => c"operation in progress",
        ncclResult_t::ncclTimeout => c"timeout",
        _ => c"unknown result code",
    }
}
