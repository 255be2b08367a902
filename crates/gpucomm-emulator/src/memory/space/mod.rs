//! What addresses mean to the program: who may use what lies there, and who does.
//!
//! A pointer is [`locate`]d, and what lies there is [`held`] while work uses it: an allocation of a device's heap, or memory that
//! the program has mapped itself. For that there is a [`table`] of reserved addresses, and of the parts of [`physical`] memory that
//! are [`mapped`] there. What other ranks name is [`reach`]ed.

pub(crate) mod held;
pub(crate) mod locate;
pub(crate) mod mapped;
pub(crate) mod physical;
pub(crate) mod reach;
pub(crate) mod table;
