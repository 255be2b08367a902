//! What the program itself asks of the emulator, in the words of the variables, before which it goes.

use std::ffi::OsString;

use crate::lock::{Mutex, MutexGuard};

struct Given {
    values: Vec<(&'static str, String)>,
    /// Somebody has read a variable: what comes now comes too late.
    used: bool,
}

static GIVEN: Mutex<Given> = Mutex::new(Given { values: Vec::new(), used: false });

fn given() -> MutexGuard<'static, Given> {
    GIVEN.lock()
}

/// Adds `values`, by the names of variables; false where the emulator is in use.
#[must_use]
pub(crate) fn give(values: &[(&'static str, String)]) -> bool {
    let mut given = given();
    if !given.used {
        given.values.extend_from_slice(values);
    }
    !given.used
}

/// What was given for the variable `name`, or what it holds.
pub(crate) fn read(name: &str) -> Option<OsString> {
    let mut given = given();
    given.used = true;
    latest(&given.values, name).or_else(|| std::env::var_os(name))
}

/// The last of `values` for `name`.
pub(crate) fn latest(values: &[(&'static str, String)], name: &str) -> Option<OsString> {
    values.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.into())
}
