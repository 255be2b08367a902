//! Collectives of teams.

mod graphs;
mod moves;
mod reduces;
mod refused;
mod switches;
