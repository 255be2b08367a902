//! Dumps in files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock, mpsc};
use std::time::Duration;
use std::{env, fs, thread};

use super::dump::{self, Dump};
use super::{ended, ras};
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::lock::{Mutex, is_forked};
use crate::name::Name;
use crate::nccl::local_ranks::lineage::Lineage;
use crate::nccl::rank::inner::{Inner, LOCAL_RANKS};

/// Where dumps are written when something goes wrong; nowhere, if it is not set.
const VARIABLE: &str = "GPUCOMM_DUMP";

/// For so long who is in trouble waits for files: a file system may hang as well. So long NCCL's RAS service is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a file holds that was written here: when it was made, and whether NCCL's RAS service has answered.
type Newest = Arc<Mutex<Option<(u64, bool)>>>;

/// That of the file at `path`.
fn newest(path: &Path) -> Newest {
    static ALL: OnceLock<Mutex<HashMap<PathBuf, Newest>>> = OnceLock::new();
    let mut all = ALL.get_or_init(Mutex::default).lock();
    all.entry(path.to_owned()).or_default().clone()
}

/// Writes a dump, into a directory that is made if need be; an older one that this rank has written there before goes, a newer one stays.
pub(crate) fn write(dump: &Dump, directory: &Path) -> Result<PathBuf> {
    let path = directory.join(format!("gpucomm-{}.json", dump.file_stem()));
    // Until it is there: who is slow, as it has waited for an answer, writes over nothing that was made since.
    let newest = newest(&path);
    let mut newest = newest.lock();
    if newest.is_some_and(|newest| newest > dump.order()) {
        return Ok(path);
    }
    // Whole, or as it was before: others may write it at the same time, and the process may end in the middle.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let draft = directory.join(format!(".{}-{}", dump.file_stem(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&draft, format!("{dump}\n")));
    written.and_then(|()| fs::rename(&draft, &path)).map_err(|error| Error::InvalidUsage {
        operation: "dump_all",
        reason: format!("{} cannot be written: {error}", path.display()),
    })?;
    *newest = Some(dump.order());
    Ok(path)
}

/// What all ranks of the process have issued, and had issued that have ended.
pub(crate) fn all(occasion: &str) -> Vec<Dump> {
    // The ranks are the parent's.
    if is_forked() {
        return Vec::new();
    }
    // In this order: who ends meanwhile is there twice, and not missing.
    let open = LOCAL_RANKS.ranks().into_iter().filter(|inner| !inner.has_ended() && ended::of(inner).is_none());
    let mut all: Vec<_> = open.map(|inner| Dump::of(&inner, occasion.to_owned())).collect();
    all.extend(ended::all());
    all
}

/// Writes dumps down, as far as that can be; the first error, where some cannot be written.
pub(crate) fn write_each(dumps: &[Dump], directory: &Path) -> Result<Vec<PathBuf>> {
    let written: Vec<_> = dumps.iter().map(|dump| write(dump, directory)).collect();
    written.into_iter().collect()
}

/// The same, where nobody is there to be told that they cannot be written: that is said once, on stderr.
pub(crate) fn write_or_say(dumps: &[Dump], directory: &Path) {
    static SAID: Once = Once::new();
    if let Err(error) = write_each(dumps, directory) {
        SAID.call_once(|| eprintln!("gpucomm: dumps of the flight recorder are lost: {error}"));
    }
}

/// Asks NCCL's RAS service, where it runs, and writes down what it says, in a file of its own, and in these dumps, which were written before.
pub(crate) fn add_ras(mut dumps: Vec<Dump>, directory: &Path) {
    let Some(answer) = write_ras(directory) else { return };
    let answer: Arc<str> = answer.into();
    dumps.iter_mut().for_each(|dump| dump.tell_ras(Arc::clone(&answer)));
    write_or_say(&dumps, directory);
}

