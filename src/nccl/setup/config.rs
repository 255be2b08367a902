//! How a communicator is made.

use std::ffi::{CString, c_int};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(nccl_ge_2_27)]
use super::environment::NO_COPY_ENGINES;
use crate::deadline::default_timeout;
use crate::error::{Error, Result};
use crate::sys;

/// `NCCL_CTA_POLICY_ZERO`: a bit, since NCCL 2.30.
#[cfg(nccl_ge_2_27)]
const COPY_ENGINES: c_int = 2;

/// Options of a new communicator.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// How long the start may take, and how long the communicator's own calls may wait later on; see
    /// [`Communicator::set_timeout`](crate::nccl::Communicator::set_timeout).
    pub timeout: Duration,
    /// What NCCL is told.
    pub config: Config,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { timeout: default_timeout(), config: Config::default() }
    }
}

/// Wraps `ncclConfig_t`: a field that is not set keeps NCCL's own default, or what its environment variables say.
///
/// ```
/// # use gpucomm::nccl::{Config, InitOptions};
/// # use gpucomm::{Clique, Device};
/// # fn main() -> gpucomm::Result<()> {
/// let config = Config::new().min_ctas(1).max_ctas(16).cga_cluster_size(2).split_share(false);
/// let clique = Clique::init_all_with(&Device::all()?, &InitOptions { config, ..InitOptions::default() })?;
/// # drop(clique);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Config {
    cga_cluster_size: Option<c_int>,
    min_ctas: Option<c_int>,
    max_ctas: Option<c_int>,
    net_name: Option<CString>,
    split_share: Option<c_int>,
    #[cfg(nccl_ge_2_26)]
    traffic_class: Option<c_int>,
    #[cfg(nccl_ge_2_27)]
    comm_name: Option<CString>,
    #[cfg(nccl_ge_2_27)]
    collnet_enable: Option<c_int>,
    #[cfg(nccl_ge_2_27)]
    cta_policy: Option<c_int>,
    #[cfg(nccl_ge_2_27)]
    shrink_share: Option<c_int>,
    #[cfg(nccl_ge_2_27)]
    nvls_ctas: Option<c_int>,
    #[cfg(nccl_ge_2_28)]
    channels_per_net_peer: Option<c_int>,
    #[cfg(nccl_ge_2_28)]
    nvlink_centric_sched: Option<c_int>,
    force_windows: bool,
    change: Option<Change>,
}

/// What a user changes at last.
#[derive(Clone)]
struct Change(Arc<dyn Fn(&mut sys::ncclConfig_t) + Send + Sync>);

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

impl Config {
    /// NCCL's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// `cgaClusterSize`: thread blocks in a cluster, 0 to 8.
    pub fn cga_cluster_size(mut self, blocks: i32) -> Self {
        self.cga_cluster_size = Some(blocks);
        self
    }

    /// `minCTAs`: the fewest thread blocks that a kernel of this communicator uses.
    pub fn min_ctas(mut self, blocks: i32) -> Self {
        self.min_ctas = Some(blocks);
        self
    }

    /// `maxCTAs`: the most thread blocks that a kernel of this communicator uses.
    pub fn max_ctas(mut self, blocks: i32) -> Self {
        self.max_ctas = Some(blocks);
        self
    }

    /// `netName`: the network module to use, such as `IB` or `Socket`. A NUL in the name is an error.
    ///
    /// ```
    /// # use gpucomm::nccl::Config;
    /// # fn main() -> gpucomm::Result<()> {
    /// let config = Config::new().net_name("Socket")?;
    /// // A name has no zero byte.
    /// assert!(config.net_name("Sock\0et").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a name with a zero byte.
    pub fn net_name(mut self, name: &str) -> Result<Self> {
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
    ///   [`State::Closing`](crate::nccl::State::Closing) until then. A program that splits and closes again and again has no use for that.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::nccl::{Config, InitOptions};
    /// use gpucomm::{Clique, Device};
    ///
    /// let options = InitOptions { config: Config::new().split_share(true), ..InitOptions::default() };
    /// let clique = Clique::init_all_with(&Device::all()?[..4], &options)?;
    /// let pairs = clique.split(|rank| Some((rank / 2, rank)))?;
    /// assert_eq!(pairs.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn split_share(mut self, share: bool) -> Self {
        self.split_share = Some(share.into());
        self
    }

