//! What ranks have started, directly or not, in whatever process group or session.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::failure::{Failure, Result};

/// A process that lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
}

/// This process.
pub fn own() -> i32 {
    std::process::id().cast_signed()
}

/// Makes this process the parent of what is left of its descendants' children, so that they are found however they have been started.
pub fn adopt() -> Result<()> {
    // SAFETY: it sets an attribute of this process, and takes no pointer.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } != 0 {
        return Err(Failure::run(format!("PR_SET_CHILD_SUBREAPER: {}", std::io::Error::last_os_error())));
    }
    Ok(())
}

/// All living descendants of this process, but for those in `spared` and theirs.
pub fn all(spared: &BTreeSet<i32>) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    // Where /proc is not there, there are the process groups still.
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that has ended meanwhile has none.
        let stat = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some((parent, true)) = read(&stat) {
            children.entry(parent).or_default().push(Process { pid, parent });
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![own()];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            if !spared.contains(&child.pid) {
                parents.push(child.pid);
                found.push(child);
            }
        }
    }
    found
}

/// The parent of a process, and whether it lives, of /proc/PID/stat.
fn read(stat: &[u8]) -> Option<(i32, bool)> {
    // The name is in brackets, and may hold some.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    Some((fields.next()?.parse().ok()?, !matches!(state, "Z" | "X")))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn names_may_be_anything() {
        assert_eq!(read(b"12 (a) Z 1 (x) S 34 12 12 0"), Some((34, true)));
        assert_eq!(read(b"12 (sh) Z 34 12 12 0"), Some((34, false)));
        assert_eq!(read(b""), None);
    }
}
