//! Encryption of NCCL's sockets.

use std::ffi::{CString, c_int};

use super::raw::check::check;
use super::raw::outside::outside_of_host_functions;
use super::setup::begun;
use crate::error::{Error, Result};
use crate::sys;
use crate::version::{self, Version};

/// The shortest key.
const SHORTEST: usize = 32;

/// Wraps `ncclSetEncryption`: has NCCL encrypt what it sends over TCP sockets of its own (TLS 1.3), with a key that all processes share. Needs
/// NCCL 2.32.3.
///
/// It concerns the whole process, and comes before its first [`UniqueId`](super::UniqueId) and its first communicator. All processes of the
/// job pass the same key, of 32 bytes or more, which nobody can guess; how they get it is for them to secure, as is the way of the ids. What
/// does not go over sockets of NCCL is not encrypted: InfiniBand, NVLink, shared memory, the transports of plug-ins.
///
/// NCCL keeps a copy of the key; the one that is made here is overwritten.
///
/// # Errors
/// [`Error::InvalidUsage`] where this process has made an id or a communicator; [`Error::InvalidArgument`] for a key that is too short, or
/// holds a NUL; [`Error::Unsupported`] with an older NCCL. An NCCL that was built without TLS, as NVIDIA's packages are, fails in what comes
/// next, an id or a communicator: it never goes on without encryption.
///
/// ```
/// let error = gpucomm::nccl::encrypt_sockets(b"too short").unwrap_err();
/// assert!(!error.to_string().contains("too short"), "no error shows the key");
/// ```
#[doc(alias = "ncclSetEncryption")]
pub fn encrypt_sockets(key: &[u8]) -> Result<()> {
    const OPERATION: &str = "encrypt_sockets";
    outside_of_host_functions(OPERATION)?;
    version::check_nccl()?;
    version::needs(OPERATION, Version::new(2, 32, 3))?;
    if key.len() < SHORTEST {
        let got = format_args!("{} bytes", key.len()).to_string();
        return Err(Error::argument(OPERATION, "key", format_args!("at least {SHORTEST} bytes"), got));
    }
    if begun::has_begun() {
        let reason = "this process has made a unique id or a communicator, over sockets that are not encrypted".into();
        return Err(Error::InvalidUsage { operation: OPERATION, reason });
    }
    let text = CString::new(key).map_err(|_| Error::argument(OPERATION, "key", "no NUL", "one"))?;
    let mut raw = std::mem::MaybeUninit::uninit();
    // SAFETY: the shim writes the whole struct.
    let mut raw = unsafe {
        sys::gpucommNcclEncryptionConfigInit(raw.as_mut_ptr());
        raw.assume_init()
    };
    raw.mode = sys::ncclEncryptionMode_t::NCCL_ENCRYPTION_MODE_PSK.0 as c_int;
    raw.psk = text.as_ptr();
    // SAFETY: a configuration that was initialised, with a key that lives until NCCL has copied it.
    let set = check("ncclSetEncryption", unsafe { sys::ncclSetEncryption(&raw) });
    let mut bytes = text.into_bytes();
    bytes.fill(0);
    std::hint::black_box(&bytes);
    set
}
