//! Memory objects: pieces of memory in a file of their own, which other processes can map too.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Mappings start at multiples of this, so that aligned offsets are aligned addresses.
pub(crate) const ALIGN: usize = 2 << 20;

/// A place in an object, for any process of this machine: plain data that may travel in shared memory.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The process that made the object.
    pub pid: u32,
    /// Its descriptor of the file; -1 for the empty range.
    pub fd: i32,
    /// The device whose memory it is, as the machine numbers them.
    pub device: i32,
    /// Tells the object from that of an earlier process with the same pid.
    pub nonce: i32,
    /// Where in the object.
    pub offset: u64,
    /// The size of the object.
    pub bytes: u64,
}

impl Location {
    /// The location of no bytes.
    pub(crate) const EMPTY: Self = Self { pid: 0, fd: -1, device: -1, nonce: 0, offset: 0, bytes: 0 };

    /// Whether both lie in one object.
    pub(crate) fn same_object(&self, other: &Self) -> bool {
        (self.nonce, self.pid, self.fd, self.bytes) == (other.nonce, other.pid, other.fd, other.bytes)
    }

    /// Why there is nothing at this place.
    pub(crate) fn gone(&self) -> io::Error {
        let text = format!("process {} no longer has the memory of {self:?}", self.pid);
        io::Error::new(io::ErrorKind::NotFound, text)
    }
}

/// An object, made by this process or opened.
#[derive(Debug)]
pub(crate) struct Object {
    fd: OwnedFd,
    begin: Location,
}

impl Object {
    /// Makes an object of `bytes` bytes; no page is used before it is written.
    pub(crate) fn new(device: i32, bytes: u64) -> io::Result<Self> {
        let nonce = nonce();
        let name = std::ffi::CString::new(name(nonce)).expect("a name made of digits has no zero byte");
        // SAFETY: `name` is a C string that lives across the call.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the descriptor is open; the call takes no pointers.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let begin = Location { pid: std::process::id(), fd: fd.as_raw_fd(), device, nonce, offset: 0, bytes };
        Ok(Self { fd, begin })
    }

    /// Opens the object of another process in which `location` lies.
    pub(crate) fn open(location: &Location) -> io::Result<Self> {
        let path = format!("/proc/{}/fd/{}", location.pid, location.fd);
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path)?;
        // The file that was opened, not the path: the process may end, and its pid be used again, at any time.
        let opened = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if !opened.to_string_lossy().contains(&name(location.nonce)) || file.metadata()?.len() != location.bytes {
            return Err(location.gone());
        }
        Ok(Self { fd: file.into(), begin: Location { offset: 0, ..*location } })
    }

    /// Where it begins.
    pub(crate) fn begin(&self) -> Location {
        self.begin
    }

    /// Gives the pages of a range back to the system; they read as zero afterwards.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open, and the call takes no pointers. A failure only keeps the pages.
        unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t) };
    }

    /// Maps all of it at a multiple of [`ALIGN`]. Pages are not reserved, and children of this process do not inherit it.
    pub(crate) fn map(&self) -> io::Result<usize> {
        let bytes = self.begin.bytes as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place that the system chooses.
        let room = unsafe { libc::mmap(std::ptr::null_mut(), bytes + ALIGN, libc::PROT_NONE, flags, -1, 0) };
        if room == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = room.wrapping_byte_add(room.addr().wrapping_neg() % ALIGN);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: `base .. base + bytes` lies in the room reserved above, which nobody else uses.
        let mapped = unsafe { libc::mmap(base, bytes, protection, flags, self.fd.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: the room was mapped above and nothing lies in it.
            unsafe { libc::munmap(room, bytes + ALIGN) };
            return Err(error);
        }
        // SAFETY: the range was just mapped. A forked child must not share the memory of its parent's devices.
        unsafe { libc::madvise(mapped, bytes, libc::MADV_DONTFORK) };
        // SAFETY: as above. Larger pages are only a matter of speed.
        unsafe { libc::madvise(mapped, bytes, libc::MADV_HUGEPAGE) };
        Ok(mapped.expose_provenance())
    }
}

fn name(nonce: i32) -> String {
    format!("gpucomm-memory-{:08x}.", nonce.cast_unsigned())
}

fn nonce() -> i32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The standard library seeds each of these from the system's randomness.
    RandomState::new().build_hasher().finish() as i32
}
