//! A rank: a process, which leads a process group.

use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use super::signals::named;
use super::store::Store;
use super::variables::World;
use crate::notice;
use crate::options::RunOptions;

/// One that was started.
#[derive(Debug)]
pub struct Rank {
    pub rank: usize,
    pub pid: i32,
    /// How it has ended, and whether it has.
    pub status: Option<ExitStatus>,
}

impl Rank {
    pub fn lives(&self) -> bool {
        self.status.is_none()
    }

    /// What is wrong with how it has ended.
    pub fn failure(&self) -> Option<Death> {
        self.status.filter(|status| !status.success()).map(|status| Death { rank: self.rank, pid: self.pid, status })
    }
}

/// How a rank has failed.
#[derive(Debug, Clone, Copy)]
pub struct Death {
    rank: usize,
    pid: i32,
    status: ExitStatus,
}

impl Death {
    /// Whether it says what went wrong: a rank whose peer has been killed fails as well, by itself.
    pub fn by_signal(&self) -> bool {
        self.status.signal().is_some()
    }

    /// As a shell has it.
    pub fn code(&self) -> u8 {
        let code = self.status.code().or_else(|| self.status.signal().map(|signal| 128 + signal));
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }

    pub fn words(&self) -> String {
        format!("rank {} (process {}) {}", self.rank, self.pid, self.how())
    }

    pub fn how(&self) -> String {
        match (self.status.signal(), self.status.code()) {
            (Some(signal), _) => format!("was killed by {}", named(signal)),
            (None, Some(code)) => format!("exited with status {code}"),
            (None, None) => "ended".to_owned(),
        }
    }
}

/// Starts the local rank `local`. The kernel kills it when the thread that calls this ends, which must be the main thread.
pub fn start(world: &World, local: usize, options: &RunOptions, store: &Store) -> std::io::Result<Child> {
    let (program, args) = options.command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(args).process_group(0);
    notice::pass_on(&mut command);
    world.give(&mut command, local, options, store.variables());
    // A process group that is not the terminal's own is stopped when it reads there.
    let reads = world.rank(local) == 0 && !std::io::stdin().is_terminal();
    command.stdin(if reads { Stdio::inherit() } else { Stdio::null() });
    if options.prefix {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let parent = std::process::id();
    let bind = move || {
        // SAFETY: both are system calls without pointers, which may be made between fork and exec.
        let there = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            libc::getppid()
        };
        // It may have died before that.
        if u32::try_from(there) == Ok(parent) { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: `bind` makes two system calls and allocates nothing.
    unsafe { command.pre_exec(bind) };
    command.spawn()
}
