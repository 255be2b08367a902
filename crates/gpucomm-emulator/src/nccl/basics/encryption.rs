//! `ncclEncryptionConfig_t`: the emulator has no sockets, and is, as NVIDIA's packages are, built without what encrypts them.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{Failure, Outcome};
use crate::sys::{NCCL_VERSION_CODE, ncclEncryptionConfig_t, ncclEncryptionMode_t};

const MAGIC: u32 = 0xcafe_beef;
/// The shortest key.
const KEY: usize = 32;

/// Whether sockets are to be encrypted.
static WANTED: AtomicBool = AtomicBool::new(false);

/// What `NCCL_ENCRYPTION_CONFIG_INITIALIZER` holds.
pub(crate) fn initial() -> ncclEncryptionConfig_t {
    ncclEncryptionConfig_t {
        size: size_of::<ncclEncryptionConfig_t>(),
        magic: MAGIC,
        version: NCCL_VERSION_CODE,
        mode: mode(ncclEncryptionMode_t::NCCL_ENCRYPTION_MODE_NONE),
        psk: std::ptr::null(),
    }
}

fn mode(mode: ncclEncryptionMode_t) -> i32 {
    mode.0 as i32
}

/// `ncclSetEncryption`; null means none.
///
/// # Safety
/// `config` is null or points to a whole struct, whose key is null or a C string.
pub(crate) unsafe fn set(config: *const ncclEncryptionConfig_t) -> Outcome {
    let mut known = initial();
    if !config.is_null() {
        // SAFETY: the caller vouches for the struct.
        known = unsafe { config.read() };
    }
    if known.magic != MAGIC {
        return Err(Failure::argument("ncclEncryptionConfig_t was not made by NCCL_ENCRYPTION_CONFIG_INITIALIZER"));
    }
    let wanted = match known.mode {
        none if none == mode(ncclEncryptionMode_t::NCCL_ENCRYPTION_MODE_NONE) => false,
        psk if psk == mode(ncclEncryptionMode_t::NCCL_ENCRYPTION_MODE_PSK) => {
            // SAFETY: the caller vouches for a C string.
            let bytes = if known.psk.is_null() { 0 } else { unsafe { CStr::from_ptr(known.psk) }.count_bytes() };
            if bytes < KEY {
                return Err(Failure::argument(format!("the key has {bytes} bytes, expected at least {KEY}")));
            }
            true
        }
        other => return Err(Failure::argument(format!("the mode of encryption is {other}, expected 0 or 1"))),
    };
    WANTED.store(wanted, Ordering::Relaxed);
    Ok(())
}

/// Before the first socket: fails where it would have to be encrypted.
pub(crate) fn check() -> Outcome {
    if WANTED.load(Ordering::Relaxed) {
        return Err(Failure::usage("NCCL was built without TLS support, and a pre-shared key was set"));
    }
    Ok(())
}
