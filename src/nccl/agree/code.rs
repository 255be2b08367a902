//! Numbers for what ranks come to: operations, and points where they do something together.

pub(crate) const ALL_REDUCE: u8 = 1;
pub(crate) const REDUCE: u8 = 2;
pub(crate) const REDUCE_SCATTER: u8 = 3;
pub(crate) const BROADCAST: u8 = 4;
pub(crate) const ALL_GATHER: u8 = 5;
pub(crate) const ALL_TO_ALL: u8 = 6;
pub(crate) const GATHER: u8 = 7;
pub(crate) const SCATTER: u8 = 8;
pub(crate) const SEND: u8 = 9;
pub(crate) const RECV: u8 = 10;

/// Those to which nobody else comes.
pub(crate) const PUT_SIGNAL: u8 = 11;
pub(crate) const SIGNAL: u8 = 12;
pub(crate) const WAIT_SIGNAL: u8 = 13;

/// The registration of a window.
pub(crate) const REGISTER: u8 = 32;

/// An allocation of all ranks that makes no window, for its size.
pub(crate) const ALLOC_LARGE: u8 = 40;

/// After an allocation by checked ranks: whether all have the memory.
pub(crate) const ALLOCATED: u8 = 43;

/// A point at which windows retire, and nothing else happens.
pub(crate) const RECLAIM: u8 = 33;

/// The registration of memory, by each rank for itself.
pub(crate) const SHOW: u8 = 35;

/// A window over memory that there is, by each rank over its own.
pub(crate) const WINDOW: u8 = 36;

/// The first one-sided operation, of all ranks.
pub(crate) const ONE_SIDED: u8 = 37;

/// The split of a communicator.
pub(crate) const SPLIT: u8 = 34;

/// A communicator gives back memory.
pub(crate) const SUSPEND: u8 = 38;

/// Others come into a communicator.
pub(crate) const GROW: u8 = 41;

/// A communicator that is suspended goes on.
pub(crate) const RESUME: u8 = 42;

/// The launch of a graph.
pub(crate) const LAUNCH: u8 = 39;

/// Added to the number of an operation that is simulated: ranks come to it as to a point.
pub(crate) const SIMULATED: u8 = 0x80;

/// The method of what has this number.
pub(crate) fn name(code: u8) -> &'static str {
    match code & !SIMULATED {
        ALL_REDUCE => "all_reduce",
        REDUCE => "reduce",
        REDUCE_SCATTER => "reduce_scatter",
        BROADCAST => "broadcast",
        ALL_GATHER => "all_gather",
        ALL_TO_ALL => "all_to_all",
        GATHER => "gather",
        SCATTER => "scatter",
        SEND => "send",
        RECV => "recv",
        PUT_SIGNAL => "put_signal",
        SIGNAL => "signal",
        WAIT_SIGNAL => "wait_signal",
        ONE_SIDED => "prepare_one_sided",
        REGISTER | ALLOC_LARGE | ALLOCATED => "alloc",
        RECLAIM => "reclaim",
        SPLIT => "split",
        SHOW => "register",
        SUSPEND => "suspend",
        GROW => "grow",
        RESUME => "resume",
        WINDOW => "window",
        LAUNCH => "Graph::launch",
        _ => "an unknown operation",
    }
}
