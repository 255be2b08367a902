//! What the emulator has to say: lines on stderr, each distinct text once.

use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// After so many distinct lines the rest are only counted: addresses differ from call to call, and a loop must not fill
/// a disk.
const DISTINCT: usize = 1000;

static VIOLATIONS: AtomicUsize = AtomicUsize::new(0);
static SEEN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// A mistake of the emulated program that a GPU would not have noticed: printed and counted.
pub(in crate::emulator) fn violation(text: impl AsRef<str>) {
    VIOLATIONS.fetch_add(1, Ordering::Relaxed);
    line(text);
}

/// How many violations this process has made so far.
#[allow(dead_code, reason = "read by tests of both halves of the emulator")]
pub(in crate::emulator) fn count() -> usize {
    VIOLATIONS.load(Ordering::Relaxed)
}

/// Says something that is no mistake of the program, such as a setting that was not understood.
pub(in crate::emulator) fn line(text: impl AsRef<str>) {
    let text = text.as_ref();
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() > DISTINCT || !seen.insert(text.to_owned()) {
        return;
    }
    // Nobody may be listening: a closed stderr is no reason to fail.
    let mut err = std::io::stderr().lock();
    let _ = writeln!(err, "gpucomm emulator: {text}");
    if seen.len() > DISTINCT {
        let _ = writeln!(err, "gpucomm emulator: {DISTINCT} different lines so far, further ones are not printed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_violation_counts_and_each_text_prints_once() {
        let before = count();
        violation("a test of the reports");
        violation("a test of the reports");
        assert!(count() >= before + 2);
        assert_eq!(SEEN.lock().unwrap().iter().filter(|text| *text == "a test of the reports").count(), 1);
    }
}
