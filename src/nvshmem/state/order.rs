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

/// Its place in that order, for a [bracket](crate::Stream::launch).
impl Lend for &Order {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        uses.add_used(*self, Access::Write);
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}

/// A graph that is captured on the stream keeps it, for a bracket: what calls the library is launched no more when that has ended.
pub(crate) struct Kept<'o>(pub(crate) Option<&'o Order>);

impl Lend for Kept<'_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        if let Some(order) = self.0 {
            uses.add_used(order, Access::Read);
        }
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}

/// That it is used, beside others, which come in no order.
pub(crate) struct Beside<'o>(pub(crate) &'o Order);

impl Lend for Beside<'_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        uses.add_used(self.0, Access::Read);
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}

/// A second order that work takes its place in, if there is one.
pub(crate) struct Also<'o>(pub(crate) Option<&'o Order>);

impl Lend for Also<'_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        if let Some(order) = self.0 {
            uses.add_used(order, Access::Write);
        }
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}
