//! The ranks that are there. Each start of a rank has a file that it keeps locked. An unlocked file
//! means that its process has died, and a removed one that the rank has left.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{failed, lock, open, open_lock, read, try_lock};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::owner_process::OwnerProcess;

/// The directory, and this rank in it.
#[derive(Debug)]
pub(super) struct Presence {
    root: PathBuf,
    file: PathBuf,
    /// Its lock says that this process lives.
    lock: Option<File>,
    owner: OwnerProcess,
}

impl Presence {
    /// Enters the directory. If no rank is there, removes first what earlier ones have left.
    ///
    /// # Errors
    /// A rank that is there expects another number of ranks than `size`.
    pub(super) fn enter(
        operation: &'static str,
        root: &Path,
        (id, size): (u64, usize),
        deadline: &Deadline,
    ) -> Result<Self> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| failed(operation, &path, &error)
        };
        let mut tries = 0;
        let gate = loop {
            std::fs::create_dir_all(root).map_err(fail(root))?;
            match lock(operation, &root.join("gate"), deadline) {
                Ok(gate) => break gate,
                // The last rank may have removed the directory just now.
                Err(_) if tries < 50 && !deadline.expired() => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        };
        if !any_alive(root).map_err(fail(root))? {
            remove(root).map_err(fail(root))?;
        }
        for folder in ["alive", "keys", "locks", "new"] {
            let path = root.join(folder);
            std::fs::create_dir_all(&path).map_err(fail(&path))?;
        }
        if let Some(theirs) = another_size(root, size).map_err(fail(root))? {
            return Err(Error::argument(operation, "size", format!("{theirs}, as another rank says"), size));
        }
        let path = alive(root, id);
        let file = open_lock(&path).map_err(fail(&path))?;
        let locked =
            deadline.until(|| try_lock(&file, false).map_err(fail(&path)).map(|locked| locked.then_some(())))?;
        locked.ok_or_else(|| deadline.error(operation, format!("the lock of this process, {}", path.display())))?;
        std::fs::write(&path, size.to_string()).map_err(fail(&path))?;
        drop(gate);
        Ok(Self { root: root.to_owned(), file: path, lock: Some(file), owner: OwnerProcess::this() })
    }

    /// How the process known as `id` ended, if it has.
    pub(super) fn ended(&self, id: u64) -> io::Result<Option<String>> {
        Ok(match lives(&alive(&self.root, id))? {
            None => Some("has left".to_owned()),
            Some(false) => Some("has died".to_owned()),
            Some(true) => None,
        })
    }

    /// Leaves. The last rank removes everything.
    pub(super) fn leave(&mut self, deadline: &Deadline) {
        if self.owner.is_another() {
            return;
        }
        // Without the gate, or after an error, files stay. The next rank that enters removes them.
        let gate = lock("Directory", &self.root.join("gate"), deadline);
        if std::thread::panicking() {
            // Unlocked and not removed, so that others learn that this rank has died.
            self.lock = None;
            return;
        }
        let _ = std::fs::remove_file(&self.file);
        self.lock = None;
        if gate.is_ok() && matches!(any_alive(&self.root), Ok(false)) && remove(&self.root).is_ok() {
            let _ = std::fs::remove_file(self.root.join("gate"));
            let _ = std::fs::remove_dir(&self.root);
        }
    }
}

fn alive(root: &Path, id: u64) -> PathBuf {
    root.join("alive").join(format!("{id:016x}"))
}

/// Whether the process of this file lives. `None` if there is no such file.
fn lives(path: &Path) -> io::Result<Option<bool>> {
    match open(path, OpenOptions::new().read(true)) {
        // A shared lock, so that several ranks can look at once.
        Ok(file) => Ok(Some(!try_lock(&file, true)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether any rank is there.
fn any_alive(root: &Path) -> io::Result<bool> {
    let entries = match std::fs::read_dir(root.join("alive")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for entry in entries {
        if lives(&entry?.path())? == Some(true) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The longest number of ranks as text.
const LONGEST_SIZE: usize = 20;

/// The number of ranks that another rank expects, if that is not `size`.
fn another_size(root: &Path, size: usize) -> io::Result<Option<String>> {
    for entry in std::fs::read_dir(root.join("alive"))? {
        let path = entry?.path();
        if lives(&path)? == Some(true) {
            let theirs = String::from_utf8_lossy(&read(&path, LONGEST_SIZE)?).into_owned();
            if theirs != size.to_string() {
                return Ok(Some(theirs));
            }
        }
    }
    Ok(None)
}

/// Removes everything but the gate.
fn remove(root: &Path) -> io::Result<()> {
    for folder in ["alive", "keys", "locks", "new"] {
        match std::fs::remove_dir_all(root.join(folder)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
