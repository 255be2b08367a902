//! Dumps that are written by hand.

use std::fs;
use std::path::PathBuf;

use crate::harness;

/// A directory, which goes with this.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gpucomm-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A dump of a rank of two, with this in place of what it waits for in a comparison, and with an entry in this state.
    pub fn write(&self, rank: usize, time: u128, comparison: &str, state: &str) {
        let entry = format!(
            r#"{{"number": null, "sequence": 7, "operation": "alloc", "kind": "alloc", "peer": null, "count": 64,
               "element": "u8", "what": "alloc of 64 bytes", "stream": null, "time_ns": 5, "state": "{state}"}}"#
        );
        self.write_of("000000", (rank, 2), time, comparison, &entry);
    }

    /// The same of the communicator with this key, and so many ranks, with these entries.
    pub fn write_of(&self, key: &str, place: (usize, usize), time: u128, comparison: &str, entries: &str) {
        self.write_counted(key, place, (time, comparison), (7, ""), entries);
    }

    /// The same of one that is in this state, because of this error, of this kind.
    pub fn write_ended(&self, place: (usize, usize), time: u128, ended: (&str, &str, &str), entries: &str) {
        self.write_all("000000", place, (time, "null"), (0, ""), ended, entries);
    }

    /// The same of a rank that has come to so many collectives, and to these messages.
    pub fn write_counted(
        &self,
        key: &str,
        place: (usize, usize),
        when: (u128, &str),
        counted: (u64, &str),
        entries: &str,
    ) {
        self.write_all(key, place, when, counted, ("active", "null", "null"), entries);
    }

    fn write_all(
        &self,
        key: &str,
        (rank, size): (usize, usize),
        (time, comparison): (u128, &str),
        (collectives, messages): (u64, &str),
        (state, cause, kind): (&str, &str, &str),
        entries: &str,
    ) {
        let text = format!(
            r#"{{"schema": "gpucomm-dump/1", "occasion": "asked for", "time_ns": {time}, "process": {{"host": "here", "pid": {rank}}},
               "communicator": {{"key": "{key}0000000000", "part": null, "rank": {rank}, "size": {size}, "device": "device {rank}",
               "state": "{state}", "cause": {cause}, "cause_kind": {kind}}}, "waits": null, "comparison": {comparison}, "ras": null,
               "collectives": {collectives}, "messages": [{messages}], "entries": [{entries}]}}"#
        );
        fs::write(self.0.join(format!("gpucomm-{key}-{rank}.json")), text).unwrap();
    }

    /// Replaces what stands in the dump of this rank.
    pub fn change(&self, key: &str, rank: usize, what: &str, with: &str) {
        let path = self.0.join(format!("gpucomm-{key}-{rank}.json"));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(what), "{what} is not in {text}");
        fs::write(path, text.replace(what, with)).unwrap();
    }

    /// What is said, each paragraph in one line.
    pub fn told(&self) -> String {
        let output = harness::run(&["diagnose", self.0.to_str().unwrap()]);
        assert!(matches!(output.code, Some(0 | 3)), "{:?}: {}", output.code, output.err);
        in_one_line(output.out.trim())
    }

    /// The exit status: 0 if a culprit is named.
    pub fn code(&self) -> Option<i32> {
        harness::run(&["diagnose", self.0.to_str().unwrap()]).code
    }
}

/// Joins the first clause of each paragraph with those that stand below it.
pub fn in_one_line(told: &str) -> String {
    told.replace(";\n  ", "; ")
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An entry: its kind, number in its sequence, other rank, state, and when it was issued.
pub fn entry(kind: &str, sequence: u64, peer: Option<usize>, state: &str, time: u64) -> String {
    let at = peer.map_or("null".to_owned(), |peer| peer.to_string());
    let what =
        peer.map_or(String::new(), |peer| format!(" {} rank {peer}", if kind == "recv" { "from" } else { "to" }));
    format!(
        r#"{{"number": {time}, "sequence": {sequence}, "operation": "{kind}", "kind": "{kind}", "peer": {at}, "count": 3,
           "element": "i32", "what": "{kind} of 3 i32{what}", "stream": 1, "time_ns": {time}, "state": "{state}"}}"#
    )
}

/// An all_reduce that was issued at this time and is not done, with this number among the collectives.
pub fn all_reduce(sequence: u64, time: u64) -> String {
    format!(
        r#"{{"number": {sequence}, "sequence": {sequence}, "operation": "all_reduce", "kind": "all_reduce", "peer": null, "count": 64,
           "element": "f32", "what": "all_reduce of 64 f32, sum", "stream": 1, "time_ns": {time}, "state": "issued"}}"#
    )
}
