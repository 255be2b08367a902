//! What the emulator has to say: lines on stderr, each distinct text once.
//!
//! A violation is what the real libraries would answer with undefined behaviour, corruption or a hang. It is counted, and in
//! strict mode (GPUCOMM_EMULATOR_STRICT=1) it ends the process with status 86: no error code, which a program might take
//! for an answer, and no line that nobody reads.

use std::cell::Cell;
use std::collections::HashSet;
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::settings::settings;
use crate::lock::Mutex;

/// After so many distinct lines the rest are only counted: addresses differ from call to call, and a loop must not fill
/// a disk.
const DISTINCT: usize = 1000;

/// How a process ends in strict mode.
const STATUS: i32 = 86;

static VIOLATIONS: AtomicUsize = AtomicUsize::new(0);
static SEEN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The C function that this thread is in.
    static CALL: Cell<&'static str> = const { Cell::new("") };
}

/// Runs the body of the C function `name`, which violations meanwhile are put down to.
pub(crate) fn during<R>(name: &'static str, body: impl FnOnce() -> R) -> R {
    struct Restore(&'static str);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = CALL.try_with(|call| call.set(self.0));
        }
    }
    let _restore = Restore(CALL.try_with(|call| call.replace(name)).unwrap_or_default());
    body()
}

/// The C function that this thread is in; empty outside of one.
pub(crate) fn call() -> &'static str {
    CALL.try_with(Cell::get).unwrap_or_default()
}

/// A mistake of the emulated program. The text names the rank or device where they are known, what was expected and what
/// came; the function is added.
pub(crate) fn violation(text: impl AsRef<str>) {
    let text = text.as_ref();
    let call = call();
    let text = if text.contains(call) { text } else { &format!("{call}: {text}") };
    VIOLATIONS.fetch_add(1, Ordering::Relaxed);
    #[cfg(test)]
    if expected::came(text) {
        return line(text);
    }
    if settings().strict {
        end(text);
    }
    line(text);
}

#[cold]
fn end(text: &str) -> ! {
    let text = text.replace('\n', " ");
    let line = format!("gpucomm emulator: violation: {text} (GPUCOMM_EMULATOR_STRICT=1: the process ends)\n");
    // SAFETY: the bytes live across the write; then the process ends at once, without running anything of it, so that
    // nothing can hide what happened. Not through Rust's stderr: a thread that holds its lock may never go on.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        libc::_exit(STATUS)
    }
}

/// How many violations this process has made so far.
pub fn count() -> usize {
    VIOLATIONS.load(Ordering::Relaxed)
}

/// Says something that is no mistake of the program for sure, such as who waits for whom.
pub(crate) fn line(text: impl AsRef<str>) {
    let text = text.as_ref();
    let mut seen = SEEN.lock();
    if seen.len() > DISTINCT || !seen.insert(text.to_owned()) {
        return;
    }
    say(text);
    if seen.len() > DISTINCT {
        say(&format!("{DISTINCT} different lines so far, further ones are not printed"));
    }
}

/// Writes a line in one piece: the processes of a launch share stderr, and formatting straight into it would mix their lines.
fn say(text: &str) {
    let line = format!("gpucomm emulator: {text}\n");
    // Nobody may be listening: a closed stderr is no reason to fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Violations that a test provokes: they do not end its process.
#[cfg(test)]
pub(crate) mod expected {
    use super::*;
    use std::sync::Arc;

    static ALL: Mutex<Vec<(String, Arc<AtomicUsize>)>> = Mutex::new(Vec::new());

    /// As long as this lives, violations of any thread whose text holds a certain part are counted here too.
    #[derive(Debug)]
    pub(crate) struct Expected(Arc<AtomicUsize>);

    /// Expects violations whose text holds `part`.
    #[must_use = "they are expected as long as this lives"]
    pub(crate) fn expect(part: &str) -> Expected {
        let count = Arc::default();
        ALL.lock().push((part.to_owned(), Arc::clone(&count)));
        Expected(count)
    }

    impl Expected {
        /// How many have come.
        pub fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Drop for Expected {
        fn drop(&mut self) {
            ALL.lock().retain(|(_, count)| !Arc::ptr_eq(count, &self.0));
        }
    }

    /// Runs `mistake`, which must be reported with a text that holds `part` before it is over.
    pub(crate) fn reported<R>(part: &str, mistake: impl FnOnce() -> R) -> R {
        let expected = expect(part);
        let result = mistake();
        assert!(expected.count() > 0, "nothing was reported of {part:?}");
        result
    }

    pub(super) fn came(text: &str) -> bool {
        let all = ALL.lock();
        let hits: Vec<_> = all.iter().filter(|(part, _)| text.contains(part)).collect();
        for (_, count) in &hits {
            count.fetch_add(1, Ordering::Relaxed);
        }
        !hits.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_violation_counts_and_each_text_prints_once() {
        let before = count();
        let expected = expected::expect("a test of the reports");
        violation("this is a test of the reports");
        violation("this is a test of the reports");
        assert_eq!(expected.count(), 2);
        assert!(count() >= before + 2);
        assert_eq!(SEEN.lock().iter().filter(|text| text.contains("a test of the reports")).count(), 1);
    }
}
