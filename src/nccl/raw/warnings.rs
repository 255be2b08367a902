//! NCCL's warnings: what it writes to its log of a call that fails, the last of which it keeps for who asks, whatever `NCCL_DEBUG` says.
//!
//! There is one for the whole process, and no failing call has to write any. So what stands there may be of another call, or another
//! communicator: what has stood there for a while is said to be old where a call fails, and left out where a wait ends.

use std::ffi::c_char;
use std::ptr;
use std::time::{Duration, Instant};

use super::handle::Handle;
use crate::lock::Mutex;
use crate::sys;

/// How long several ranks, which fail by one thing, may take to say so.
const ONE_EVENT: Duration = Duration::from_secs(1);

/// The last warning that this crate has seen, and when it was seen first; `None` where all went well after it.
#[derive(Debug)]
struct Heard {
    text: String,
    since: Option<Instant>,
}

static HEARD: Mutex<Heard> = Mutex::new(Heard { text: String::new(), since: None });

impl Heard {
    /// Whether it had been there before what goes on at `now`; notes that it is there. Compares texts, as NCCL gives its warnings
    /// neither numbers nor times. Nothing but the text of errors depends on it.
    fn is_old(&mut self, text: &str, now: Instant) -> bool {
        if self.text == text {
            return self.since.is_none_or(|since| now.duration_since(since) >= ONE_EVENT);
        }
        *self = Self { text: text.to_owned(), since: Some(now) };
        false
    }
}

fn is_old(text: &str) -> bool {
    HEARD.lock().is_old(text, Instant::now())
}

/// A communicator has started: what NCCL has said so far is of something else than what may fail later.
pub(crate) fn all_went_well() {
    if let Some(text) = last_error() {
        *HEARD.lock() = Heard { text, since: None };
    }
}

/// What NCCL says of a call that has just failed; where it has said so before, that it has.
#[cold]
pub(crate) fn of_call() -> Option<String> {
    let text = last_error()?;
    Some(if is_old(&text) { format!("{text} (NCCL had said so before, perhaps of another call)") } else { text })
}

/// What NCCL says when a wait ends in an error, if that is new. NCCL ignores the communicator, null or live. If
/// [the last error is of a communicator](sys::behavior::LAST_ERROR_IS_OF_COMMUNICATOR), the text says what that communicator
/// waits for; with null, it says what the communicators wait for that are starting.
pub(crate) fn said(communicator: Handle) -> Option<String> {
    let is_of_start = sys::behavior::LAST_ERROR_IS_OF_COMMUNICATOR && communicator.0.is_null();
    let text = last_error_of(communicator)?;
    let is_of_process = !is_of_start && last_error().as_ref() == Some(&text);
    (!is_of_process || !is_old(&text)).then(|| format!("NCCL says: {text}"))
}

/// A copy of what `ncclGetLastError` says, if it says anything.
///
/// NCCL keeps one buffer for the whole process and overwrites it at any time, so the text may be torn, and may belong to another call.
pub(crate) fn last_error() -> Option<String> {
    last_error_of(Handle(ptr::null_mut()))
}

/// The same with a communicator, null or live.
fn last_error_of(Handle(raw): Handle) -> Option<String> {
    // SAFETY: the argument is ignored by NCCL; the result is null or a buffer of `LONGEST` bytes.
    let text = unsafe { sys::ncclGetLastError(raw) };
    copied(text).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Whether NCCL's last warning is that CUDA has run out of memory. NCCL's code only says that a call
/// of CUDA failed, so the text of its warning is all there is. It quotes `cudaGetErrorString`:
/// `Cuda failure 2 'out of memory'`.
#[cold]
pub(crate) fn names_out_of_memory() -> bool {
    let Some(text) = last_error() else { return false };
    // A later failure, of something else, must not take this warning for a new one.
    is_old(&text);
    text.contains("out of memory")
}

/// Bytes of the buffer in which NCCL keeps its last message.
const LONGEST: usize = 1024;

/// A copy of a text of C, of at most [`LONGEST`] bytes. Others may write to it meanwhile.
pub(super) fn copied(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    let mut copy = [0; LONGEST];
    for (at, byte) in copy.iter_mut().enumerate() {
        // SAFETY: no byte before this one was NUL, so it is still within the text, or within the buffer of that many bytes. It is read
        // once, and no reference to it is made: NCCL's threads write there.
        *byte = unsafe { text.add(at).cast::<u8>().read_volatile() };
        if *byte == 0 {
            return Some(String::from_utf8_lossy(&copy[..at]).into_owned());
        }
    }
    Some(String::from_utf8_lossy(&copy).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_copied_to_their_ends() {
        assert_eq!(copied(ptr::null()), None);
        assert_eq!(copied(c"".as_ptr()).as_deref(), Some(""));
        assert_eq!(copied(c"a text".as_ptr()).as_deref(), Some("a text"));
        assert_eq!(copied(c"\xff".as_ptr()).as_deref(), Some("\u{fffd}"));
        // As a buffer is that is being written to.
        let torn = [b'x'; LONGEST];
        assert_eq!(copied(torn.as_ptr().cast()).as_deref(), Some(&*"x".repeat(LONGEST)));
    }

    #[test]
    fn what_was_said_before_is_old_after_a_while() {
        let mut heard = Heard { text: String::new(), since: None };
        let start = Instant::now();
        assert!(!heard.is_old("a failure", start));
        // As other ranks tell of it.
        assert!(!heard.is_old("a failure", start + ONE_EVENT / 2));
        assert!(heard.is_old("a failure", start + ONE_EVENT));
        assert!(!heard.is_old("another", start + ONE_EVENT));
        assert!(!heard.is_old("a failure", start + 2 * ONE_EVENT));
        heard.since = None;
        assert!(heard.is_old("a failure", start));
    }
}
