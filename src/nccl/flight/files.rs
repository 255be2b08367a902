//! Dumps in files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use std::{env, fs, thread};

use super::dump::{self, Dump};
use super::ras;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::nccl::state::household::Lineage;
use crate::nccl::state::inner::{HOUSEHOLDS, Inner};

/// Where dumps are written when something goes wrong; nowhere, if it is not set.
const VARIABLE: &str = "GPUCOMM_DUMP";

/// For so long who is in trouble waits for files: a file system may hang as well. So long NCCL's RAS service is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes a dump, into a directory that is made if need be; one that this rank has written there before goes.
pub(crate) fn write(dump: &Dump, directory: &Path) -> Result<PathBuf> {
    let path = directory.join(format!("gpucomm-{}.json", dump.name()));
    // Whole, or as it was before: others may write it at the same time, and the process may end in the middle.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let draft = directory.join(format!(".{}-{}", dump.name(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&draft, format!("{dump}\n")));
    written.and_then(|()| fs::rename(&draft, &path)).map_err(|error| Error::InvalidUsage {
        operation: "dump_all",
        reason: format!("{} cannot be written: {error}", path.display()),
    })?;
    Ok(path)
}

/// Writes down all ranks of the process that have not ended, as far as that can be; the first error, where some cannot be written.
pub(crate) fn write_all(directory: &Path, occasion: &str) -> Result<Vec<PathBuf>> {
    let open = HOUSEHOLDS.members().into_iter().filter(|inner| !inner.has_ended());
    let written: Vec<_> = open.map(|inner| write(&Dump::of(&inner, occasion.to_owned()), directory)).collect();
    written.into_iter().collect()
}

/// Asks NCCL's RAS service, where it runs, and writes down what it says; not for long, and not beside another thread that is at it.
pub(crate) fn write_ras(directory: &Path) {
    static ASKED: Mutex<()> = Mutex::new(());
    let (Some(address), Ok(_alone)) = (ras::place(), ASKED.try_lock()) else { return };
    let answer = ras::ask("dump", &address, PATIENCE);
    let (name, text) = dump::of_ras(&address, &answer);
    let draft = directory.join(format!(".{name}"));
    // Nobody is there to be told that a file cannot be written.
    let _ = fs::create_dir_all(directory)
        .and_then(|()| fs::write(&draft, text))
        .and_then(|()| fs::rename(&draft, directory.join(name)));
}

/// Does what writes files into `directory` on a thread of its own, and waits for that, not for long, and not for what NCCL's RAS service says.
pub(crate) fn beside(directory: PathBuf, run: impl FnOnce(&Path) + Send + 'static) {
    let (done, waits) = mpsc::channel();
    let run = move || {
        run(&directory);
        let _ = done.send(());
        write_ras(&directory);
    };
    if thread::Builder::new().name("gpucomm-dump".into()).spawn(run).is_ok() {
        let _ = waits.recv_timeout(PATIENCE);
    }
}

/// What ranks have issued as something goes wrong, if that is to be written down.
#[must_use]
#[derive(Debug)]
pub(crate) struct Trouble(Vec<Dump>);

impl Trouble {
    /// That of these ranks, each for a reason of its own, and of all others of the process: what one waits for may be another's.
    pub(crate) fn of<'i, W: std::fmt::Display>(ranks: impl IntoIterator<Item = (&'i Inner, W)>) -> Self {
        if directory().is_none() {
            return Self(Vec::new());
        }
        let mut occasions: Vec<(u64, String)> =
            ranks.into_iter().map(|(inner, why)| (inner.id, why.to_string())).collect();
        let first =
            occasions.first().map_or_else(String::new, |(_, why)| format!("beside another communicator: {why}"));
        let open = HOUSEHOLDS.members().into_iter().filter(|inner| !inner.has_ended());
        let dump = |inner: Arc<Inner>| {
            let own = occasions.iter_mut().find(|(id, _)| *id == inner.id);
            Dump::of(&inner, own.map_or_else(|| first.clone(), |(_, why)| std::mem::take(why)))
        };
        Self(open.map(dump).collect())
    }

    /// That of a rank which waits for the others to start.
    pub(crate) fn starting(lineage: &Lineage, place: (usize, usize), device: Device, waits: &Error) -> Self {
        let dump = || Dump::starting(lineage, place, device, waits.to_string());
        Self(directory().map(|_| dump()).into_iter().collect())
    }

    /// Writes it down, and waits for that, not for long.
    pub(crate) fn write(self) {
        let Some(directory) = directory().filter(|_| !self.0.is_empty()) else { return };
        // Who is in trouble has other things to tell than that a file cannot be written.
        beside(directory, move |directory| self.0.iter().for_each(|dump| drop(write(dump, directory))));
    }
}

fn directory() -> Option<PathBuf> {
    env::var_os(VARIABLE).filter(|directory| !directory.is_empty()).map(PathBuf::from)
}
