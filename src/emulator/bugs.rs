//! Known bugs of the versions of NCCL that the emulator stands for, on request: `GPUCOMM_EMULATOR_BUGS` names them, with commas between.

/// Which bugs there are; none unless asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::emulator) struct Bugs {
    /// `misaligned-windows`: kernels for small messages between windows read beside addresses that are no multiple of four.
    pub misaligned_windows: bool,
    /// `one-rank-premulsum`: the kernel for pre-multiplied sums of one rank leaves elements at the end out.
    pub one_rank_premulsum: bool,
}

impl Bugs {
    /// What the variable may hold.
    pub const EXPECTED: &'static str =
        "names of bugs with commas between, of misaligned-windows and one-rank-premulsum";

    pub fn parse(text: &str) -> Option<Self> {
        let mut bugs = Self::default();
        for name in text.split(',') {
            match name.trim() {
                "misaligned-windows" => bugs.misaligned_windows = true,
                "one-rank-premulsum" => bugs.one_rank_premulsum = true,
                _ => return None,
            }
        }
        Some(bugs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let both = Bugs { misaligned_windows: true, one_rank_premulsum: true };
        assert_eq!(Bugs::parse("one-rank-premulsum, misaligned-windows"), Some(both));
        assert!(!Bugs::parse("misaligned-windows").unwrap().one_rank_premulsum);
        assert_eq!(Bugs::parse("all"), None);
    }
}
