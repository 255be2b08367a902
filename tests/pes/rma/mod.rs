//! Puts, gets, signals and waits.

mod graphs;
mod host_signals;
mod refused;
mod signals;
mod transfers;
