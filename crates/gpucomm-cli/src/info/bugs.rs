//! Known bugs of the libraries that are running.

use gpucomm::known_bugs::KnownBug;
use serde_json::{Value, json};

use crate::libraries::bugs;

/// Those that concern this machine.
pub fn describe() -> Value {
    bugs::here().into_iter().map(one).collect()
}

fn one(bug: &KnownBug) -> Value {
    json!({
        "library": bug.library.name(),
        "name": bug.name,
        "versions": bug.versions(),
        "what": bug.what,
        "status": bug.status.name(),
        "how": bug.how,
    })
}