    /// `trafficClass`: the traffic class of the network.
    #[cfg(nccl_ge_2_26)]
    pub fn traffic_class(mut self, class: i32) -> Self {
        self.traffic_class = Some(class);
        self
    }

    /// `commName`: a name for NCCL's log and profilers. A NUL in the name is an error.
    ///
    /// ```
    /// # use gpucomm::nccl::{Config, InitOptions};
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// let config = Config::new().comm_name("training")?;
    /// let clique = Clique::init_all_with(&Device::all()?, &InitOptions { config, ..InitOptions::default() })?;
    /// # drop(clique);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a name with a zero byte.
    #[cfg(nccl_ge_2_27)]
    pub fn comm_name(mut self, name: &str) -> Result<Self> {
        self.comm_name = Some(c_string("comm_name", name)?);
        Ok(self)
    }

    /// `collnetEnable`: whether collectives may run in the network.
    #[cfg(nccl_ge_2_27)]
    pub fn collnet_enable(mut self, enable: bool) -> Self {
        self.collnet_enable = Some(enable.into());
        self
    }

    /// `CTAPolicy`: 0 default, 1 fewer thread blocks. With 2, none where the copy engines can do the work, no communicator is
    /// made.
    #[cfg(nccl_ge_2_27)]
    pub fn cta_policy(mut self, policy: i32) -> Self {
        self.cta_policy = Some(policy);
        self
    }

    /// `shrinkShare`: whether communicators shrunk from this one share its resources.
    ///
    /// ```
    /// use gpucomm::nccl::Config;
    ///
    /// let config = Config::new().shrink_share(true).cta_policy(1);
    /// # drop(config);
    /// ```
    #[cfg(nccl_ge_2_27)]
    pub fn shrink_share(mut self, share: bool) -> Self {
        self.shrink_share = Some(share.into());
        self
    }

    /// `nvlsCTAs`: thread blocks for NVLink SHARP.
    #[cfg(nccl_ge_2_27)]
    pub fn nvls_ctas(mut self, blocks: i32) -> Self {
        self.nvls_ctas = Some(blocks);
        self
    }

    /// `nChannelsPerNetPeer`: channels to each peer across the network in point-to-point operations.
    #[cfg(nccl_ge_2_28)]
    pub fn channels_per_net_peer(mut self, channels: i32) -> Self {
        self.channels_per_net_peer = Some(channels);
        self
    }

    /// `nvlinkCentricSched`: whether point-to-point operations are scheduled for NVLink first.
    ///
    /// ```
    /// use gpucomm::nccl::Config;
    ///
    /// // What concerns the network, and how it is reached.
    /// let config = Config::new()
    ///     .traffic_class(1)
    ///     .collnet_enable(false)
    ///     .nvls_ctas(8)
    ///     .channels_per_net_peer(2)
    ///     .nvlink_centric_sched(true);
    /// # drop(config);
    /// ```
    #[cfg(nccl_ge_2_28)]
    pub fn nvlink_centric_sched(mut self, enable: bool) -> Self {
        self.nvlink_centric_sched = Some(enable.into());
        self
    }

    /// Makes windows ([`Communicator::alloc`](crate::nccl::Communicator::alloc)) with every version of NCCL that has them. By default they are
    /// made only with 2.29.7 and newer, because of `endless-windows` in [`known_bugs`](crate::known_bugs). The same on all ranks.
    ///
    /// ```
    /// use gpucomm::nccl::Config;
    ///
    /// // SAFETY: this program aborts no communicator while it goes on, and sends no messages from windows.
    /// let config = unsafe { Config::new().force_windows() };
    /// # drop(config);
    /// ```
    ///
    /// # Safety
    /// With NCCL before 2.29.7, until the process ends: no communicator of this configuration is aborted, by a timeout or an error of any
    /// rank either, while a collective on windows waits for a rank that does not come; its kernel would go on and use memory that is
    /// freed. With NCCL before 2.29.2, no collective uses a window that was part of a message, of an all_to_all, a gather or a scatter.
    pub unsafe fn force_windows(mut self) -> Self {
        self.force_windows = true;
        self
    }

