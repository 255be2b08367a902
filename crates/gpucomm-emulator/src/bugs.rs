//! The version of NCCL that the emulator stands for, and its known bugs, on request: `GPUCOMM_EMULATOR_NCCL` says which version,
//! `GPUCOMM_EMULATOR_BUGS` names bugs, with commas between. One that the version does not have is not there.

use std::ops::RangeInclusive;

/// A version of NCCL, as `ncclGetVersion` says it: 22809 is 2.28.9.
pub(crate) type Nccl = u32;

/// The version that it stands for unless it is told otherwise: one that was compared with GPUs.
pub(crate) const NCCL: Nccl = 2_28_09;

/// Those that it can stand for. Older ones cannot revoke a communicator.
const VERSIONS: RangeInclusive<Nccl> = 2_28_07..=NEWEST;

/// The newest: of the declarations, whatever the patch.
pub(crate) const NEWEST: Nccl = 2_32_99;

/// What the variable may hold.
pub(crate) const EXPECTED: &str = "a version of NCCL, such as 2.29.7, from 2.28.7 to 2.32";

/// The version of NVSHMEM that it stands for unless it is told otherwise: that of the declarations, and the newest.
pub(crate) const NVSHMEM: u32 = 3_08_00;

/// What the variable for that may hold.
pub(crate) const EXPECTED_NVSHMEM: &str = "a version of NVSHMEM, such as 3.4.5, from 3.4.5 to 3.8.0";

/// A version of NVSHMEM.
pub(crate) fn nvshmem(text: &str) -> Option<u32> {
    numbers(text).filter(|version| (3_04_05..=NVSHMEM).contains(version))
}

/// A version of NCCL.
pub(crate) fn version(text: &str) -> Option<Nccl> {
    numbers(text).filter(|version| VERSIONS.contains(version))
}

/// A version of three numbers, or two.
fn numbers(text: &str) -> Option<u32> {
    let mut parts = text.split('.').map(|part| part.parse().ok().filter(|part: &Nccl| *part < 100));
    let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    let version = major * 1_00_00 + minor * 1_00 + patch;
    parts.next().is_none().then_some(version)
}

/// A version, as people write it.
#[cfg(feature = "nccl")]
pub(crate) fn text(version: Nccl) -> String {
    format!("{}.{}.{}", version / 1_00_00, version / 1_00 % 1_00, version % 1_00)
}

/// Which bugs there are; none unless asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bugs {
    /// `misaligned-windows`: kernels for small messages between windows read beside addresses that are no multiple of four.
    pub misaligned_windows: bool,
    /// The same where only one of the two buffers is a window.
    pub misaligned_with_one_window: bool,
    /// `one-rank-premulsum`: the kernel for pre-multiplied sums of one rank leaves elements at the end out.
    pub one_rank_premulsum: bool,
    /// `window-averages`: there is no kernel for averages between windows.
    pub window_averages: bool,
}

impl Bugs {
    /// What the variable may hold.
    pub const EXPECTED: &'static str =
        "names of bugs with commas between, of misaligned-windows, one-rank-premulsum and window-averages";

    pub fn parse(text: &str) -> Option<Self> {
        let mut bugs = Self::default();
        for name in text.split(',') {
            match name.trim() {
                "misaligned-windows" => (bugs.misaligned_windows, bugs.misaligned_with_one_window) = (true, true),
                "one-rank-premulsum" => bugs.one_rank_premulsum = true,
                "window-averages" => bugs.window_averages = true,
                _ => return None,
            }
        }
        Some(bugs)
    }

    /// Those among them that this version has.
    pub fn of(self, nccl: Nccl) -> Self {
        let has = |bug: bool, versions: RangeInclusive<Nccl>| bug && versions.contains(&nccl);
        Self {
            misaligned_windows: has(self.misaligned_windows, 2_27_03..=2_29_07),
            misaligned_with_one_window: has(self.misaligned_with_one_window, 2_29_02..=2_29_07),
            one_rank_premulsum: has(self.one_rank_premulsum, 2_19_01..=2_29_06),
            window_averages: has(self.window_averages, 2_30_03..=Nccl::MAX),
        }
    }
}

/// Whether the memory of windows is lost that a communicator has when it ends. Nobody has to ask for that.
#[cfg(feature = "nccl")]
pub(crate) fn ends_keep_windows(nccl: Nccl) -> bool {
    nccl < 2_29_07
}

/// Whether the variable exists that lets two ranks of a communicator be on one device.
#[cfg(feature = "nccl")]
pub(crate) fn ranks_may_share_devices(nccl: Nccl) -> bool {
    nccl >= 2_30_03
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let both = Bugs {
            misaligned_windows: true,
            misaligned_with_one_window: true,
            one_rank_premulsum: true,
            window_averages: false,
        };
        assert_eq!(Bugs::parse("one-rank-premulsum, misaligned-windows"), Some(both));
        assert!(!Bugs::parse("misaligned-windows").unwrap().one_rank_premulsum);
        assert_eq!(Bugs::parse("all"), None);
    }

    #[test]
    fn versions() {
        for (text, want) in [("2.28.9", 22809), ("2.29", 22900), ("2.30.7", 23007), ("2.32.3", 23203)] {
            assert_eq!(version(text), Some(want), "{text}");
        }
        for nonsense in ["", "2", "2.28.6", "2.33", "2.29.7.1", "2.29.x", "3.0", "22907", "2.029.100"] {
            assert_eq!(version(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_version_has_its_bugs() {
        let all = Bugs::parse("misaligned-windows,one-rank-premulsum,window-averages").unwrap();
        let of = |nccl| {
            let bugs = all.of(nccl);
            [bugs.misaligned_windows, bugs.misaligned_with_one_window, bugs.one_rank_premulsum, bugs.window_averages]
        };
        assert_eq!(of(22809), [true, false, true, false]);
        assert_eq!(of(22902), [true, true, true, false]);
        assert_eq!(of(22907), [true, true, false, false]);
        assert_eq!(of(23003), [false, false, false, true]);
        assert_eq!(Bugs::default().of(22902), Bugs::default());
    }
}
