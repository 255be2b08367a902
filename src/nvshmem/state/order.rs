//! The order in which streams come to something that is no memory: a team, which does one thing at a time.

use std::sync::{Arc, Weak};

use crate::cuda::{Access, Lend, LentUses, Lineage, Tracker, Used};

/// Work that uses it comes one after the other, on whatever streams.
pub(crate) struct Order {
    me: Weak<Self>,
    uses: Tracker,
    lineage: Lineage,
}

impl Order {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: me.clone(), uses: Tracker::new(), lineage: Lineage::unknown() })
    }

    /// Whether all of it is done. Does not wait.
    pub(crate) fn is_done(&self) -> crate::error::Result<bool> {
        self.uses.is_done()
    }
}

impl Used for Order {
    fn tracker(&self) -> &Tracker {
        &self.uses
    }

    fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn keep(&self) -> Option<Arc<dyn Used>> {
        self.me.upgrade().map(|order| order as Arc<dyn Used>)
    }
}

/// A use of an order by the work of a [bracket](crate::Stream::launch), or of none. A graph that is
/// captured on the stream keeps the order alive.
pub(crate) struct OrderUse<'o>(Option<(&'o Order, Access)>);

impl<'o> OrderUse<'o> {
    /// The work runs after all earlier uses, and before all later ones.
    pub(crate) fn exclusive(order: impl Into<Option<&'o Order>>) -> Self {
        Self(order.into().map(|order| (order, Access::Write)))
    }

    /// The work may run beside other shared uses.
    pub(crate) fn shared(order: impl Into<Option<&'o Order>>) -> Self {
        Self(order.into().map(|order| (order, Access::Read)))
    }
}

impl Lend for OrderUse<'_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        if let Some((order, access)) = self.0 {
            uses.add_used(order, access);
        }
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}
