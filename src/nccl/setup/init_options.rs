//! What a communicator is started with.

use std::time::Duration;

use super::config::Config;
use crate::deadline::default_timeout;

/// Options of a new communicator.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// How long the start may take, and how long the communicator's own calls may wait later on; see
    /// [`Communicator::set_timeout`](crate::nccl::Communicator::set_timeout). Waits for a stream, and copies to the host, wait as long as
    /// [`default_timeout`](crate::default_timeout) says, whatever stands here.
    pub timeout: Duration,
    /// What NCCL is told.
    pub config: Config,
    /// Whether the ranks compare every operation with those in other processes before it is launched; see
    /// [`Communicator::init_rank_over`](crate::nccl::Communicator::init_rank_over), which can do so. Others refuse it, but for cliques,
    /// whose ranks compare whatever stands here.
    pub checked: bool,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { timeout: default_timeout(), config: Config::default(), checked: false }
    }
}
