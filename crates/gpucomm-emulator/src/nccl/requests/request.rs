//! What a C call asks for.

use std::ffi::c_void;

use crate::nccl::basics::kind::Kind;
use crate::sys::{ncclDataType_t, ncclRedOp_t};

/// What a C call asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) send: *const c_void,
    pub(crate) recv: *mut c_void,
    pub(crate) count: usize,
    pub(crate) datatype: ncclDataType_t,
    pub(crate) redop: ncclRedOp_t,
    /// Root or peer.
    pub(crate) peer: i32,
    /// What its configuration says, as a number; 0 where it says nothing.
    pub(crate) config: u16,
}
