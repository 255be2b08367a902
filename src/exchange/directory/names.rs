//! The files of keys.
//!
//! Each part of a key between its slashes is a directory, and the last one is a file, so that all keys below one can be removed
//! together. A file's name begins with `=`, a directory's with `+`: no key is another one's directory, and none leads elsewhere.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// File systems take names of 255 bytes; longer ones go on in a directory of their own.
const NAME: usize = 200;

/// What stands for a part of a key: letters, digits, `-` and `_` as they are, any other byte as `%` and two hex digits.
fn escaped(part: &str) -> String {
    let mut name = String::with_capacity(part.len());
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => write!(name, "%{byte:02x}").unwrap_or_default(),
        }
    }
    name
}

/// Appends a part, whose last name begins with `sign`.
fn push(path: &mut PathBuf, part: &str, sign: char) {
    let name = escaped(part);
    let mut rest = name.as_str();
    while rest.len() > NAME {
        let (head, tail) = rest.split_at(NAME);
        path.push(format!("~{head}"));
        rest = tail;
    }
    path.push(format!("{sign}{rest}"));
}

/// The file of a key.
pub(in crate::exchange) fn file(root: &Path, key: &str) -> PathBuf {
    let mut path = root.to_owned();
    let (parts, last) = key.rsplit_once('/').map_or((None, key), |(parts, last)| (Some(parts), last));
    for part in parts.into_iter().flat_map(|parts| parts.split('/')) {
        push(&mut path, part, '+');
    }
    push(&mut path, last, '=');
    path
}

/// The directory of all keys that begin with `prefix`, which ends with a slash.
pub(super) fn directory(root: &Path, prefix: &str) -> PathBuf {
    let mut path = root.to_owned();
    for part in prefix.strip_suffix('/').unwrap_or(prefix).split('/') {
        push(&mut path, part, '+');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_files_of_their_own_below_the_root() {
        let root = Path::new("/r");
        let long = "ö".repeat(300);
        let keys = [
            "a", "a/a", "a/", "/a", "/", "//", ".", "..", "../a", "A", "%61", "+a", "=a", "~a", "a/+a", &long, "a\0",
            "a b",
        ];
        let files: std::collections::BTreeSet<_> = keys.iter().map(|key| file(root, key)).collect();
        assert_eq!(files.len(), keys.len());
        for path in &files {
            let names = path.strip_prefix(root).unwrap().components();
            assert!(names.map(|name| name.as_os_str().len()).all(|len| (1..=NAME + 1).contains(&len)), "{path:?}");
            assert!(!path.components().any(|part| part == std::path::Component::ParentDir), "{path:?}");
        }
        assert_eq!(file(root, "g/1/x.y"), Path::new("/r/+g/+1/=x%2ey"));
        assert_eq!(directory(root, "g/1/"), Path::new("/r/+g/+1"));
        assert!(file(root, "a/b/c").starts_with(directory(root, "a/b/")));
    }
}
