//! The operations of a communicator.

mod collectives;
mod messages;
mod variable;
