//! The C functions of NVSHMEM. Each is thin over the call of its noun.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]

mod collectives;
mod elements;
mod kernels;
mod life;
mod memory;
mod order;
mod reduced;
mod regions;
mod rma;
mod signals;
mod teams;
mod typed;

pub use collectives::*;
pub use elements::*;
pub use kernels::*;
pub use life::*;
pub use memory::*;
pub use order::*;
pub use regions::*;
pub use rma::*;
pub use signals::*;
pub use teams::*;
pub use typed::nvshmem_by_type;

use std::ffi::c_int;

use super::basics::entry::{Class, Outcome, entry};

/// A function that returns nothing.
fn done(name: &'static str, class: Class, body: impl FnOnce() -> Outcome) {
    entry(name, class, |_| (), body);
}

/// A function that returns a status.
fn status(name: &'static str, class: Class, body: impl FnOnce() -> Outcome) -> c_int {
    entry(name, class, |status| status, || body().map(|()| 0))
}
