//! The memory of devices: the files it lies in, what is allocated there, and what addresses mean.
//!
//! An [`object`] is a piece of memory in a file of its own, which any process of the machine can map. One [`map`] says what
//! each address of this process means: which object, and where in it. The memory of a device is one object, made at the first
//! use, and the [`heap`] divides it into blocks. [`symmetric`] heaps are objects of their own.
//!
//! Programs see memory above that: what they have [`mapped`] themselves, what each device may do with it ([`access`]), and who
//! uses what lies behind a pointer ([`usage`]); and [`multicast`] objects, at whose addresses devices write to the memory of all of
//! them. Nothing here knows a device but by its numbers: the ordinal that it has in this process, and the one that it has on the
//! machine.

pub(crate) mod access;
pub(crate) mod heap;
pub(crate) mod map;
pub(crate) mod mapped;
pub(crate) mod multicast;
pub(crate) mod object;
#[cfg(feature = "nvshmem")]
pub(crate) mod symmetric;
pub(crate) mod usage;
