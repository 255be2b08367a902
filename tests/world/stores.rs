//! A store with faults.

use std::time::Duration;

use gpucomm::Result;
use gpucomm::exchange::Store;

use crate::hooked_store::Hooks;

/// A store that calls a function before each operation, with the name of the operation and the key.
/// An error of the function is that of the operation.
pub struct Faulty<S, F>(pub S, pub F);

impl<S: Store, F: Fn(&str, &str) -> Result<()> + Send + Sync> Hooks for Faulty<S, F> {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn around<R>(
        &self,
        method: &'static str,
        keys: &[&str],
        _within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        keys.iter().try_for_each(|key| (self.1)(method, key))?;
        call()
    }
}
