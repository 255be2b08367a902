//! What is known not to work yet: programs leave it out, and each entry goes when its row is mended.

/// Something that programs leave out until it is mended. `GPUCOMM_RANDOM_TRY=windows-at-odd-addresses` has it drawn all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// NCCL 2.27.3 to 2.29.7 gives wrong data for windows at addresses that are no multiple of 4.
    WindowsAtOddAddresses,
    /// Dropping pinned memory waits for all devices, also where a peer's collective waits for this very thread.
    PinnedDrops,
    /// A group of more calls than may be in flight is refused.
    LargeGroups,
}

impl NotYet {
    fn name(self) -> &'static str {
        match self {
            Self::WindowsAtOddAddresses => "windows-at-odd-addresses",
            Self::PinnedDrops => "pinned-drops",
            Self::LargeGroups => "large-groups",
        }
    }

    /// Whether programs may have it.
    pub fn mended(self) -> bool {
        std::env::var("GPUCOMM_RANDOM_TRY").is_ok_and(|names| names.split(',').any(|name| name == self.name()))
    }
}
