//! `ncclConfig_t`: the initialiser, and what of it the emulator obeys.

use std::ffi::{c_char, c_int};
use std::sync::LazyLock;

use super::error::{Failure, Outcome};
use super::graphs::Graphs;
use crate::bugs::{self, Nccl};
use crate::nccl::basics::variables::switch;
use crate::settings::settings;
use crate::sys::{NCCL_VERSION_CODE, ncclConfig_t};

const MAGIC: u32 = 0xcafe_beef;
/// An integer field that the user left alone.
const UNSET: c_int = c_int::MIN;
/// The channels of NCCL; no count in a config may be larger.
const MAX_CHANNELS: c_int = 64;

// Functions and fields that are newer than what it stands for are refused, or ignored; what is newer than the declarations it has not.
const _: () = assert!(bugs::NEWEST / 100 == NCCL_VERSION_CODE / 100);

/// The version that is running.
pub(crate) fn version() -> c_int {
    settings().nccl as c_int
}

/// Whether two ranks of a communicator may be on one device: NCCL_MULTI_RANK_GPU_ENABLE, from 2.30.3 on.
pub(crate) fn ranks_share_devices() -> bool {
    static ENABLED: LazyLock<bool> = LazyLock::new(|| switch("NCCL_MULTI_RANK_GPU_ENABLE").unwrap_or_default());
    bugs::ranks_may_share_devices(settings().nccl) && *ENABLED
}

/// What `NCCL_CONFIG_INITIALIZER` holds.
pub(crate) fn initial() -> ncclConfig_t {
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: MAGIC,
        version: NCCL_VERSION_CODE,
        blocking: UNSET,
        cgaClusterSize: UNSET,
        minCTAs: UNSET,
        maxCTAs: UNSET,
        netName: std::ptr::null::<c_char>(),
        splitShare: UNSET,
        trafficClass: UNSET,
        commName: std::ptr::null::<c_char>(),
        collnetEnable: UNSET,
        CTAPolicy: UNSET,
        shrinkShare: UNSET,
        nvlsCTAs: UNSET,
        nChannelsPerNetPeer: UNSET,
        nvlinkCentricSched: UNSET,
        graphUsageMode: UNSET,
        numRmaCtx: UNSET,
        maxP2pPeers: UNSET,
        graphStreamOrdering: UNSET,
        launchOrderImplicit: UNSET,
        numRmaSig: UNSET,
        rmaEagerInit: UNSET,
        hostCftMode: UNSET,
        nvlsHostMode: UNSET,
    }
}

/// What NCCL works out by itself on each rank, without comparing it: from these it lays out channels (`src/graph/connect.cc`, after the last
/// exchange), chooses algorithms, and, from 2.29 on, makes contexts. Ranks that differ connect other channels, or wait for each other.
pub(crate) const ALIKE: [&str; 4] = ["minCTAs", "maxCTAs", "CTAPolicy", "numRmaCtx"];

/// The fields that change what the emulator does, and those that ranks have to have alike. The others are checked as NCCL checks them, and
/// have no meaning here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub(crate) blocking: bool,
    pub(crate) split_share: bool,
    pub(crate) shrink_share: bool,
    pub(crate) graphs: Graphs,
    /// Whether NVLink switches may add up: nvlsHostMode, and NCCL_NVLS_ENABLE.
    pub(crate) nvls: bool,
    /// Those of [`ALIKE`], as NCCL takes them.
    pub(crate) alike: [c_int; ALIKE.len()],
}

impl Default for Config {
    fn default() -> Self {
        let graphs = Graphs::of(UNSET, UNSET);
        Self { blocking: true, split_share: false, shrink_share: false, graphs, nvls: true, alike: alike(&initial()) }
    }
}

/// What a version takes for these fields: no more channels than it has, and its defaults for what is not set.
fn alike(config: &ncclConfig_t) -> [c_int; ALIKE.len()] {
    let or = |value: c_int, default: c_int| if value == UNSET { default } else { value };
    let channels = |value, default| or(value, default).min(MAX_CHANNELS);
    let most = channels(config.maxCTAs, MAX_CHANNELS);
    [channels(config.minCTAs, 1).min(most), most, or(config.CTAPolicy, 0), or(config.numRmaCtx, 1)]
}

