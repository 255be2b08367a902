//! The numbers of a configuration: which version brought each, and what it may be.

use std::ffi::c_int;
use std::ops::RangeInclusive;

use crate::error::{Error, Result};
use crate::sys;
use crate::version::{self, Version};

/// The channels of NCCL, and so the most thread blocks: its own default for how many there may be.
pub(super) const CHANNELS: c_int = 64;

/// A field that nobody has set: `NCCL_CONFIG_UNDEF_INT`.
pub(super) const UNSET: c_int = c_int::MIN;

macro_rules! numbers {
    ($($(#[$cfg:meta])? $name:ident, $c:ident, $range:expr, $first:expr;)*) => {
        /// What was set, by the names of the methods that set it.
        #[derive(Debug, Clone, Default)]
        pub(super) struct Numbers {
            $($(#[$cfg])? pub(super) $name: Option<c_int>,)*
        }

        impl Numbers {
            /// Refuses what the running NCCL would ignore, or refuse without a name.
            pub(super) fn check(&self, operation: &'static str) -> Result<()> {
                $($(#[$cfg])? check(operation, stringify!($name), self.$name, $range, $first)?;)*
                Ok(())
            }

            /// Sets the fields of the C struct.
            pub(super) fn write(&self, raw: &mut sys::ncclConfig_t) {
                $($(#[$cfg])? if let Some(value) = self.$name {
                    raw.$c = value;
                })*
            }

            /// What the C struct has of them, by name.
            pub(super) fn read(raw: &sys::ncclConfig_t) -> Vec<(&'static str, c_int)> {
                let all = [$($(#[$cfg])? (stringify!($name), raw.$c),)*];
                all.into_iter().filter(|(_, number)| *number != UNSET).collect()
            }

            /// These, and where one was not set, that of `base`.
            pub(super) fn over(&self, base: &Self) -> Self {
                Self { $($(#[$cfg])? $name: self.$name.or(base.$name),)* }
            }
        }
    };
}

const FLAG: RangeInclusive<c_int> = 0..=1;
#[cfg(nccl_ge_2_26)]
const COUNT: RangeInclusive<c_int> = 0..=c_int::MAX;
const ONE_OR_MORE: RangeInclusive<c_int> = 1..=c_int::MAX;
/// Of what only methods make that know what it may be.
#[cfg(nccl_ge_2_27)]
const NAMED: RangeInclusive<c_int> = COUNT;

numbers! {
    cga_cluster_size, cgaClusterSize, 0..=8, (2, 17, 1);
    min_ctas, minCTAs, ONE_OR_MORE, (2, 17, 1);
    max_ctas, maxCTAs, ONE_OR_MORE, (2, 17, 1);
    split_share, splitShare, FLAG, (2, 18, 1);
    #[cfg(nccl_ge_2_26)] traffic_class, trafficClass, COUNT, (2, 26, 2);
    #[cfg(nccl_ge_2_27)] collnet_enable, collnetEnable, FLAG, (2, 27, 3);
    #[cfg(nccl_ge_2_27)] cta_policy, CTAPolicy, NAMED, (2, 27, 3);
    #[cfg(nccl_ge_2_27)] shrink_share, shrinkShare, FLAG, (2, 27, 3);
    #[cfg(nccl_ge_2_27)] nvls_ctas, nvlsCTAs, ONE_OR_MORE, (2, 27, 3);
    #[cfg(nccl_ge_2_28)] channels_per_net_peer, nChannelsPerNetPeer, 1..=CHANNELS, (2, 28, 3);
    #[cfg(nccl_ge_2_28)] nvlink_centric_sched, nvlinkCentricSched, FLAG, (2, 28, 3);
    #[cfg(nccl_ge_2_29)] graph_usage, graphUsageMode, NAMED, (2, 29, 2);
    #[cfg(nccl_ge_2_29)] num_rma_ctx, numRmaCtx, COUNT, (2, 29, 2);
    #[cfg(nccl_ge_2_30)] max_p2p_peers, maxP2pPeers, ONE_OR_MORE, (2, 30, 3);
    #[cfg(nccl_ge_2_30_7)] graph_stream_ordering, graphStreamOrdering, FLAG, (2, 30, 7);
    #[cfg(nccl_ge_2_31)] launch_order_implicit, launchOrderImplicit, FLAG, (2, 31, 2);
    #[cfg(nccl_ge_2_31)] num_rma_sig, numRmaSig, COUNT, (2, 31, 2);
    #[cfg(nccl_ge_2_31)] rma_eager_init, rmaEagerInit, FLAG, (2, 31, 2);
    #[cfg(nccl_ge_2_31)] host_cft, hostCftMode, NAMED, (2, 31, 2);
    #[cfg(nccl_ge_2_32)] nvls_host, nvlsHostMode, NAMED, (2, 32, 3);
}

fn check(
    operation: &'static str,
    name: &'static str,
    value: Option<c_int>,
    range: RangeInclusive<c_int>,
    (major, minor, patch): (u32, u32, u32),
) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    version::needs(operation, Version::new(major, minor, patch))
        .map_err(|error| error.noted(format_args!("for {name}")))?;
    if range.contains(&value) {
        return Ok(());
    }
    let (low, high) = range.into_inner();
    let expected = if high == c_int::MAX { format!("at least {low}") } else { format!("{low} to {high}") };
    Err(Error::argument(operation, name, expected, value))
}
