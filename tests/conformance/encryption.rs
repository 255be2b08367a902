//! Encryption of sockets: asked for before all else, with a key that will do, and never left out in silence.

use gpucomm::version::Version;
use gpucomm::{Error, UniqueId};

use crate::support::each_version::{child as run_role, each_version};
use crate::support::{assert_argument, assert_names, watched};

const CHILD: &str = "encryption::child";
const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

#[test]
#[ignore = "the body of child processes"]
fn child() {
    run_role(&[("encrypts", encrypts), ("too late", too_late)]);
}

/// Whether the version has it; else it has said so.
fn is_there() -> bool {
    let running = gpucomm::nccl::version().unwrap();
    if running >= Version::new(2, 32, 3) {
        return true;
    }
    let error = gpucomm::nccl::encrypt_sockets(KEY).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert_names(&error, &["encrypt_sockets", "2.32.3 or newer", &format!("{running} is running")]);
    UniqueId::new().expect("nothing was asked for");
    false
}

fn encrypts(_: usize) {
    if !is_there() {
        return;
    }
    let encrypt = gpucomm::nccl::encrypt_sockets;
    assert_argument(encrypt(&KEY[1..]), "encrypt_sockets", "at least 32 bytes", "31 bytes");
    let with_nul = [KEY, b"\0"].concat();
    assert_argument(encrypt(&with_nul), "encrypt_sockets", "no NUL", "one");
    encrypt(KEY).unwrap();
    // Either it is encrypted, or nothing goes over the network.
    if let Err(error) = UniqueId::new() {
        assert!(matches!(error, Error::Nccl { operation: "ncclGetUniqueId", .. }), "{error:?}");
        assert!(!error.to_string().contains("0123456789"), "the key is told: {error}");
    }
}

fn too_late(_: usize) {
    if !is_there() {
        return;
    }
    UniqueId::new().unwrap();
    let error = gpucomm::nccl::encrypt_sockets(KEY).unwrap_err();
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
    UniqueId::new().expect("nothing has changed");
}

#[test]
fn sockets_are_encrypted_or_not_used() {
    watched(200.0, || each_version(CHILD, "encrypts"));
}

#[test]
fn after_the_first_id_it_is_too_late() {
    watched(200.0, || each_version(CHILD, "too late"));
}
