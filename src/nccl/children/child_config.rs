//! The configuration of a communicator that is made of another one.
//!
//! A child without a configuration has that of its parent. But if a configuration is passed, NCCL
//! fills its unset fields with its own defaults. So they are filled from the parent here, and both
//! cases are alike.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::name::Name;
use crate::nccl::lifecycle::start_child::Place;
use crate::nccl::rank::inner::Inner;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::environment;
use crate::nccl::validate::split::Terms;

/// A configuration for a child.
#[derive(Debug, Clone)]
pub(crate) struct ChildConfig {
    pub(crate) config: Arc<Config>,
    /// The name of the child.
    pub(crate) name: Name,
    /// What ranks compare of it.
    pub(crate) terms: Arc<Terms>,
}

impl ChildConfig {
    /// Makes the configuration of a child of `inner`: `config`, with its unset fields filled from
    /// `inner`. The child has the name `derived` if `config` has none.
    pub(crate) fn of(operation: &'static str, inner: &Inner, config: &Config, derived: Name) -> Result<Self> {
        let name = config.name().cloned().unwrap_or(derived);
        let parent = inner.local_ranks.config();
        let shares = environment::shares(parent.shares());
        let config = config.over(parent).named(&name);
        config.check(operation)?;
        kept(operation, "split_share", shares, environment::shares(config.shares()))?;
        #[cfg(nccl_ge_2_27)]
        {
            let parent = inner.local_ranks.shrinks_share();
            let says = |config: bool| environment::shrinks_share(config);
            kept(operation, "shrink_share", says(parent), says(config.shrinks_share()))?;
        }
        let terms = Arc::new(config.terms());
        Ok(Self { config: Arc::new(config), name, terms })
    }

    /// Keeps a configuration with the ranks of the child, for as long as NCCL may read it.
    pub(crate) fn keep(config: Option<&Self>, child: Option<&Place>) {
        if let (Some(config), Some(child)) = (config, child) {
            child.local_ranks.set_config(&config.config);
        }
    }
}

/// Returns an error if a child shares resources and its parent does not, or the other way round:
/// ranks that share are freed together.
fn kept(operation: &'static str, what: &'static str, parent: bool, child: bool) -> Result<()> {
    if parent == child {
        return Ok(());
    }
    Err(Error::argument(operation, what, format_args!("{parent}, as in the communicator that this is made of"), child))
}
