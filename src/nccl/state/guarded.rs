//! What the lock of a communicator guards.

use super::streams::Streams;
use super::works::Works;
use crate::nccl::agree::regroup::Plan;

/// What the lock guards.
#[derive(Debug, Default)]
pub(crate) struct Guarded {
    pub(crate) streams: Streams,
    pub(crate) works: Works,
    /// How often this rank has come to a point where windows retire.
    #[cfg(nccl_ge_2_27)]
    pub(crate) points: u64,
    /// How often this rank has come to a split.
    pub(crate) splits: u64,
    /// How often others were made of it out of that sequence, for each plan.
    pub(crate) regroups: Vec<(Plan, u64)>,
}

impl Guarded {
    /// What [`Guarded::regroup`] would say next.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn times(&self, plan: &Plan) -> u64 {
        let plan = plan.sequence();
        self.regroups.iter().find(|(known, _)| *known == plan).map_or(0, |(_, times)| times + 1)
    }

    /// How often others were made of it by `plan` before.
    pub(crate) fn regroup(&mut self, plan: &Plan) -> u64 {
        let plan = plan.sequence();
        if let Some((_, times)) = self.regroups.iter_mut().find(|(known, _)| *known == plan) {
            *times += 1;
            return *times;
        }
        self.regroups.push((plan, 0));
        0
    }
}
