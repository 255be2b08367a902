//! Whether another process still runs.

/// When the process started, in clock ticks since the machine did, and its state letter.
fn stat(pid: u32) -> Option<(u8, u64)> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so fields are counted from its end.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 2..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let born = fields.nth(18)?.parse().ok()?;
    Some((state, born))
}

/// When the process started: with its id, a name that is never given twice.
pub(crate) fn born(pid: u32) -> Option<u64> {
    stat(pid).map(|(_, born)| born)
}

/// Whether the process with this id and start time runs. A zombie does not.
pub(crate) fn alive(pid: u32, started: u64) -> bool {
    if pid == std::process::id() {
        return true;
    }
    match stat(pid) {
        Some((state, born)) => !matches!(state, b'Z' | b'X' | b'x') && (started == 0 || born == started),
        None => {
            // Without /proc there is only the signal test, which takes a zombie for alive.
            // SAFETY: signal 0 sends nothing.
            !std::path::Path::new("/proc/self/stat").exists() && unsafe { libc::kill(pid as libc::pid_t, 0) } == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_an_ended_one_does_not() {
        let me = std::process::id();
        assert!(alive(me, born(me).expect("/proc")));
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let pid = child.id();
        let started = born(pid).unwrap_or(0);
        // Not reaped yet: it ends as a zombie.
        for _ in 0..200 {
            if !alive(pid, started) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!alive(pid, started));
        child.wait().expect("the child ends");
        assert!(!alive(pid, started));
    }
}
