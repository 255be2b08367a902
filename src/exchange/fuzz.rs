//! What a fuzzer calls, of `fuzz/`, and what the tests replay of what it has found: bytes that come from other processes.

use std::path::Path;

use super::announced::Announced;
use super::c10d::fuzz as torch;
use super::directory::file;
use super::fds::Header;
use super::generation::{Comer, Now};
use super::store::MAX_KEY;
use super::table::sum;
use super::tcp::fuzz as tcp;
use super::view::Came;
use super::vote;
use super::wire::Reader;

/// Something that a fuzzer calls.
type Target = fn(&[u8]);

/// All of them, by the names of their programs and of the folders of their corpora.
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

/// What is asked of a server, and what it answers.
pub fn request(bytes: &[u8]) {
    tcp::request(bytes);
}

/// A server, and a script of what its clients do.
pub fn service(bytes: &[u8]) {
    tcp::service(bytes);
}

/// What is asked of a TCPStore of PyTorch, and what one answers.
pub fn c10d(bytes: &[u8]) {
    torch::messages(bytes);
}

/// A TCPStore of ours, and a script of what its clients do.
pub fn c10d_service(bytes: &[u8]) {
    torch::service(bytes);
}

/// What ranks leave for each other, whichever way it goes. The first byte says what it is taken for.
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
            if let Some(now) = Now::decode(bytes) {
                assert_eq!(now.encode(), bytes);
            }
        }
        2 => {
            if let Some(comer) = Comer::decode(Reader(bytes)) {
                assert_eq!(comer.encode(), bytes);
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
            // A yes is one to one matter at most.
            let yes = ["", "a matter"].iter().filter(|matter| vote::count(1, matter, &came).unanimous()).count();
            assert!(yes <= 1);
        }
        5 => {
            if let Some(header) = Header::decode(bytes) {
                assert_eq!(header.encode(), bytes);
            }
        }
        6 => {
            // What a key of a store may hold.
            if let Ok(sum) = sum(Some(bytes), 0) {
                assert_eq!(std::str::from_utf8(bytes).expect("a number").parse(), Ok(sum));
            }
        }
        _ => {
            // A key, which is a path where a directory is the store.
            if let Ok(key) = std::str::from_utf8(bytes)
                && (1..=MAX_KEY).contains(&key.len())
            {
                let path = file(Path::new("/r"), key);
                assert!(path.starts_with("/r") && path.components().all(|part| part.as_os_str() != ".."), "{path:?}");
            }
        }
    }
}

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod tests;