/// Asks NCCL's RAS service, where it runs, and writes down what it says, which is returned; not for long, and not beside another thread that is
/// at it.
fn write_ras(directory: &Path) -> Option<String> {
    static ASKED: Mutex<()> = Mutex::new(());
    let (Some(address), Some(_alone)) = (ras::place(), ASKED.try_lock()) else { return None };
    let answer = ras::ask("dump", &address, PATIENCE);
    let (name, text) = dump::of_ras(&address, &answer);
    let draft = directory.join(format!(".{name}"));
    // Nobody is there to be told that a file cannot be written.
    let _ = fs::create_dir_all(directory)
        .and_then(|()| fs::write(&draft, text))
        .and_then(|()| fs::rename(&draft, directory.join(name)));
    answer.ok()
}

/// Writes dumps into `directory` on a thread of its own, and waits for that, not for long, and not for what NCCL's RAS service says.
pub(crate) fn beside(directory: PathBuf, make: impl FnOnce() -> Vec<Dump> + Send + 'static) {
    let (done, waits) = mpsc::channel();
    let run = move || {
        let dumps = make();
        write_or_say(&dumps, &directory);
        let _ = done.send(());
        add_ras(dumps, &directory);
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
        // Nothing has gone wrong that was not written down before.
        if occasions.is_empty() {
            return Self(Vec::new());
        }
        let (id, first) = occasions[0].clone();
        let all = LOCAL_RANKS.ranks();
        let other = match all.iter().find(|inner| inner.id == id) {
            Some(inner) => format!("beside communicator {}: {first}", inner.name),
            None => format!("beside another communicator: {first}"),
        };
        Self(Self::beside(&other, &mut occasions))
    }

    /// That of these ranks of a communicator of `size`, which wait for it to start, and of all others of the process.
    pub(crate) fn starting(
        lineage: &Lineage,
        name: &Name,
        ranks: &[(usize, Device)],
        size: usize,
        waits: &Error,
    ) -> Self {
        if directory().is_none() {
            return Self(Vec::new());
        }
        let dump =
            |&(rank, device): &(usize, Device)| Dump::starting(lineage, name, (rank, size), device, waits.to_string());
        let mut all = Self::beside(&format!("beside communicator {name}: {waits}"), &mut []);
        all.extend(ranks.iter().map(dump));
        Self(all)
    }

    /// That of all ranks of the process. The occasion is `other` for those that have no reason of
    /// their own.
    fn beside(other: &str, occasions: &mut [(u64, String)]) -> Vec<Dump> {
        let open = LOCAL_RANKS.ranks().into_iter().filter(|inner| !inner.has_ended());
        let dump = |inner: Arc<Inner>| {
            // What is about to end says why.
            if let Some(dump) = ended::of(&inner) {
                return dump;
            }
            let own = occasions.iter_mut().find(|(id, _)| *id == inner.id);
            Dump::of(&inner, own.map_or_else(|| other.to_owned(), |(_, why)| std::mem::take(why)))
        };
        open.map(dump).collect()
    }

    /// Writes it down, and waits for that, not for long.
    pub(crate) fn write(self) {
        let Some(directory) = directory().filter(|_| !self.0.is_empty()) else { return };
        beside(directory, move || self.0);
    }
}

fn directory() -> Option<PathBuf> {
    env::var_os(VARIABLE).filter(|directory| !directory.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_dump_stays() {
        let directory = env::temp_dir().join(format!("gpucomm-newest-{}", std::process::id()));
        let dump = |when, cause| Dump::made(when, cause);
        let written = |dump: &Dump| fs::read_to_string(write(dump, &directory).unwrap()).unwrap();
        assert!(written(&dump(5, "first")).contains("first"));
        assert!(written(&dump(7, "second")).contains("second"));
        let mut late = dump(5, "first");
        late.tell_ras("answered".into());
        assert!(written(&late).contains("second"));
        // Of two of the same time, the one that knows more.
        let mut told = dump(7, "second");
        told.tell_ras("answered".into());
        assert!(written(&told).contains("answered"));
        assert!(written(&dump(7, "second")).contains("answered"));
        assert!(written(&dump(8, "third")).contains("third"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
