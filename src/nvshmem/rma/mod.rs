//! One-sided transfers: this PE puts to the memory of others and gets from it, without their taking part.

mod batch;
pub(crate) mod nonblocking;
pub(crate) mod on_stream;
pub(crate) mod put_get;
pub(crate) mod put_signal;
pub(crate) mod strided;
pub(crate) mod transfer;
pub(crate) mod value;
