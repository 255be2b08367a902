//! Dumps when a signal comes.

use std::path::PathBuf;
use std::thread;

use libc::c_int;
use signal_hook::consts::FORBIDDEN;
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use super::files;
use crate::error::{Error, Result};

/// Has `signal` write down all ranks in `directory`, by a thread that waits for it: the handler only wakes that, and calls the one that was
/// there before.
pub(crate) fn watch(operation: &'static str, signal: c_int, directory: PathBuf) -> Result<()> {
    let refused = |got| Error::argument(operation, "signal", "a signal that can be handled, such as SIGUSR2", got);
    if !(1..=libc::SIGRTMAX()).contains(&signal) || FORBIDDEN.contains(&signal) {
        return Err(refused(name(signal)));
    }
    let mut signals = Signals::new([signal]).map_err(|error| refused(format!("{}: {error}", name(signal))))?;
    let wait = move || {
        for signal in signals.forever() {
            let dumps = files::all(&format!("signal {}", name(signal)));
            files::write_or_say(&dumps, &directory);
            files::add_ras(dumps, &directory);
        }
    };
    let thread = thread::Builder::new().name("gpucomm-signal".into()).spawn(wait);
    thread.map(drop).map_err(|error| Error::InvalidUsage {
        operation,
        reason: format!("a thread that waits for the signal cannot be started: {error}"),
    })
}

fn name(signal: c_int) -> String {
    signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned)
}
