//! Signals: which of them are passed on to ranks, how the main thread hears of them, and what they are called.

use std::mem::MaybeUninit;
use std::sync::mpsc::{Receiver, channel};

use libc::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, c_int};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::failure::{Failure, Result};

const HANDLED: [c_int; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP];

/// Whether `signal` asks a program to end.
pub fn ends(signal: c_int) -> bool {
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT].contains(&signal)
}

/// Has a thread wait for signals, and say which have come. What this process was started to ignore, as by nohup, it ignores, as its ranks do.
pub fn listen() -> Result<Receiver<c_int>> {
    let wanted = HANDLED.into_iter().filter(|signal| !ignored(*signal)).chain([SIGCHLD, SIGCONT]);
    let cannot = |error| Failure::run(format!("signals cannot be waited for: {error}"));
    let mut signals = Signals::new(wanted).map_err(cannot)?;
    let (tell, told) = channel();
    let wait = move || {
        for signal in signals.forever() {
            if tell.send(signal).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().name("gpucomm-signals".into()).spawn(wait).map_err(cannot)?;
    Ok(told)
}

fn ignored(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only writes how the signal is handled to `now`, for which zeros are a value as well.
    let now = unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}

/// Sends `signal` to a process, or to a process group, whose number is negative. One that is gone needs none.
pub fn send(process: i32, signal: c_int) {
    // SAFETY: it concerns other processes only; nobody asks for 0 or -1, which would be all.
    unsafe { libc::kill(process, signal) };
}

/// The signal by its number and its name.
pub fn named(signal: c_int) -> String {
    match signal_name(signal) {
        Some(name) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}
