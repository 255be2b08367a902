//! Files of the system, as far as checks look at them.

use std::fs;

/// What a file system has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    /// For a user without privileges.
    pub free: u64,
}

/// Where checks read: the system, or what a test makes up. What cannot be read is not there.
pub trait Files {
    /// The text of a file.
    fn read(&self, path: &str) -> Option<String>;

    /// The names in a folder, in order.
    fn names(&self, folder: &str) -> Vec<String>;

    /// Whether there is such a file or folder.
    fn exists(&self, path: &str) -> bool;

    /// The file system of a path.
    fn space(&self, path: &str) -> Option<Space>;
}

/// Those of this system.
#[derive(Debug)]
pub struct System;

impl Files for System {
    fn read(&self, path: &str) -> Option<String> {
        fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn exists(&self, path: &str) -> bool {
        fs::exists(path).unwrap_or(false)
    }

    fn space(&self, path: &str) -> Option<Space> {
        let path = std::ffi::CString::new(path).ok()?;
        let mut space = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: reads a C string, and writes one struct to a place of its size.
        let status = unsafe { libc::statvfs(path.as_ptr(), space.as_mut_ptr()) };
        if status != 0 {
            return None;
        }
        // SAFETY: the call has succeeded, so all of it is written.
        let space = unsafe { space.assume_init() };
        Some(Space {
            total: space.f_blocks.saturating_mul(space.f_frsize),
            free: space.f_bavail.saturating_mul(space.f_frsize),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_system_has() {
        assert!(System.read("/proc/self/limits").is_some_and(|text| text.contains("Max open files")));
        assert_eq!(System.read("/no/such/file"), None);
        assert!(System.names("/proc/self").contains(&"status".to_owned()) && System.names("/no/such").is_empty());
        assert!(System.exists("/proc/self") && !System.exists("/no/such"));
        let space = System.space("/").unwrap();
        assert!(space.total > 0 && space.free <= space.total);
        assert_eq!(System.space("/no/such"), None);
    }
}
