//! What a communicator is configured with that is made of another one.
//!
//! NCCL takes the configuration of a child for a new one: what it does not set is as NCCL has it, not as what the child comes from has it,
//! while a child without one is as that in all. So what is not set here is filled in, and the two are alike.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::nccl::agree::terms::Terms;
use crate::nccl::life::divide::Place;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::environment;
use crate::nccl::state::inner::Inner;

/// A configuration for a child.
#[derive(Debug, Clone)]
pub(crate) struct Heir {
    pub(crate) config: Arc<Config>,
    /// What ranks compare of it.
    pub(crate) terms: Arc<Terms>,
}

impl Heir {
    /// What is made of `inner` has `config`, and where that says nothing, what `inner` has.
    pub(crate) fn of(operation: &'static str, inner: &Inner, config: &Config) -> Result<Self> {
        let parent = inner.household.config();
        let shares = environment::shares(parent.shares());
        let config = config.over(parent);
        config.check(operation)?;
        kept(operation, "split_share", shares, environment::shares(config.shares()))?;
        #[cfg(nccl_ge_2_27)]
        {
            let parent = inner.household.shrinks_share();
            let says = |config: bool| environment::shrinks_share(config);
            kept(operation, "shrink_share", says(parent), says(config.shrinks_share()))?;
        }
        let terms = Arc::new(config.terms());
        Ok(Self { config: Arc::new(config), terms })
    }

    /// Keeps a configuration for as long as NCCL may look at it: where the child belongs.
    pub(crate) fn keep(heir: Option<&Self>, child: Option<&Place>) {
        if let (Some(heir), Some(child)) = (heir, child) {
            child.household.prefer(&heir.config);
        }
    }
}

/// Those that share resources are looked after together, and what is made of one that shares nothing has no way to them.
fn kept(operation: &'static str, what: &'static str, parent: bool, child: bool) -> Result<()> {
    if parent == child {
        return Ok(());
    }
    Err(Error::argument(operation, what, format_args!("{parent}, as in the communicator that this is made of"), child))
}
