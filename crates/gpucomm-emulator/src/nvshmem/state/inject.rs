//! What a fault that was asked for does to a PE that is about to meet others.

use std::time::Duration;

use super::boot::Boot;
use super::deed::Activity;
use crate::fault::{self, Fault};
use crate::meet::watch::Deed as _;
use crate::report;

/// The exit status of a process that dies so.
const DEATH: i32 = 99;

/// Lets the fault happen that is due in front of operation `number` of this PE, if one is.
pub(crate) fn suffer(boot: &Boot, number: u64, activity: &Activity, cancelled: Option<&dyn Fn() -> bool>) {
    let Some(fault) = fault::at(boot.me, number) else { return };
    let what = activity.describe();
    report::line(format!("injected by {}: {fault:?}, PE {} at operation #{number}, {what}", fault::VARIABLE, boot.me));
    match fault {
        Fault::Late(delay) => std::thread::sleep(delay),
        // SAFETY: ends the process at once, as a crash would, without running anything of it.
        Fault::Die => unsafe { libc::_exit(DEATH) },
        Fault::Hang => {
            while !cancelled.is_some_and(|cancelled| cancelled()) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // NVSHMEM has none.
        Fault::AsyncError => {}
    }
}
