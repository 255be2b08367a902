//! Room in the address space: addresses that nobody else gets, and what is mapped there.

use crate::lock::lock;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Mutex;

/// A range of addresses that this process keeps for itself. What is not mapped there cannot be touched.
#[derive(Debug)]
pub(crate) struct Room {
    base: usize,
    bytes: usize,
    /// Where something is mapped: from, to.
    filled: Mutex<Vec<(usize, usize)>>,
}

impl Room {
    /// Keeps `bytes` addresses, the first of them a multiple of `align`, which is a power of two of at least a page.
    pub(crate) fn new(bytes: usize, align: usize) -> io::Result<Self> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let all = bytes.checked_add(align).ok_or_else(too_much)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place that the system chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.expose_provenance();
        let base = start.next_multiple_of(align);
        give_back(start, base - start);
        give_back(base + bytes, start + all - (base + bytes));
        Ok(Self { base, bytes, filled: Mutex::default() })
    }

    /// The first address.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// How many addresses there are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Leaves everything as it is, for good: the first address.
    pub(crate) fn keep(self) -> usize {
        let mut room = ManuallyDrop::new(self);
        room.filled = Mutex::default();
        room.base
    }

    /// Maps a part of a file. Pages are not reserved, and children of this process do not inherit them. An error where something is
    /// mapped there.
    pub(crate) fn fill(&self, address: usize, bytes: usize, file: &File, offset: u64) -> io::Result<()> {
        let end = address.checked_add(bytes).filter(|&end| address >= self.base && end <= self.base + self.bytes);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        let mut filled = lock(&self.filled);
        if filled.iter().any(|&(from, to)| from < end && address < to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: the range is room of this one's, and nothing is mapped there.
        let mapped = unsafe { map_over(address, bytes, protection, flags, file.as_raw_fd(), offset) }?;
        // SAFETY: the range was just mapped. A forked child must not share the memory of its parent's devices.
        unsafe { libc::madvise(mapped, bytes, libc::MADV_DONTFORK) };
        // SAFETY: as above. Larger pages are only a matter of speed.
        unsafe { libc::madvise(mapped, bytes, libc::MADV_HUGEPAGE) };
        filled.push((address, end));
        Ok(())
    }

    /// Takes away what [`Self::fill`] has mapped at `address`. Nobody uses it any more.
    pub(crate) fn clear(&self, address: usize) {
        let mut filled = lock(&self.filled);
        let Some(at) = filled.iter().position(|&(from, _)| from == address) else { return };
        let bytes = filled[at].1 - address;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the range is room of this one's, and who had it mapped has done with it.
        if unsafe { map_over(address, bytes, libc::PROT_NONE, flags, -1, 0) }.is_ok() {
            filled.swap_remove(at);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        give_back(self.base, self.bytes);
    }
}

/// Gives a range of addresses back to the system.
fn give_back(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the range is part of a mapping of this file's, and nobody uses it any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), bytes) };
    }
}

/// # Safety
/// Nobody uses what is mapped in the range, all of which is room of one [`Room`].
unsafe fn map_over(
    address: usize,
    bytes: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> io::Result<*mut libc::c_void> {
    let at = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: what was there is replaced, and the caller vouches for it.
    let mapped = unsafe { libc::mmap(at, bytes, protection, flags | libc::MAP_FIXED, fd, offset as libc::off_t) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    mapped.expose_provenance();
    Ok(mapped)
}
