//! Which other ranks of the process a rank belongs to.

use std::sync::Arc;

use super::inner::Inner;
use crate::error::Error;

impl Inner {
    /// All ranks of this process that end because of `cause`, when this one is aborted: also those of what was split off from it.
    pub(crate) fn mates(&self, cause: &Error) -> Vec<Arc<Self>> {
        self.household.fail(cause)
    }

    /// All ranks of this process that belong together: this one alone, where there are no others.
    pub(crate) fn relatives(&self) -> Vec<Arc<Self>> {
        match &self.family {
            Some(family) => family.all().collect(),
            None => self.me().upgrade().into_iter().collect(),
        }
    }

    /// The other communicators of this rank that share their resources with it, as far as they are active.
    pub(crate) fn sharers(&self) -> Vec<Arc<Self>> {
        match self.shared_lock() {
            Some(_) => {
                let mut all = self.household.all();
                all.retain(|other| other.order == self.order && other.id != self.id && other.is_active());
                all
            }
            None => Vec::new(),
        }
    }
}