impl Config {
    /// The same as NCCL_COMM_BLOCKING, NCCL_COMM_SPLIT_SHARE_RESOURCES, NCCL_COMM_SHRINK_SHARE_RESOURCES and NCCL_NVLS_ENABLE have it, which NCCL reads once,
    /// and obeys before what a program asks for.
    pub(crate) fn overridden(self) -> Self {
        static BLOCKING: LazyLock<Option<bool>> = LazyLock::new(|| switch("NCCL_COMM_BLOCKING"));
        static SHARE: LazyLock<Option<bool>> = LazyLock::new(|| switch("NCCL_COMM_SPLIT_SHARE_RESOURCES"));
        static SHRINK: LazyLock<Option<bool>> = LazyLock::new(|| switch("NCCL_COMM_SHRINK_SHARE_RESOURCES"));
        static NVLS: LazyLock<Option<bool>> = LazyLock::new(|| switch("NCCL_NVLS_ENABLE"));
        Self {
            blocking: BLOCKING.unwrap_or(self.blocking),
            split_share: SHARE.unwrap_or(self.split_share),
            shrink_share: SHRINK.unwrap_or(self.shrink_share),
            graphs: self.graphs.overridden(),
            nvls: NVLS.unwrap_or(true) && self.nvls,
            alike: self.alike,
        }
    }

    /// Reads a user's config; null means the defaults.
    ///
    /// # Safety
    /// `config` is null or points to a struct that starts with its own size and is that large.
    pub(crate) unsafe fn read(config: *const ncclConfig_t) -> Outcome<Option<Self>> {
        if config.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller vouches for a size at the front.
        let size = unsafe { config.cast::<usize>().read_unaligned() };
        if size < 24 {
            return Err(Failure::argument(format!(
                "ncclConfig_t says that its size is {size} bytes, expected at least 24"
            )));
        }
        let mut known = initial();
        // SAFETY: the caller vouches for `size` bytes; no more than our own struct holds are copied.
        unsafe {
            std::ptr::copy_nonoverlapping(
                config.cast::<u8>(),
                (&raw mut known).cast::<u8>(),
                size.min(size_of::<ncclConfig_t>()),
            );
        }
        if known.magic != MAGIC {
            return Err(Failure::argument(format!(
                "ncclConfig_t was not made by NCCL_CONFIG_INITIALIZER: magic is {:#x}, expected {MAGIC:#x}",
                known.magic
            )));
        }
        Self::check(&mut known, settings().nccl)?;
        let (split_share, shrink_share) = (known.splitShare == 1, known.shrinkShare == 1);
        let graphs = Graphs::of(known.graphUsageMode, known.graphStreamOrdering);
        // The lowest bit is that of the transport.
        let nvls = known.nvlsHostMode == UNSET || known.nvlsHostMode & 1 == 0;
        Ok(Some(Self { blocking: known.blocking != 0, split_share, shrink_share, graphs, nvls, alike: alike(&known) }))
    }

    /// Forgets what a version does not know: what the header of the program did not have, it cannot have set, and the library that runs
    /// does not look at what came after it.
    fn forget(config: &mut ncclConfig_t, version: u32) {
        if version < 2_25_00 {
            config.trafficClass = UNSET;
        }
        if version < 2_27_00 {
            (config.collnetEnable, config.CTAPolicy, config.shrinkShare, config.nvlsCTAs) =
                (UNSET, UNSET, UNSET, UNSET);
        }
        if version < 2_28_00 {
            (config.nChannelsPerNetPeer, config.nvlinkCentricSched) = (UNSET, UNSET);
        }
        if version < 2_29_00 {
            (config.graphUsageMode, config.numRmaCtx) = (UNSET, UNSET);
        }
        if version < 2_30_00 {
            config.maxP2pPeers = UNSET;
        }
        if version < 2_30_05 {
            config.graphStreamOrdering = UNSET;
        }
        if version < 2_31_00 {
            (config.launchOrderImplicit, config.numRmaSig, config.rmaEagerInit, config.hostCftMode) =
                (UNSET, UNSET, UNSET, UNSET);
        }
        if version < 2_32_00 {
            config.nvlsHostMode = UNSET;
        }
    }

