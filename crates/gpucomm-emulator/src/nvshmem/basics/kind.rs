//! What PEs do together, or wait for.

macro_rules! kinds {
    ($($kind:ident = $code:literal $name:literal,)*) => {
        /// Kinds of calls.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind { $($kind = $code),* }

        impl Kind {
            /// The one that is told by such a number.
            pub(crate) fn from_code(code: u64) -> Option<Self> {
                match code {
                    $($code => Some(Self::$kind),)*
                    _ => None,
                }
            }

            /// In words.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }
        }
    };
}

kinds! {
    Init = 1 "the start",
    Finalize = 2 "finalize",
    Malloc = 3 "malloc",
    Calloc = 4 "calloc",
    Align = 5 "align",
    Free = 6 "free",
    Register = 7 "buffer_register_symmetric",
    Unregister = 8 "buffer_unregister_symmetric",
    Barrier = 9 "barrier",
    Sync = 10 "sync",
    Split = 11 "team_split",
    TeamInit = 12 "team_init",
    Broadcast = 13 "broadcast",
    Fcollect = 14 "fcollect",
    AllToAll = 15 "alltoall",
    Reduce = 16 "reduce",
    ReduceScatter = 17 "reducescatter",
    WaitUntil = 18 "wait_until",
    Bootstrap = 19 "the bootstrap",
    QueuePairs = 20 "qp_create",
}
