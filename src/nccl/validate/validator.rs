//! The validator of a communicator: checks that its ranks are about to launch the same operations.
//!
//! A communicator holds one of three in its [`Validation`]:
//! - [`InProcess`](super::in_process::InProcess) for a clique: its ranks compare in shared memory,
//!   before each launch.
//! - [`OverExchange`](super::over_exchange::this_rank::OverExchange) for a checked communicator: its ranks
//!   live in several processes and compare through a store.
//! - [`Unchecked`] for a communicator of several processes that is not checked. Its ranks have promised
//!   to agree, and nothing is compared.
//!
//! The code that launches calls the [`Validator`] and does not know which one it is.

use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::Record;
use crate::nccl::validate::connects::Connects;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::signature::Signature;
use crate::nccl::validate::validation::Validation;

/// Checks that the ranks of a communicator are about to launch the same operations.
pub(crate) trait Validator {
    /// Validates a call that is in no group, and gives it its number among the calls that ranks
    /// compare.
    ///
    /// # Errors
    /// [`Failure::Retryable`] if no other rank knows of the call, so that the caller may make it
    /// again. After [`Failure::Fatal`] the communicator ends.
    fn before_launch(&self, call: &Call<'_>) -> Result<Connects, Failure>;

    /// Validates a point at which all ranks do something together that is no operation on a device.
    /// Returns its number among the collectives, or `None` if nothing is compared.
    ///
    /// # Errors
    /// Any error ends the communicator.
    fn before_point(&self, inner: &Inner, operation: &'static str, signature: &Signature) -> Result<Option<u64>>;

    /// Tells the other ranks that `inner` issues nothing more. Calls `end` for each rank of this
    /// process that waits in vain from now on.
    fn on_departure(&self, inner: &Inner, end: &mut dyn FnMut(&Inner, &Error));

    /// Returns why operation `last` of `inner`, or one before it, will not complete, if a rank that it
    /// needs has left or died. On the stream of `last`, the operations up to number `done` are done.
    fn departure_error(&self, inner: &Inner, done: u64, last: u64) -> Option<Error>;

    /// Explains which of these operations `inner` waits for, and which ranks have not come to it.
    /// `absent` are ranks that the caller knows to be missing, and `range` describes the
    /// operations. Returns `None` if this rank does not know what the others do.
    fn explain(
        &self,
        inner: &Inner,
        records: &[Record],
        range: &dyn Fn() -> String,
        absent: &[usize],
    ) -> Option<String>;
}

/// Compares nothing: the ranks live in several processes, and have promised to issue the same
/// operations. What that promise does not cover is refused before: where a communicator starts, and
/// by the checks of each call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unchecked;

impl Validator for Unchecked {
    #[inline]
    fn before_launch(&self, _call: &Call<'_>) -> Result<Connects, Failure> {
        Ok(Connects::Nothing)
    }

    fn before_point(&self, _inner: &Inner, _operation: &'static str, _signature: &Signature) -> Result<Option<u64>> {
        Ok(None)
    }

    fn on_departure(&self, _inner: &Inner, _end: &mut dyn FnMut(&Inner, &Error)) {}

    fn departure_error(&self, _inner: &Inner, _done: u64, _last: u64) -> Option<Error> {
        None
    }

    fn explain(
        &self,
        _inner: &Inner,
        _records: &[Record],
        _range: &dyn Fn() -> String,
        _absent: &[usize],
    ) -> Option<String> {
        None
    }
}

/// Calls a method of the validator that a communicator holds.
macro_rules! dispatch {
    ($held:expr, $validator:ident => $call:expr) => {
        match $held {
            Validation::InProcess($validator) => $call,
            Validation::AcrossProcesses(over_exchange) => match over_exchange.get() {
                Some($validator) => $call,
                None => {
                    let $validator = &Unchecked;
                    $call
                }
            },
        }
    };
}

/// Dispatches by a match, which the compiler inlines: validation adds tens of nanoseconds to a
/// launch.
impl Validator for Validation {
    #[inline]
    fn before_launch(&self, call: &Call<'_>) -> Result<Connects, Failure> {
        dispatch!(self, validator => validator.before_launch(call))
    }

    fn before_point(&self, inner: &Inner, operation: &'static str, signature: &Signature) -> Result<Option<u64>> {
        dispatch!(self, validator => validator.before_point(inner, operation, signature))
    }

    fn on_departure(&self, inner: &Inner, end: &mut dyn FnMut(&Inner, &Error)) {
        dispatch!(self, validator => validator.on_departure(inner, end));
    }

    fn departure_error(&self, inner: &Inner, done: u64, last: u64) -> Option<Error> {
        dispatch!(self, validator => validator.departure_error(inner, done, last))
    }

    fn explain(
        &self,
        inner: &Inner,
        records: &[Record],
        range: &dyn Fn() -> String,
        absent: &[usize],
    ) -> Option<String> {
        dispatch!(self, validator => validator.explain(inner, records, range, absent))
    }
}