    fn check(config: &mut ncclConfig_t, running: Nccl) -> Outcome {
        Self::forget(config, config.version.min(running));
        let max = c_int::MAX;
        for (name, value, range) in [
            ("blocking", config.blocking, 0..=1),
            ("cgaClusterSize", config.cgaClusterSize, 0..=max),
            ("minCTAs", config.minCTAs, 1..=max),
            ("maxCTAs", config.maxCTAs, 1..=max),
            ("splitShare", config.splitShare, 0..=1),
            ("collnetEnable", config.collnetEnable, 0..=1),
            ("CTAPolicy", config.CTAPolicy, 0..=7),
            ("shrinkShare", config.shrinkShare, 0..=1),
            ("nvlsCTAs", config.nvlsCTAs, 1..=max),
            ("nChannelsPerNetPeer", config.nChannelsPerNetPeer, 1..=MAX_CHANNELS),
            ("nvlinkCentricSched", config.nvlinkCentricSched, 0..=1),
            ("graphUsageMode", config.graphUsageMode, 0..=2),
            ("numRmaCtx", config.numRmaCtx, 0..=max),
            ("maxP2pPeers", config.maxP2pPeers, 1..=max),
            ("graphStreamOrdering", config.graphStreamOrdering, 0..=1),
            ("launchOrderImplicit", config.launchOrderImplicit, 0..=1),
            ("numRmaSig", config.numRmaSig, 0..=max),
            ("rmaEagerInit", config.rmaEagerInit, 0..=1),
            ("hostCftMode", config.hostCftMode, 1..=3),
        ] {
            if value != UNSET && !range.contains(&value) {
                let (low, high) = (range.start(), range.end());
                return Err(Failure::argument(format!("config {name} is {value}, expected {low} to {high}")));
            }
        }
        if ![UNSET, 0, 1, 2, 3, max].contains(&config.nvlsHostMode) {
            return Err(Failure::argument(format!(
                "config nvlsHostMode is {}, expected 0 to 3, or all",
                config.nvlsHostMode
            )));
        }
        // Before 2.31 one that is not set counts as the smallest number that there is.
        if config.minCTAs > config.maxCTAs && (config.maxCTAs != UNSET || running < 2_31_00) {
            return Err(Failure::argument(format!(
                "config minCTAs is {}, expected at most maxCTAs, {}",
                config.minCTAs, config.maxCTAs
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &ncclConfig_t) -> Outcome<Option<Config>> {
        // SAFETY: a reference to a whole struct.
        unsafe { Config::read(config) }
    }

    #[test]
    fn the_initialiser_means_the_defaults() {
        assert_eq!(read(&initial()).expect("valid"), Some(Config::default()));
    }

    #[test]
    fn fields_are_obeyed_and_nonsense_is_named() {
        let mut config = initial();
        config.blocking = 0;
        config.splitShare = 1;
        config.shrinkShare = 1;
        assert_eq!(
            read(&config).expect("valid"),
            Some(Config { blocking: false, split_share: true, shrink_share: true, ..Config::default() })
        );
        config.blocking = 2;
        assert!(read(&config).expect_err("refused").text.contains("blocking is 2"));
        config = initial();
        config.magic = 1;
        assert!(read(&config).expect_err("refused").text.contains("magic"));
        config = initial();
        (config.minCTAs, config.maxCTAs) = (8, 4);
        assert!(read(&config).expect_err("refused").text.contains("minCTAs"));
    }

    #[test]
    fn fields_newer_than_the_callers_header_are_ignored() {
        let mut config = initial();
        config.version = 21903;
        config.nvlinkCentricSched = 77;
        assert!(read(&config).is_ok());
    }

    #[test]
    fn fields_newer_than_what_runs_are_ignored() {
        let check = |mut config, running| Config::check(&mut config, running).map_err(|error| error.text);
        type Change = fn(&mut ncclConfig_t);
        let set: [(&str, u32, Change); 7] = [
            ("graphUsageMode", 2_29_02, |config| config.graphUsageMode = 77),
            ("maxP2pPeers", 2_30_03, |config| config.maxP2pPeers = 0),
            ("graphStreamOrdering", 2_30_07, |config| config.graphStreamOrdering = 2),
            ("launchOrderImplicit", 2_31_02, |config| config.launchOrderImplicit = 2),
            ("numRmaSig", 2_31_02, |config| config.numRmaSig = -1),
            ("hostCftMode", 2_31_02, |config| config.hostCftMode = 0),
            ("nvlsHostMode", 2_32_03, |config| config.nvlsHostMode = 4),
        ];
        for (name, first, change) in set {
            let mut config = initial();
            change(&mut config);
            let text = check(config, first).expect_err(name);
            assert!(text.contains(name), "{name}: {text}");
            // The version before, of those that brought a field.
            let before = [2_28_09, 2_29_07, 2_30_03, 2_30_07, 2_31_02].into_iter().rfind(|version| *version < first);
            check(config, before.expect("there is one")).expect(name);
        }
    }
}
