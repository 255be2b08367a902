//! The lifecycle of communicators: how they start, fail, and end.
//!
//! | to | see |
//! |---|---|
//! | start ranks, or ranks made from other communicators | [`start`], [`start_over_exchange`], [`start_child`] |
//! | learn that a rank has failed | [`start_watch`] (starts over an exchange), [`health`] (every wait), [`watchdog`] (calls that stay inside NCCL), [`peer_listener`] (other processes) |
//! | end it, as a call has failed | [`failed_call`] |
//! | end it, and all that end with it | [`abort`], which uses [`interrupt`], [`quiesce`], [`graph_ends`] and [`release`] |
//! | stop it, and make others of it | [`revoke`] |
//! | end it in order | [`close`], [`drop`](mod@drop), which wait for nothing twice: [`timeouts`] |
//! | hand it over from or to another library | [`handover`] |
//! | free its memory | [`reclaim`] |
//! | find out which failure came first | [`root_cause`], [`scope`] |
//!
//! `local_ranks` knows which ranks end together, and `rank` in which state each of them is.

pub(crate) mod abort;
pub(crate) mod close;
pub(crate) mod drop;
pub(crate) mod failed_call;
pub(crate) mod graph_ends;
pub(crate) mod handover;
pub(crate) mod health;
pub(crate) mod interrupt;
pub(crate) mod peer_listener;
pub(crate) mod quiesce;
pub(crate) mod reclaim;
pub(crate) mod release;
#[cfg(nccl_ge_2_28_7)]
pub(crate) mod revoke;
pub(crate) mod root_cause;
pub(crate) mod scope;
pub(crate) mod start;
pub(crate) mod start_child;
pub(crate) mod start_over_exchange;
mod start_watch;
pub(crate) mod timeouts;
pub(crate) mod watchdog;

/// The last device, for one unit test at a time: what an abort does depends on other communicators
/// that are locked on its device, and other tests use the first devices.
#[cfg(all(test, gpucomm_emulator))]
fn last_device() -> (crate::lock::MutexGuard<'static, ()>, crate::cuda::Device) {
    static ALONE: crate::lock::Mutex<()> = crate::lock::Mutex::new(());
    let devices = crate::cuda::Device::all().expect("devices of the emulator");
    (ALONE.lock(), devices[devices.len() - 1])
}
