//! The memory of a device: one shared-memory file, mapped sparsely, which other processes can map too.

use super::allocator::Block;
use crate::emulator::cuda::core::device::{Device, devices};
use crate::emulator::cuda::lock;
use crate::sys::cudaError;
use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex};

/// Mappings start at multiples of this, so that aligned offsets are aligned addresses.
const ALIGN: usize = 2 << 20;

/// The memory of one device of this process.
#[derive(Debug)]
pub(crate) struct Arena {
    fd: OwnedFd,
    base: usize,
    bytes: u64,
    device: i32,
    nonce: i32,
}

impl Arena {
    /// Makes and maps a file of `bytes` bytes; no page is used before it is written.
    pub fn new(device: i32, bytes: u64) -> io::Result<Self> {
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
        let base = map_file(fd.as_raw_fd(), bytes as usize)?;
        Ok(Self { fd, base, bytes, device, nonce })
    }

    /// The address of a byte of this arena.
    pub fn at(&self, offset: u64) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.base + offset as usize)
    }

    /// Where `address` lies in this arena, if it does.
    pub fn offset_of(&self, address: usize) -> Option<u64> {
        let offset = address.checked_sub(self.base)? as u64;
        (offset < self.bytes).then_some(offset)
    }

    /// Gives the pages of a range back to the system; they read as zero afterwards.
    pub fn punch(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open, and the call takes no pointers. A failure only keeps the pages.
        unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t) };
    }
}

/// Where a range of device memory lies, for any process of this machine: plain data that may travel in shared memory.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The process that owns the memory.
    pub pid: u32,
    /// Its descriptor of the arena; -1 for the empty range.
    pub fd: i32,
    /// Its number of the device.
    pub device: i32,
    /// Tells the arena from that of an earlier process with the same pid.
    pub nonce: i32,
    /// Where in the arena.
    pub offset: u64,
    /// The size of the arena.
    pub bytes: u64,
}

impl Location {
    /// The location of no bytes.
    pub const EMPTY: Self = Self { pid: 0, fd: -1, device: -1, nonce: 0, offset: 0, bytes: 0 };
}

/// As long as this lives, queued or running work uses an allocation: freeing it meanwhile is reported, and its memory is
/// not handed out again. Drop it when the work is done, before the work is seen to be done.
#[derive(Debug, Default)]
pub(crate) struct InUse(Option<Arc<Block>>);

impl InUse {
    pub(crate) fn new(block: Arc<Block>) -> Self {
        block.begin_use();
        Self(Some(block))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(block) = &self.0 {
            block.end_use();
        }
    }
}

/// Why a range of device memory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The error of the call.
    pub cuda: cudaError,
    /// What is wrong with which pointer; names the nearest allocation.
    pub text: String,
}

impl Fault {
    pub(crate) fn value(text: String) -> Self {
        Self { cuda: cudaError::cudaErrorInvalidValue, text }
    }
}

/// Checks that `bytes` bytes from `ptr` lie inside one live allocation of a device of this process, says where, and counts
/// them as in use. No bytes are always fine.
pub(crate) fn locate(ptr: *const c_void, bytes: usize) -> Result<(Location, InUse), Fault> {
    if bytes == 0 {
        return Ok((Location::EMPTY, InUse::default()));
    }
    let (device, arena, offset) = owner(ptr.addr())
        .ok_or_else(|| Fault::value(format!("{ptr:p} is no device memory ({bytes} bytes were to be used)")))?;
    let block = device.blocks.find(device, ptr.addr(), offset, bytes)?;
    let location = Location {
        pid: std::process::id(),
        fd: arena.fd.as_raw_fd(),
        device: arena.device,
        nonce: arena.nonce,
        offset,
        bytes: arena.bytes,
    };
    Ok((location, InUse::new(block)))
}

/// The device whose arena holds `address`.
pub(crate) fn owner(address: usize) -> Option<(&'static Device, &'static Arena, u64)> {
    devices().iter().find_map(|device| {
        let arena = device.arena_if_made()?;
        Some((device, arena, arena.offset_of(address)?))
    })
}

/// A pointer of this process to what lies at `location`, which may belong to another process. Arenas of others are mapped
/// once and stay mapped, so the pointer stays valid when their process ends.
pub(crate) fn map(location: &Location) -> io::Result<*mut u8> {
    if location.fd < 0 {
        return Ok(std::ptr::without_provenance_mut(ALIGN));
    }
    if location.offset >= location.bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{location:?} lies outside its arena")));
    }
    if location.pid == std::process::id() {
        let own = usize::try_from(location.device).ok().and_then(|ordinal| devices().get(ordinal)?.arena_if_made());
        let own = own.filter(|arena| arena.nonce == location.nonce);
        return own.map(|arena| arena.at(location.offset)).ok_or_else(|| gone(location));
    }
    /// Pid, descriptor, nonce and size.
    type Key = (u32, i32, i32, u64);
    static PEERS: LazyLock<Mutex<HashMap<Key, usize>>> = LazyLock::new(Mutex::default);
    let mut peers = lock(&PEERS);
    let key = (location.pid, location.fd, location.nonce, location.bytes);
    let base = match peers.get(&key) {
        Some(&base) => base,
        None => {
            let base = map_peer(location)?;
            peers.insert(key, base);
            base
        }
    };
    Ok(std::ptr::with_exposed_provenance_mut(base + location.offset as usize))
}

fn map_peer(location: &Location) -> io::Result<usize> {
    let path = format!("/proc/{}/fd/{}", location.pid, location.fd);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path)?;
    // The file that was opened, not the path: the process may end, and its pid be used again, at any time.
    let opened = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if !opened.to_string_lossy().contains(&name(location.nonce)) || file.metadata()?.len() != location.bytes {
        return Err(gone(location));
    }
    map_file(file.as_raw_fd(), location.bytes as usize)
}

fn gone(location: &Location) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("process {} no longer has the memory of {location:?}", location.pid),
    )
}

fn name(nonce: i32) -> String {
    format!("gpucomm-arena-{:08x}.", nonce.cast_unsigned())
}

fn nonce() -> i32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The standard library seeds each of these from the system's randomness.
    RandomState::new().build_hasher().finish() as i32
}

/// Maps a whole file at a multiple of [`ALIGN`]. Pages are not reserved, and children of this process do not inherit it.
fn map_file(fd: i32, bytes: usize) -> io::Result<usize> {
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
    let mapped = unsafe { libc::mmap(base, bytes, protection, flags, fd, 0) };
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
