//! The targets of the fuzzer: bytes that come from other processes.
//!
//! These files are modules of the crate `gpucomm`, as they call what it keeps private. They are
//! there only for the fuzzer (`cfg(fuzzing)`) and for the unit tests, which replay the corpora.

pub(super) mod stage;

use std::path::Path;

use super::announced::Announced;
use super::c10d::fuzz as torch;
use super::directory::key_file;
use super::fds::Header;
use super::generation::{Arrival, Current};
use super::store::MAX_KEY;
use super::table::sum;
use super::tcp::fuzz as tcp;
use super::view::Came;
use super::vote;
use super::wire::Reader;

type Target = fn(&[u8]);

/// All targets, by the names of their programs and of the folders of their corpora.
pub const TARGETS: [(&str, Target); 6] = [
    ("greeting", greeting),
    ("request", request),
    ("values", values),
    ("c10d", c10d),
    ("service", service),
    ("c10d_service", c10d_service),
];

/// How a connection of the store over TCP begins.
pub fn greeting(bytes: &[u8]) {
    tcp::greeting(bytes);
}

/// Requests to the server of the store over TCP, and its answers.
pub fn request(bytes: &[u8]) {
    tcp::request(bytes);
}

/// A server of the store over TCP, and a script of what its clients do.
pub fn service(bytes: &[u8]) {
    tcp::service(bytes);
}

/// Queries to a TCPStore of PyTorch, and its answers.
pub fn c10d(bytes: &[u8]) {
    torch::messages(bytes);
}

/// A server that speaks as a TCPStore, and a script of what its clients do.
pub fn c10d_service(bytes: &[u8]) {
    torch::service(bytes);
}

/// Values that ranks send each other, by any transport. The first byte says which kind of value.
pub fn values(bytes: &[u8]) {
    let Some((what, bytes)) = bytes.split_first() else { return };
    match what % 8 {
        0 => {
            let told = Announced::decode("a fuzzer", bytes).map_err(|error| error.to_string());
            if told.is_ok() {
                assert_eq!(Announced::encode(&told), bytes);
            }
        }
        1 => {
            if let Some(now) = Current::decode(bytes) {
                assert_eq!(now.encode(), bytes);
            }
        }
        2 => {
            if let Some(arrival) = Arrival::decode(Reader(bytes)) {
                assert_eq!(arrival.encode(), bytes);
            }
        }
        3 => {
            if let Some(vote) = vote::decode(bytes) {
                // Reasons may be shorter, as they are clipped.
                assert!(vote::encode(&vote).len() <= bytes.len());
            }
        }
        4 => {
            let came = [Came::Value(bytes.to_vec())];
            for matter in ["", "a matter"] {
                assert_eq!(vote::count(1, matter, &came).missing, []);
            }
            // A yes counts for one matter at most.
            let yes = ["", "a matter"].iter().filter(|matter| vote::count(1, matter, &came).unanimous()).count();
            assert!(yes <= 1);
        }
        5 => {
            if let Some(header) = Header::decode(bytes) {
                assert_eq!(header.encode(), bytes);
            }
        }
        6 => {
            // The value of a key to which a rank adds.
            if let Ok(sum) = sum(Some(bytes), 0) {
                assert_eq!(std::str::from_utf8(bytes).expect("a number").parse(), Ok(sum));
            }
        }
        _ => {
            // A key, which a store in a directory makes a path of.
            if let Ok(key) = std::str::from_utf8(bytes)
                && (1..=MAX_KEY).contains(&key.len())
            {
                let path = key_file(Path::new("/r"), key);
                assert!(path.starts_with("/r") && path.components().all(|part| part.as_os_str() != ".."), "{path:?}");
            }
        }
    }
}

#[cfg(test)]
#[path = "replay.rs"]
mod replay;
