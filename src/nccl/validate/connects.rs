//! Whether NCCL connects ranks in a call.

/// What was found of a call, or of a group, as it was validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connects {
    /// NCCL has connected the ranks before, or needs nothing for that.
    Nothing,
    /// It is the first of its kind. NCCL connects the ranks in it, so they meet before it.
    Ranks,
}

impl Connects {
    /// Of a call that `is_first` of its kind.
    #[inline]
    pub(super) fn if_first(is_first: bool) -> Self {
        if is_first { Self::Ranks } else { Self::Nothing }
    }
}
