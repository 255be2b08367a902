//! What can be set in a configuration, by methods of the same names.

use std::ffi::CString;

#[cfg(nccl_ge_2_27)]
use super::choices::CtaPolicy;
#[cfg(nccl_ge_2_29)]
use super::choices::GraphUsage;
#[cfg(nccl_ge_2_31)]
use super::choices::HostCft;
#[cfg(nccl_ge_2_32)]
use super::choices::NvlsHost;
use super::config::Config;
use crate::error::{Error, Result};
use crate::name::Name;

/// Fields of `ncclConfig_t`. One that the running NCCL does not know is an [`Error::Unsupported`], and a number that NCCL would not take an
/// [`Error::InvalidArgument`], when a communicator is made.
impl Config {
    /// `cgaClusterSize`: thread blocks in a cluster, 0 to 8.
    pub fn with_cga_cluster_size(mut self, blocks: i32) -> Self {
        self.numbers.cga_cluster_size = Some(blocks);
        self
    }

    /// `minCTAs`: the fewest thread blocks that a kernel of this communicator uses, 1 or more; not
    /// more than [`Config::with_max_ctas`].
    pub fn with_min_ctas(mut self, blocks: i32) -> Self {
        self.numbers.min_ctas = Some(blocks);
        self
    }

    /// `maxCTAs`: the most thread blocks that a kernel of this communicator uses, 1 or more. NCCL has 64 at most.
    pub fn with_max_ctas(mut self, blocks: i32) -> Self {
        self.numbers.max_ctas = Some(blocks);
        self
    }

    /// `netName`: the network module to use, such as `IB` or `Socket`. A NUL in the name is an error.
    ///
    /// ```
    /// # use gpucomm::nccl::Config;
    /// # fn main() -> gpucomm::Result<()> {
    /// let config = Config::new().with_net_name("Socket")?;
    /// // A name has no zero byte.
    /// assert!(config.with_net_name("Sock\0et").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a name with a zero byte.
    pub fn with_net_name(mut self, name: &str) -> Result<Self> {
        self.net_name = Some(c_string("net_name", name)?);
        Ok(self)
    }

