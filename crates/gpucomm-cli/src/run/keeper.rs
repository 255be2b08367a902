//! A process that outlives this one by a moment: should this one be killed, it kills what the ranks have started.
//!
//! The ranks themselves are killed by the kernel then (`PR_SET_PDEATHSIG`), which does nothing for what they have started in turn. The keeper knows
//! their process groups. What has left its group (`setsid`) it does not find; nor is anybody left to look where both are killed.

use std::collections::BTreeSet;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

use super::signals::send;
use crate::failure::{Failure, Result};

pub struct Keeper {
    tell: PipeWriter,
    pub pid: i32,
}

impl Keeper {
    /// Starts it. Must be called while the process has one thread.
    pub fn start() -> Result<Self> {
        let cannot = |error| {
            Failure::run(format!("a process that ends the ranks should this one be killed cannot be started: {error}"))
        };
        let (told, tell) = pipe().map_err(cannot)?;
        // SAFETY: this process has no other thread, so that the new one has no lock of one, and may call whatever it likes.
        match unsafe { libc::fork() } {
            -1 => Err(cannot(std::io::Error::last_os_error())),
            0 => {
                drop(tell);
                keep(told);
                // SAFETY: it ends the process, without what is to be done at the end of the one that it is a copy of.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self { tell, pid }),
        }
    }

    /// Tells it of a process group.
    pub fn add(&mut self, group: i32) {
        self.say(group);
    }

    /// Tells it that a group is gone, whose number others may get.
    pub fn forget(&mut self, group: i32) {
        self.say(-group);
    }

    fn say(&mut self, number: i32) {
        // Should somebody have killed it, nothing is lost but what it is for.
        let _ = self.tell.write_all(&number.to_ne_bytes());
    }

    /// Ends it. All groups are gone.
    pub fn end(self) {
        let Self { mut tell, pid } = self;
        let _ = tell.write_all(&0i32.to_ne_bytes());
        drop(tell);
        // SAFETY: it is a child of this process, and its status is of no interest.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
}

fn keep(mut told: PipeReader) {
    // What is meant for the other process must not end this one.
    // SAFETY: nothing else runs in this process, and no handler is replaced that anybody waits for.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"gpucomm-keeper".as_ptr());
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    let mut groups = BTreeSet::new();
    let mut number = [0; 4];
    while told.read_exact(&mut number).is_ok() {
        match i32::from_ne_bytes(number) {
            0 => return,
            group if group > 1 => _ = groups.insert(group),
            group => _ = groups.remove(&-group),
        }
    }
    for group in groups {
        send(-group, libc::SIGKILL);
    }
}
