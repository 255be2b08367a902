//! What a communicator says of graphs: `graphUsageMode` and `graphStreamOrdering` of its configuration, as NCCL 2.30.7 takes them.
//!
//! Where captured operations are mixed with others, NCCL puts an event between them: whatever is launched comes after what was launched before,
//! from whatever stream. Without, nothing does so but the program: a graph and what is not captured, or two graphs, use the same channels.
//! NCCL does not look what a communicator is used for, nor whether what it leaves to the program is in order.

use std::ffi::c_int;
use std::sync::LazyLock;

use crate::nccl::basics::variables::switch;
use crate::report;
use crate::settings::settings;

/// Which operations of a communicator are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    /// None: `graphUsageMode` 0. NCCL treats it as [`One`](Self::One).
    None,
    /// All that is on its way at one time is of one graph, or nothing of it is: 1, or NCCL_GRAPH_MIXING_SUPPORT=0.
    One,
    /// Any: 2.
    Mixed,
}

/// What a communicator says of graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Graphs {
    pub(crate) usage: Usage,
    /// NCCL puts the operations of one capture in order: `graphStreamOrdering`. Where it does not, it keeps the launches of graphs in order.
    pub(crate) ordered: bool,
}

/// The version that brought `graphStreamOrdering`.
const ORDERING: u32 = 2_30_05;

impl Graphs {
    /// What these fields say, whose values were checked.
    pub(super) fn of(usage: c_int, ordering: c_int) -> Self {
        let usage = match usage {
            0 => Usage::None,
            1 => Usage::One,
            _ => Usage::Mixed,
        };
        Self { usage, ordered: ordering != 0 }
    }

    /// The same as NCCL_GRAPH_MIXING_SUPPORT and NCCL_GRAPH_STREAM_ORDERING have it, and as NCCL goes on with it.
    pub(super) fn overridden(self) -> Self {
        static MIXING: LazyLock<Option<bool>> = LazyLock::new(|| switch("NCCL_GRAPH_MIXING_SUPPORT"));
        static ORDERED: LazyLock<Option<bool>> = LazyLock::new(|| switch("NCCL_GRAPH_STREAM_ORDERING"));
        let usage = MIXING.map_or(self.usage, |mixing| if mixing { Usage::Mixed } else { Usage::One });
        let ordered = ORDERED.filter(|_| settings().nccl >= ORDERING).unwrap_or(self.ordered);
        Self { usage, ordered }.settled()
    }

    fn settled(self) -> Self {
        if self.usage == Usage::Mixed && !self.ordered {
            report::line("graphStreamOrdering 0 goes with a graphUsageMode other than 2 only: NCCL takes it for 1");
            return Self { ordered: true, ..self };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_its_own_goes_with_no_mixing() {
        let of = |usage, ordering| Graphs::of(usage, ordering).settled();
        assert_eq!(of(c_int::MIN, c_int::MIN), Graphs { usage: Usage::Mixed, ordered: true });
        assert_eq!(of(c_int::MIN, 0), Graphs { usage: Usage::Mixed, ordered: true });
        assert_eq!(of(2, 0), Graphs { usage: Usage::Mixed, ordered: true });
        assert_eq!(of(1, 0), Graphs { usage: Usage::One, ordered: false });
        assert_eq!(of(0, 0), Graphs { usage: Usage::None, ordered: false });
        assert_eq!(of(1, 1), Graphs { usage: Usage::One, ordered: true });
    }
}
