//! What some fields of a configuration may be, by name.

use std::ffi::c_int;
#[cfg(nccl_ge_2_32)]
use std::ops::BitOr;

#[cfg(nccl_ge_2_31)]
use crate::sys;

/// `NCCL_CTA_POLICY_…`: what thread blocks a communicator takes, or a call.
#[cfg(nccl_ge_2_27)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CtaPolicy {
    /// `NCCL_CTA_POLICY_DEFAULT`: what NCCL takes for the fastest.
    Default,
    /// `NCCL_CTA_POLICY_EFFICIENCY`: fewer thread blocks, where that costs little.
    Efficiency,
    /// `NCCL_CTA_POLICY_ZERO`: none, where copy engines can do the work. No communicator is made with it here, and no call: ranks agree on
    /// too little for it, and no abort reaches what waits ([`copy-engines`](crate::known_bugs::TABLE)).
    CopyEngines,
}

#[cfg(nccl_ge_2_27)]
impl CtaPolicy {
    /// As C has it.
    pub(crate) const fn raw(self) -> c_int {
        match self {
            Self::Default => 0,
            Self::Efficiency => 1,
            Self::CopyEngines => COPY_ENGINES,
        }
    }
}

/// `NCCL_CTA_POLICY_ZERO`: a bit, since NCCL 2.30.
#[cfg(nccl_ge_2_27)]
pub(crate) const COPY_ENGINES: c_int = 2;

/// `graphUsageMode`: which part of a communicator's operations is captured into CUDA graphs.
///
/// With [`None`](Self::None) and [`One`](Self::One) NCCL saves the events by which it keeps graphs in order with all else.
#[cfg(nccl_ge_2_29)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GraphUsage {
    /// None: captures are refused.
    None,
    /// All, into one graph: as long as there is one, or the capture of one, other captures are refused, and operations that are not
    /// captured. Launches come after what was enqueued before, on whatever streams. When the graph has been dropped, the next
    /// operation, captured or not, first waits for the launches that are under way; so does a revoke, which becomes an abort where they hang.
    /// It shares no [resources](crate::nccl::Config::with_split_share): what does is never in one graph, and captures are refused.
    One,
    /// All into several graphs, or some into graphs, and others not.
    Mixed,
}

#[cfg(nccl_ge_2_29)]
impl GraphUsage {
    pub(crate) const fn raw(self) -> c_int {
        match self {
            Self::None => 0,
            Self::One => 1,
            Self::Mixed => MIXED,
        }
    }
}

/// What NCCL takes where nothing is said.
pub(crate) const MIXED: c_int = 2;

/// `ncclHostCftMode_t`: whether a communicator has what the host can ask of the Compute Fabric Transport.
#[cfg(nccl_ge_2_31)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostCft {
    /// `ncclHostCftEnable`: its endpoints are made with the first window; an error where that fails.
    Enable,
    /// `ncclHostCftDisable`: it has none.
    Disable,
    /// `ncclHostCftFallback`: as `Enable`, and none where that fails.
    Fallback,
}

#[cfg(nccl_ge_2_31)]
impl HostCft {
    pub(crate) const fn raw(self) -> c_int {
        match self {
            Self::Enable => sys::ncclHostCftMode_t::ncclHostCftEnable.0,
            Self::Disable => sys::ncclHostCftMode_t::ncclHostCftDisable.0,
            Self::Fallback => sys::ncclHostCftMode_t::ncclHostCftFallback.0,
        }
    }
}

/// `ncclNvlsHostMode_t`: what of NVLink SHARP NCCL may use from the host. Parts that are off go together with `|`.
///
/// ```
/// use gpucomm::nccl::NvlsHost;
///
/// let neither = NvlsHost::WITHOUT_TRANSPORT | NvlsHost::WITHOUT_SYMMETRIC_MULTIMEM;
/// assert_ne!(neither, NvlsHost::OFF);
/// assert_eq!(NvlsHost::OFF | NvlsHost::WITHOUT_TRANSPORT, NvlsHost::OFF);
/// ```
#[cfg(nccl_ge_2_32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NvlsHost(c_int);

#[cfg(nccl_ge_2_32)]
impl NvlsHost {
    /// `ncclNvlsHostModeEnable`: all of it.
    pub const ON: Self = Self(sys::ncclNvlsHostMode_t::ncclNvlsHostModeEnable.0);
    /// `ncclNvlsHostModeDisableTransport`: not for collectives, nor for buffers that are registered.
    pub const WITHOUT_TRANSPORT: Self = Self(sys::ncclNvlsHostMode_t::ncclNvlsHostModeDisableTransport.0);
    /// `ncclNvlsHostModeDisableSymmetricMultimem`: not by the kernels for windows.
    pub const WITHOUT_SYMMETRIC_MULTIMEM: Self =
        Self(sys::ncclNvlsHostMode_t::ncclNvlsHostModeDisableSymmetricMultimem.0);
    /// `ncclNvlsHostModeDisable`: none of it, whatever later versions have.
    pub const OFF: Self = Self(sys::ncclNvlsHostMode_t::ncclNvlsHostModeDisable.0);

    pub(crate) const fn raw(self) -> c_int {
        self.0
    }
}

#[cfg(nccl_ge_2_32)]
impl BitOr for NvlsHost {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