    /// Has `change` set fields of the C struct that nothing here has a method for. It is called more than once, after all else is set.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::nccl::{Config, InitOptions};
    /// use gpucomm::{Clique, Device};
    ///
    /// # if Device::count().is_err() { return Ok(()) }
    /// // SAFETY: a number that NCCL takes for this field, the same on all ranks.
    /// let config = unsafe { Config::new().raw(|config| config.minCTAs = 4) };
    /// let clique = Clique::init_all_with(&Device::all()?, &InitOptions { config, ..InitOptions::default() })?;
    /// # drop(clique);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// What this crate could not answer for is an [`InvalidArgument`](Error::InvalidArgument) when a communicator is made: `blocking`
    /// other than 1, another `splitShare` than [`Config::split_share`] says, and a `CTAPolicy` with the copy engines.
    ///
    /// # Safety
    /// It sets the same each time. The values are such as NCCL takes, on all ranks what NCCL wants the same; what it puts pointers to
    /// lives as long as the communicator, and those that are split off from it.
    pub unsafe fn raw(mut self, change: impl Fn(&mut sys::ncclConfig_t) + Send + Sync + 'static) -> Self {
        self.change = Some(Change(Arc::new(change)));
        self
    }

    /// Whether communicators split from this one share its resources, as far as it says so.
    pub(crate) fn shares(&self) -> bool {
        self.split_share == Some(1)
    }

    pub(crate) fn forces_windows(&self) -> bool {
        self.force_windows
    }

    /// Refuses what the rest of this crate could not answer for. Copy engines move data to where a rank alone thinks that the windows of
    /// the others begin, in operations for which ranks do not compare them; and the device waits for them in commands of streams, which
    /// an abort does not reach.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        #[cfg(nccl_ge_2_27)]
        if let Some(policy) = self.cta_policy.filter(|&policy| policy >= 0 && policy & COPY_ENGINES != 0) {
            return Err(Error::argument(operation, "cta_policy", NO_COPY_ENGINES, policy));
        }
        let Some(Change(change)) = &self.change else { return Ok(()) };
        let before = self.to_raw_unchanged();
        let mut raw = before;
        change(&mut raw);
        let kept = |what, expected: c_int, got: c_int| {
            if expected == got { Ok(()) } else { Err(Error::argument(operation, what, expected, got)) }
        };
        kept("blocking", before.blocking, raw.blocking)?;
        kept("splitShare", before.splitShare, raw.splitShare)?;
        #[cfg(nccl_ge_2_27)]
        if raw.CTAPolicy >= 0 && raw.CTAPolicy & COPY_ENGINES != 0 {
            return Err(Error::argument(operation, "CTAPolicy", NO_COPY_ENGINES, raw.CTAPolicy));
        }
        Ok(())
    }

    /// The C struct, for a communicator whose calls block. It points into `self`, and NCCL keeps `commName` without
    /// copying it: `self` must live as long as the communicator.
    pub(crate) fn to_raw(&self) -> sys::ncclConfig_t {
        let mut raw = self.to_raw_unchanged();
        if let Some(Change(change)) = &self.change {
            change(&mut raw);
        }
        raw
    }

    fn to_raw_unchanged(&self) -> sys::ncclConfig_t {
        let mut raw = std::mem::MaybeUninit::uninit();
        // SAFETY: the shim writes the whole struct.
        let mut raw = unsafe {
            sys::gpucommNcclConfigInit(raw.as_mut_ptr());
            raw.assume_init()
        };
        let set = |field: &mut c_int, value: Option<c_int>| {
            if let Some(value) = value {
                *field = value;
            }
        };
        raw.blocking = 1;
        set(&mut raw.cgaClusterSize, self.cga_cluster_size);
        set(&mut raw.minCTAs, self.min_ctas);
        set(&mut raw.maxCTAs, self.max_ctas);
        set(&mut raw.splitShare, self.split_share);
        if let Some(name) = &self.net_name {
            raw.netName = name.as_ptr();
        }
        #[cfg(nccl_ge_2_26)]
        set(&mut raw.trafficClass, self.traffic_class);
        #[cfg(nccl_ge_2_27)]
        {
            if let Some(name) = &self.comm_name {
                raw.commName = name.as_ptr();
            }
            set(&mut raw.collnetEnable, self.collnet_enable);
            set(&mut raw.CTAPolicy, self.cta_policy);
            set(&mut raw.shrinkShare, self.shrink_share);
            set(&mut raw.nvlsCTAs, self.nvls_ctas);
        }
        #[cfg(nccl_ge_2_28)]
        {
            set(&mut raw.nChannelsPerNetPeer, self.channels_per_net_peer);
            set(&mut raw.nvlinkCentricSched, self.nvlink_centric_sched);
        }
        raw
    }
}

fn c_string(what: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::argument("Config", what, "text without NUL", format!("{text:?}")))
}
