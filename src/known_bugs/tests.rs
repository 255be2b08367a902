//! What the table says, and that the documentation has the same.

use super::table::MISALIGNED_WINDOWS;
use super::*;
use crate::version::Version;

#[test]
fn versions_and_their_ends() {
    let concerned =
        |bug: &KnownBug, version: (u32, u32, u32)| bug.concerns(Version::new(version.0, version.1, version.2));
    for (version, hit) in
        [((2, 26, 6), false), ((2, 27, 3), true), ((2, 28, 9), true), ((2, 29, 7), true), ((2, 30, 3), false)]
    {
        assert_eq!(concerned(&MISALIGNED_WINDOWS, version), hit, "{version:?}");
    }
    assert_eq!(MISALIGNED_WINDOWS.versions(), "2.27.3 to 2.29.7");
    let versions = |name: &str| TABLE.iter().find(|bug| bug.name == name).map(KnownBug::versions);
    assert_eq!(versions("remote-signals").as_deref(), Some("up to 3.2.5"));
    assert_eq!(versions("deep-ep").as_deref(), Some("from 3.5.19 on"));
    assert_eq!(versions("comm-blocking").as_deref(), Some("all"));
}

/// The table of `docs/known-bugs.md`, as it must be.
fn table() -> String {
    let mut text = "| library | versions | what happens | what is done |\n| --- | --- | --- | --- |\n".to_owned();
    for bug in TABLE {
        let only = bug.compute_capability.map(|(major, minor)| format!(", compute capability {major}.{minor}"));
        let place = if bug.place.is_empty() { String::new() } else { format!(" ([{0}](../{0}))", bug.place) };
        let (library, versions, only) = (bug.library.name(), bug.versions(), only.unwrap_or_default());
        let (status, how) = (bug.status.name(), bug.how);
        text += &format!("| {library} | {versions}{only} | `{}`: {} | {status}: {how}{place} |\n", bug.name, bug.what);
    }
    text
}

/// `GPUCOMM_WRITE_DOCS=1` writes it anew.
#[test]
fn the_documentation_has_the_same_table() {
    const BEGIN: &str = "<!-- from src/known_bugs/table.rs -->\n";
    let (text, got) = include_str!("../../docs/known-bugs.md").split_once(BEGIN).unwrap();
    if std::env::var_os("GPUCOMM_WRITE_DOCS").is_some_and(|value| value == "1") {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/known-bugs.md");
        std::fs::write(path, format!("{text}{BEGIN}{}", table())).unwrap();
        return;
    }
    assert_eq!(got, table(), "GPUCOMM_WRITE_DOCS=1 cargo test --features emulator --lib known_bugs");
}

#[test]
fn names_are_unique_and_places_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (at, bug) in TABLE.iter().enumerate() {
        assert!(TABLE[..at].iter().all(|other| other.name != bug.name), "{} twice", bug.name);
        // The tests may run where the source is not.
        assert!(!root.exists() || root.join(bug.place).exists(), "{}: {} is not there", bug.name, bug.place);
        assert_eq!(
            bug.place.is_empty(),
            bug.status == BugStatus::Documented && bug.name != "no-revoke",
            "{}",
            bug.name
        );
    }
}
