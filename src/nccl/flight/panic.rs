//! Dumps where a thread panics.

use std::cell::Cell;
use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::thread;

use super::files;
use crate::error::{Error, Result};

thread_local! {
    /// This thread writes dumps: a panic of its own brings no others.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Has every panic of the process write down all ranks in `directory`, before the hook that was there is called.
pub(crate) fn watch(operation: &'static str, directory: PathBuf) -> Result<()> {
    if thread::panicking() {
        return Err(Error::InvalidUsage { operation, reason: "this thread panics".into() });
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        write(info, &directory);
        before(info);
    }));
    Ok(())
}

/// Not on this thread, which may hold what it takes to find the ranks.
fn write(info: &PanicHookInfo<'_>, directory: &Path) {
    if WRITES.get() {
        return;
    }
    let thread = thread::current();
    let occasion = format!("thread {:?} {info}", thread.name().unwrap_or("without a name"));
    files::beside(directory.to_owned(), move || {
        WRITES.set(true);
        files::all(&occasion)
    });
}
