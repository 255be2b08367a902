//! What a communicator is started with.

use std::time::Duration;

use super::config::Config;
use crate::deadline::default_timeout;
use crate::error::Result;
use crate::name::Name;

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
/// // For ranks in several processes, started by `Communicator::init_rank_over`.
/// let checked = options.with_checked(true);
/// # drop((clique, checked));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct InitOptions {
    pub(crate) timeout: Duration,
    pub(crate) config: Config,
    pub(crate) checked: bool,
    name: Option<Name>,
}

impl InitOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long the start may take, and how long the communicator's own calls may wait later
    /// on; see [`Communicator::set_timeout`](crate::nccl::Communicator::set_timeout). The
    /// [`default_timeout`](crate::default_timeout) by default.
    ///
    /// Waits for a stream, and copies to the host, always wait as long as
    /// [`default_timeout`](crate::default_timeout) says.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the configuration that NCCL gets.
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets whether the ranks compare every operation with those in other processes before it is
    /// launched. `false` by default.
    ///
    /// [`Communicator::init_rank_over`](crate::nccl::Communicator::init_rank_over) can do so. Other
    /// starts refuse it, except those of cliques, whose ranks always compare.
    pub fn with_checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// Sets the [name](crate::nccl::Communicator::name) of the communicator, by which errors, dumps
    /// and traces call it. `world` by default. NCCL 2.27 and newer get it, too (`commName`), for
    /// NCCL's log and profilers. It comes before that of [`Config::with_name`].
    ///
    /// A name has 1 to 128 bytes and no control characters. Ranks do not compare their names.
    ///
    /// ```
    /// use gpucomm::nccl::InitOptions;
    /// use gpucomm::{Clique, Device};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let options = InitOptions::new().with_name("training")?;
    /// let clique = Clique::init_all_with(&Device::all()?, &options)?;
    /// assert_eq!((clique.name(), clique.rank(0).name()), ("training", "training"));
    /// assert!(InitOptions::new().with_name("two\nlines").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the name is empty, too
    /// long or has control characters.
    pub fn with_name(self, name: &str) -> Result<Self> {
        Name::new("InitOptions::with_name", name).map(|name| self.named(name))
    }

    pub(crate) fn named(mut self, name: Name) -> Self {
        self.name = Some(name);
        self
    }

    /// The name that a user has given.
    pub(crate) fn given_name(&self) -> Option<&Name> {
        self.name.as_ref().or_else(|| self.config.name())
    }

    /// The name of the communicator.
    pub(crate) fn name(&self) -> Name {
        self.given_name().cloned().unwrap_or_default()
    }
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { timeout: default_timeout(), config: Config::default(), checked: false, name: None }
    }
}
