//! What is known not to work yet: programs leave it out, and each entry goes when its row is mended.

/// Something that programs leave out until it is mended. `GPUCOMM_RANDOM_TRY=first-messages,grouping` has it drawn all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// The first messages of two ranks connect them, and are taken for one another where the ranks group them differently.
    FirstMessages,
    /// Ranks that group collectives differently are not told.
    Grouping,
}

impl NotYet {
    fn name(self) -> &'static str {
        match self {
            Self::FirstMessages => "first-messages",
            Self::Grouping => "grouping",
        }
    }

    /// Whether programs may have it.
    pub fn mended(self) -> bool {
        std::env::var("GPUCOMM_RANDOM_TRY").is_ok_and(|names| names.split(',').any(|name| name == self.name()))
    }
}
