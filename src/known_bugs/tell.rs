//! What a user of a version is told when it starts.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bug::{BugStatus, Library};
use super::table::TABLE;
use crate::backend::{Backend, backend};
use crate::version::Version;

/// Says on stderr, once a process, which bugs that programs may meet this version of NVSHMEM has. The emulator has none of them.
/// `GPUCOMM_KNOWN_BUGS_QUIET=1` silences it.
pub(crate) fn tell(running: Version) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let quiet = || std::env::var_os("GPUCOMM_KNOWN_BUGS_QUIET").is_some_and(|value| value == "1");
    if backend() == Backend::Emulator || SAID.swap(true, Ordering::Relaxed) || quiet() {
        return;
    }
    if let Some(line) = line(running) {
        // In one piece: the processes of a launch share stderr. Nowhere to write to is no reason to fail.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

fn line(running: Version) -> Option<String> {
    let met = |answer| answer == BugStatus::Documented;
    let bugs = TABLE.iter().filter(|bug| bug.library == Library::Nvshmem && met(bug.status) && bug.concerns(running));
    let names: Vec<_> = bugs.map(|bug| bug.name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "gpucomm: known bugs of NVSHMEM {running}, of which `gpucomm info --verbose` says more: {}\n",
            names.join(", ")
        )
    })
}

#[test]
fn bugs_are_told_by_name() {
    let said = |major, minor, patch| line(Version::new(major, minor, patch)).expect("one has no end");
    assert!(said(3, 2, 5).contains("NVSHMEM 3.2.5") && said(3, 2, 5).contains(": remote-signals, uid-bootstrap, "));
    assert!(!said(3, 4, 5).contains("remote-signals") && !said(3, 4, 5).contains("deep-ep"));
    assert!(said(3, 8, 0).ends_with(": fabric-state, deep-ep, handle-table\n"));
}
