//! When to say that this is the emulator: not before it is clear that there is something to run, so that an error stays
//! one line.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use gpucomm::{Backend, backend};

use crate::output;

const QUIET: &str = "GPUCOMM_EMULATOR_QUIET";

static WANTED: AtomicBool = AtomicBool::new(false);

/// Keeps the library from saying it when it first uses a device. To be called before there are other threads.
pub fn postpone() {
    if backend() == Backend::Emulator && std::env::var_os(QUIET).is_none() {
        WANTED.store(true, Ordering::Relaxed);
        // SAFETY: `main` calls this first, so no other thread reads or writes the environment now.
        unsafe { std::env::set_var(QUIET, "1") };
    }
}

/// Says it now, unless the user wanted quiet.
pub fn give(devices: usize) {
    if WANTED.swap(false, Ordering::Relaxed) {
        let noun = if devices == 1 { "device" } else { "devices" };
        output::note(&format!("running on the CPU emulator ({devices} {noun}), not on a GPU"));
    }
}

/// Lets a program that is started say it for itself.
pub fn pass_on(command: &mut Command) {
    if WANTED.load(Ordering::Relaxed) {
        command.env_remove(QUIET);
    }
}
