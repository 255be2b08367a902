//! What is looked at, each by functions of a machine that may be made up.

mod cores;
mod driver;
pub mod launcher;
mod links;
mod names;
pub mod network;
mod process;
mod rdma;
mod shared;
mod variables;
mod versions;
mod visible;

use super::finding::Finding;
use super::machine::{Machine, Ranks};

/// All that concerns this process by itself.
pub fn all(machine: &Machine, ranks: Ranks) -> Vec<Finding> {
    [
        driver::check(machine),
        visible::check(machine),
        versions::check(machine),
        links::check(machine),
        rdma::check(machine),
        shared::check(machine, ranks),
        process::check(machine, ranks),
        cores::check(machine, ranks),
        network::check(machine),
        variables::check(machine),
    ]
    .concat()
}
