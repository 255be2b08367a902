//! Configurations, drawn: any that all ranks may have, and that the running NCCL knows.

use fastrand::Rng;
#[cfg(nccl_ge_2_27)]
use gpucomm::nccl::CtaPolicy;
#[cfg(nccl_ge_2_29)]
use gpucomm::nccl::GraphUsage;
#[cfg(nccl_ge_2_31)]
use gpucomm::nccl::HostCft;
#[cfg(nccl_ge_2_32)]
use gpucomm::nccl::NvlsHost;
use gpucomm::nccl::{self, Config};
use gpucomm::version::Version;

/// What a configuration is drawn from.
///
/// Left out is what other steps rest on: whether parts share, how many peers messages have, in which order kernels start, and that graphs and
/// the rest may be mixed; and the network, of which a machine may have none.
#[derive(Clone, Copy)]
pub struct Settings(u64);

impl Settings {
    pub fn draw(rng: &mut Rng) -> Self {
        Self(rng.u64(..))
    }

    /// The same each time. Fields stand in the order in which versions of NCCL brought them, so an older one has the first of them.
    pub fn config(self) -> Config {
        let (mut rng, running) = (Rng::with_seed(self.0), nccl::version().expect("a version of NCCL"));
        // One in three, where it is known.
        let mut take = |major, minor, patch| -> Option<i32> {
            let (wanted, number) = (rng.u32(..3) == 0, rng.i32(0..1 << 20));
            (wanted && running >= Version::new(major, minor, patch)).then_some(number)
        };
        let mut config = Config::new();
        if let Some(number) = take(2, 17, 1) {
            config = config.with_cga_cluster_size(number % 5);
        }
        if let Some(number) = take(2, 17, 1) {
            config = config.with_min_ctas(1 + number % 4).with_max_ctas(4 + number / 4 % 13);
        }
        #[cfg(nccl_ge_2_26)]
        if let Some(number) = take(2, 26, 2) {
            config = config.with_traffic_class(number % 4);
        }
        #[cfg(nccl_ge_2_27)]
        {
            if let Some(number) = take(2, 27, 3) {
                config = config.with_name(&format!("random {number}")).expect("a name");
            }
            if let Some(number) = take(2, 27, 3) {
                config = config.with_collnet_enable(number % 2 == 0);
            }
            if let Some(number) = take(2, 27, 3) {
                config = config.with_cta_policy([CtaPolicy::Default, CtaPolicy::Efficiency][number as usize % 2]);
            }
            if let Some(number) = take(2, 27, 3) {
                config = config.with_nvls_ctas(1 + number % 16);
            }
        }
        #[cfg(nccl_ge_2_28)]
        {
            if let Some(number) = take(2, 28, 3) {
                config = config.with_channels_per_net_peer(1 + number % 8);
            }
            if let Some(number) = take(2, 28, 3) {
                config = config.with_nvlink_centric_sched(number % 2 == 0);
            }
        }
        #[cfg(nccl_ge_2_29)]
        {
            if take(2, 29, 2).is_some() {
                config = config.with_graph_usage(GraphUsage::Mixed);
                #[cfg(nccl_ge_2_30_7)]
                if running >= Version::new(2, 30, 7) {
                    config = config.with_graph_stream_ordering(true);
                }
            }
            if let Some(number) = take(2, 29, 2) {
                config = config.with_num_rma_ctx(1 + number % 3);
            }
        }
        #[cfg(nccl_ge_2_31)]
        {
            if let Some(number) = take(2, 31, 2) {
                config = config.with_num_rma_sig(1 + number % 3);
            }
            if let Some(number) = take(2, 31, 2) {
                config = config.with_rma_eager_init(number % 2 == 0);
            }
            if let Some(number) = take(2, 31, 2) {
                config = config.with_host_cft([HostCft::Fallback, HostCft::Disable][number as usize % 2]);
            }
        }
        #[cfg(nccl_ge_2_32)]
        if take(2, 32, 3).is_some() {
            config = config.with_nvls_host(NvlsHost::OFF);
        }
        config
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.config().fmt(f)
    }
}