    /// `splitShare`: whether communicators that are [split](crate::nccl::Communicator::split) from this one, and from those, share its
    /// resources: NCCL's channels, threads, and memory on the device. `NCCL_COMM_SPLIT_SHARE_RESOURCES` comes first. A part then takes
    /// less memory and starts sooner. To NCCL, those that share are one in some ways:
    ///
    /// - One thread is inside one of them at a time. A call on one waits for calls that other threads make on any.
    /// - The device does what one rank has issued on them one after the other, on whatever streams.
    /// - All ranks issue what they do on any of them in one order, as far as it concerns them both. In a clique each pair of ranks compares
    ///   that, and where they differ, all get [`Error::Disagreement`](crate::Error::Disagreement); ranks of several processes have promised
    ///   it ([`Communicator::init_rank`](crate::nccl::Communicator::init_rank)). In a [`group`](crate::nccl::group) they have an order
    ///   of their own, what was split off after what it was split off from, whatever the order of the calls, and each starts by itself.
    /// - They end together. NCCL has one flag for all of them that stops kernels and threads, and an abort of any raises it: so where one is
    ///   aborted, or fails, all are, with all ranks of this process, and the errors of the others name it. One that is closed or dropped
    ///   when its work is done keeps what NCCL has for it, its windows included, until the last of them is: it stays
    ///   [`State::Closing`](crate::nccl::CommState::Closing) until then. A program that splits and closes again and again has no use for that.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::nccl::{Config, InitOptions};
    /// use gpucomm::{Clique, Device};
    ///
    /// let options = InitOptions::new().with_config(Config::new().with_split_share(true));
    /// let clique = Clique::init_all_with(&Device::all()?[..4], &options)?;
    /// let pairs = clique.split(|rank| Some((rank / 2, rank)))?;
    /// assert_eq!(pairs.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_split_share(mut self, share: bool) -> Self {
        self.numbers.split_share = Some(share.into());
        self
    }

    /// Whether two runs of a program on a machine get the same bits of each reduction, and a call the same bits as another one of the same
    /// operation, type and length with the same input. `false` where it is not set. What is made of such a communicator is such a one, too, if
    /// its own configuration does not say otherwise. `docs/determinism.md` has what it rests on, and what it cannot do.
    ///
    /// It sets `collnetEnable` and `CTAPolicy` to 0, with NCCL 2.32 `nvlsHostMode` to none, and wants of the environment what a configuration cannot say; see
    /// [`prepare_determinism`](crate::nccl::prepare_determinism). A communicator is refused where that says something else, and with NCCL
    /// before 2.28.3. Such a communicator makes no windows: [`alloc`](crate::nccl::Communicator::alloc) gives other memory, and what asks
    /// for one, or registers memory, is an [`Error::Unsupported`]. In a [`group`](crate::nccl::group) a reduction is the only collective of such a
    /// communicator, or the group is an [`Error::InvalidUsage`]: NCCL would share out channels among them.
    ///
    /// ```
    /// # use gpucomm::nccl::{self, Config, InitOptions};
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # // SAFETY: one thread.
    /// # unsafe { nccl::prepare_determinism()? };
    /// let options = InitOptions::new().with_config(Config::new().with_deterministic(true));
    /// let sums = || {
    ///     Clique::init_all_with(&Device::all()?, &options)?.spmd(|comm| {
    ///         let stream = Stream::new(comm.device())?;
    ///         let mut x = DeviceBuffer::from_slice(&stream, &[1.0 / (comm.rank() + 3) as f32; 1000])?;
    ///         comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    ///         x.to_vec(&stream)
    ///     })
    /// };
    /// assert_eq!(sums()?, sums()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_deterministic(mut self, deterministic: bool) -> Self {
        self.deterministic = Some(deterministic);
        self
    }

    /// `trafficClass`: the traffic class of the network, 0 or more. `NCCL_IB_SL` and `NCCL_IB_TC` come first.
    #[cfg(nccl_ge_2_26)]
    pub fn with_traffic_class(mut self, class: i32) -> Self {
        self.numbers.traffic_class = Some(class);
        self
    }

    /// The [name](crate::nccl::Communicator::name) of the communicator, for
    /// [`split_with`](crate::nccl::Communicator::split_with) and
    /// [`shrink_with`](crate::nccl::Communicator::shrink_with). A start also has
    /// [`InitOptions::with_name`](crate::nccl::InitOptions::with_name), which comes first. It works
    /// with every NCCL; 2.27 and newer get it as `commName`. A child that is made without a name
    /// has one that says how it was made.
    ///
    /// ```
    /// # use gpucomm::nccl::Config;
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// let config = Config::new().with_name("tp")?;
    /// let parts = clique.split_with(|rank| Some((0, rank)), |_| config.clone())?;
    /// assert_eq!(parts[&0].name(), "tp");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the name is empty,
    /// longer than 128 bytes or has control characters.
    pub fn with_name(mut self, name: &str) -> Result<Self> {
        self.name = Some(Name::new("Config::with_name", name)?);
        Ok(self)
    }

    /// `collnetEnable`: whether collectives may run in the network.
    #[cfg(nccl_ge_2_27)]
    pub fn with_collnet_enable(mut self, enable: bool) -> Self {
        self.numbers.collnet_enable = Some(enable.into());
        self
    }

    /// `CTAPolicy`: how many thread blocks there should be. With [`CtaPolicy::CopyEngines`] no communicator is made.
    #[cfg(nccl_ge_2_27)]
    pub fn with_cta_policy(mut self, policy: CtaPolicy) -> Self {
        self.numbers.cta_policy = Some(policy.raw());
        self
    }

    /// `shrinkShare`: whether communicators shrunk from this one share its resources. What this crate
    /// [shrinks](crate::nccl::Communicator::shrink) shares nothing: one for which this is set has to be
    /// [revoked](crate::nccl::Communicator::revoke) before, after which NCCL shares nothing either.
    ///
    /// ```
    /// use gpucomm::nccl::{Config, CtaPolicy};
    ///
    /// let config = Config::new().with_shrink_share(true).with_cta_policy(CtaPolicy::Efficiency);
    /// # drop(config);
    /// ```
    #[cfg(nccl_ge_2_27)]
    pub fn with_shrink_share(mut self, share: bool) -> Self {
        self.numbers.shrink_share = Some(share.into());
        self
    }

    /// `nvlsCTAs`: thread blocks for NVLink SHARP, 1 or more.
    #[cfg(nccl_ge_2_27)]
    pub fn with_nvls_ctas(mut self, blocks: i32) -> Self {
        self.numbers.nvls_ctas = Some(blocks);
        self
    }

    /// `nChannelsPerNetPeer`: channels to each peer across the network in point-to-point operations, 1 to 64; NCCL
    /// rounds it up to a power of two.
    #[cfg(nccl_ge_2_28)]
    pub fn with_channels_per_net_peer(mut self, channels: i32) -> Self {
        self.numbers.channels_per_net_peer = Some(channels);
        self
    }

    /// `nvlinkCentricSched`: whether point-to-point operations are scheduled for NVLink first.
    ///
    /// ```
    /// use gpucomm::nccl::Config;
    ///
    /// // What concerns the network, and how it is reached.
    /// let config = Config::new()
    ///     .with_traffic_class(1)
    ///     .with_collnet_enable(false)
    ///     .with_nvls_ctas(8)
    ///     .with_channels_per_net_peer(2)
    ///     .with_nvlink_centric_sched(true);
    /// # drop(config);
    /// ```
    #[cfg(nccl_ge_2_28)]
    pub fn with_nvlink_centric_sched(mut self, enable: bool) -> Self {
        self.numbers.nvlink_centric_sched = Some(enable.into());
        self
    }

    /// `graphUsageMode`: which of its operations will be captured into CUDA graphs. [`GraphUsage::Mixed`] where it is not set, and where
    /// `NCCL_GRAPH_MIXING_SUPPORT=1`. With less NCCL leaves out what keeps graphs and other operations in order, so what
    /// does not go with it is refused.
    #[cfg(nccl_ge_2_29)]
    pub fn with_graph_usage(mut self, usage: GraphUsage) -> Self {
        self.numbers.graph_usage = Some(usage.raw());
        self
    }

    /// `numRmaCtx`: contexts for one-sided operations; 0: there are none of those. 1 where it is not set.
    #[cfg(nccl_ge_2_29)]
    pub fn with_num_rma_ctx(mut self, contexts: i32) -> Self {
        self.numbers.num_rma_ctx = Some(contexts);
        self
    }

    /// `maxP2pPeers`: with how many others a rank exchanges messages at the same time, at most, 1 or more; all where it is not set. It
    /// concerns all_to_all, gather and scatter, too.
    #[cfg(nccl_ge_2_30)]
    pub fn with_max_p2p_peers(mut self, peers: i32) -> Self {
        self.numbers.max_p2p_peers = Some(peers);
        self
    }

    /// `graphStreamOrdering`: whether NCCL puts kernels that are captured into an order of its own; with `false` whoever captures them
    /// does. That goes with [`Config::with_graph_usage`] other than [`GraphUsage::Mixed`] only, which is what NCCL takes where nothing is set: no
    /// communicator is made else, where NCCL would go on as with `true`.
    #[cfg(nccl_ge_2_30_7)]
    pub fn with_graph_stream_ordering(mut self, ordered: bool) -> Self {
        self.numbers.graph_stream_ordering = Some(ordered.into());
        self
    }

    /// `launchOrderImplicit`: whether kernels of this communicator and of others that say so may run at the same time on a device, in the
    /// order in which the host has launched them. The threads of all ranks launch in one order then, those of one device one at a time.
    ///
    /// What such a communicator does must not overlap on a device with what one does that does not say so: nobody puts that in order, and
    /// ranks may wait for each other, until their deadlines. Have all say the same, or wait in between. `NCCL_LAUNCH_ORDER_IMPLICIT` comes
    /// first.
    #[cfg(nccl_ge_2_31)]
    pub fn with_launch_order_implicit(mut self, implicit: bool) -> Self {
        self.numbers.launch_order_implicit = Some(implicit.into());
        self
    }

    /// `numRmaSig`: signals of each context for one-sided operations; 1 where it is not set.
    #[cfg(nccl_ge_2_31)]
    pub fn with_num_rma_sig(mut self, signals: i32) -> Self {
        self.numbers.num_rma_sig = Some(signals);
        self
    }

    /// `rmaEagerInit`: whether signals are made ready at the start, and not with the first window. Who signals and waits without any window
    /// needs that. `NCCL_RMA_EAGER_INIT` comes first.
    #[cfg(nccl_ge_2_31)]
    pub fn with_rma_eager_init(mut self, eager: bool) -> Self {
        self.numbers.rma_eager_init = Some(eager.into());
        self
    }

    /// `hostCftMode`: whether the host can ask for the endpoints of the Compute Fabric Transport. NCCL refuses ranks that differ.
    ///
    /// ```
    /// # use gpucomm::nccl::{Config, GraphUsage, HostCft, InitOptions};
    /// # use gpucomm::{Clique, Device};
    /// // What came with NCCL 2.29 to 2.31. With an older one, no communicator is made, and the error says which it takes.
    /// let config = Config::new()
    ///     .with_graph_usage(GraphUsage::One)
    ///     .with_num_rma_ctx(2)
    ///     .with_max_p2p_peers(4)
    ///     .with_graph_stream_ordering(false)
    ///     .with_launch_order_implicit(true)
    ///     .with_num_rma_sig(8)
    ///     .with_rma_eager_init(true)
    ///     .with_host_cft(HostCft::Fallback);
    /// # let Ok(devices) = Device::all() else { return };
    /// match Clique::init_all_with(&devices, &InitOptions::new().with_config(config)) {
    ///     Err(error @ gpucomm::Error::Unsupported { .. }) => println!("{error}"),
    ///     made => drop(made),
    /// }
    /// ```
    #[cfg(nccl_ge_2_31)]
    pub fn with_host_cft(mut self, mode: HostCft) -> Self {
        self.numbers.host_cft = Some(mode.raw());
        self
    }

    /// `nvlsHostMode`: what of NVLink SHARP is used from the host. Switches can serve few communicators: those that are small, or seldom
    /// used, leave them to others so.
    ///
    /// ```
    /// use gpucomm::nccl::{Config, NvlsHost};
    ///
    /// let config = Config::new().with_nvls_host(NvlsHost::OFF);
    /// # drop(config);
    /// ```
    #[cfg(nccl_ge_2_32)]
    pub fn with_nvls_host(mut self, mode: NvlsHost) -> Self {
        self.numbers.nvls_host = Some(mode.raw());
        self
    }
}

fn c_string(what: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::argument("Config", what, "text without NUL", format!("{text:?}")))
}
