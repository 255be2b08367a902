//! The NVSHMEM half of the emulator: the host interface of NVSHMEM 3.8.0 on the CPU. A PE is a process; several may share a device.
//!
//! - PEs meet in a control [`segment`](super::meet::segment), to which the unique id leads: see [`state::boot`]. Their heaps are
//!   objects of shared memory, which all of them map: [`state::heap`].
//! - PEs that a launcher has started find that segment by the name of their job: [`launch`].
//! - The members of a team meet in [`Group`](state::team::Group)s, for everything that they do together.
//! - Puts may come late, as over a network, so that a quiet that is missing shows: [`state::internal`].
//! - Whatever the library answers by the end of the process, by a wait for ever, or not at all is a violation: `report`.

pub(crate) mod basics;
pub(crate) mod calls;
pub(crate) mod exports;
pub(crate) mod launch;
pub(crate) mod state;
#[cfg(test)]
mod tests;
