//! What is known not to work yet: programs leave it out, and each entry goes when its row is mended.

/// Something that programs leave out until it is mended. `GPUCOMM_RANDOM_TRY=drops,grouping` has it drawn all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// Dropping pinned memory, or memory of NCCL, waits for devices, also where a collective on them waits for this very thread.
    Drops,
    /// The first messages of two ranks connect them, and are taken for one another where the ranks group them differently.
    FirstMessages,
    /// A group of more calls than may be in flight is refused.
    LargeGroups,
    /// Ranks that group collectives differently are not told.
    Grouping,
}

impl NotYet {
    fn name(self) -> &'static str {
        match self {
            Self::Drops => "drops",
            Self::FirstMessages => "first-messages",
            Self::LargeGroups => "large-groups",
            Self::Grouping => "grouping",
        }
    }

    /// Whether programs may have it.
    pub fn mended(self) -> bool {
        std::env::var("GPUCOMM_RANDOM_TRY").is_ok_and(|names| names.split(',').any(|name| name == self.name()))
    }
}
