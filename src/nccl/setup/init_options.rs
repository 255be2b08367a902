//! What a communicator is started with.

use std::time::Duration;

use super::config::Config;
use crate::deadline::default_timeout;

/// Options of a new communicator.
///
/// ```
/// use std::time::Duration;
///
/// use gpucomm::nccl::{Config, InitOptions};
/// use gpucomm::{Clique, Device};
///
/// # fn main() -> gpucomm::Result<()> {
/// let options = InitOptions::new().with_timeout(Duration::from_secs(30)).with_config(Config::new().with_max_ctas(8));
/// let clique = Clique::init_all_with(&Device::all()?, &options)?;
/// # drop(clique);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct InitOptions {
    pub(crate) timeout: Duration,
    pub(crate) config: Config,
    pub(crate) checked: bool,
}

impl InitOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long the start may take, and how long the communicator's own calls may wait later on; see
    /// [`Communicator::set_timeout`](crate::nccl::Communicator::set_timeout). The [`default_timeout`](crate::default_timeout) by default.
    ///
    /// Waits for a stream, and copies to the host, always wait as long as [`default_timeout`](crate::default_timeout) says.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the configuration that NCCL gets.
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets whether the ranks compare every operation with those in other processes before it is launched. `false` by default.
    ///
    /// [`Communicator::init_rank_over`](crate::nccl::Communicator::init_rank_over) can do so. Other starts refuse it, except those of
    /// cliques, whose ranks always compare.
    pub fn with_checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { timeout: default_timeout(), config: Config::default(), checked: false }
    }
}
