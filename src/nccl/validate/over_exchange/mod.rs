//! Checks over an exchange that all ranks of a checked communicator, in several processes, are about to
//! launch the same operation.
//!
//! Collectives come in rounds, and so do the points at which ranks do something together. In each
//! round every rank writes a note with the signatures of what it is about to do, the same
//! signatures that the ranks of a clique compare, and waits for the notes of all others. So no rank
//! launches an operation that another one does not, and all ranks come to the same verdict. A group is
//! one round. A message concerns two ranks: the first to come writes a note and goes on, and the second
//! compares, as in a clique.
//!
//! Processes of one host leave the notes of rounds on a [board](super::board), all others in the store.
//!
//! The rank that finds out how the communicator ends writes that once, and all ranks report it.

mod attempts;
pub(crate) mod deaths;
pub(crate) mod end;
mod messages;
pub(crate) mod regroups;
pub(crate) mod round;
mod rounds;
pub(crate) mod this_rank;
