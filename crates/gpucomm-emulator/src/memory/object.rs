//! Memory objects: pieces of memory in a file of their own, which any process can map.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::lock::Mutex;
use crate::settings::settings;

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

    /// It as words, in which it goes to other processes.
    pub(crate) fn words(&self) -> [u64; 4] {
        let pair = |low: u32, high: i32| u64::from(low) | u64::from(high.cast_unsigned()) << 32;
        [pair(self.pid, self.fd), pair(self.device.cast_unsigned(), self.nonce), self.offset, self.bytes]
    }

    /// The one that such words say.
    pub(crate) fn from_words([owner, place, offset, bytes]: [u64; 4]) -> Self {
        let high = |word: u64| ((word >> 32) as u32).cast_signed();
        let (pid, fd) = (owner as u32, high(owner));
        Self { pid, fd, device: (place as u32).cast_signed(), nonce: high(place), offset, bytes }
    }

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

/// What stands behind the bytes of an object, in its file: who has it as a descriptor only reads there what it is.
const FOOTER: u64 = 40;
/// How the footer starts.
const MAGIC: u64 = u64::from_ne_bytes(*b"gpucommM");

/// An object, made by this process or opened.
#[derive(Debug)]
pub(crate) struct Object {
    file: File,
    begin: Location,
    /// See [`Self::labelled`].
    label: u64,
}

impl Object {
    /// Makes an object of `bytes` bytes; no page is used before it is written.
    pub(crate) fn new(device: i32, bytes: u64) -> io::Result<Self> {
        Self::labelled(device, bytes, 0)
    }

    /// The same, with a word that whoever gets its descriptor can read.
    pub(crate) fn labelled(device: i32, bytes: u64, label: u64) -> io::Result<Self> {
        let limit = file_limit();
        if bytes.saturating_add(FOOTER) > limit {
            let text =
                format!("{bytes} bytes of a device are a file, of which this process may have {limit} (`ulimit -f`)");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let nonce = nonce();
        let name = std::ffi::CString::new(name(nonce)).expect("a name made of digits has no zero byte");
        // SAFETY: `name` is a C string that lives across the call.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let begin = Location { pid: std::process::id(), fd, device, nonce, offset: 0, bytes };
        let object = Self { file, begin, label };
        let [owner, place, ..] = begin.words();
        object.write(&[MAGIC, bytes, owner, place, label], bytes)?;
        Ok(object)
    }

    /// The object behind a descriptor that another process has sent.
    pub(crate) fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let file = File::from(fd);
        let strange = || io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is that of no memory object");
        let bytes = file.metadata()?.len().checked_sub(FOOTER).ok_or_else(strange)?;
        let object = Self { file, begin: Location::EMPTY, label: 0 };
        let [magic, size, owner, place, label] = object.read(bytes)?;
        if (magic, size) != (MAGIC, bytes) {
            return Err(strange());
        }
        Ok(Self { begin: Location::from_words([owner, place, 0, bytes]), label, ..object })
    }

    /// Writes words into its file.
    pub(super) fn write(&self, words: &[u64], at: u64) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, at)
    }

    /// Reads words from its file.
    pub(super) fn read<const WORDS: usize>(&self, at: u64) -> io::Result<[u64; WORDS]> {
        let mut bytes = vec![0; 8 * WORDS];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * i + byte]))))
    }

    /// Opens the object of another process in which `location` lies.
    pub(crate) fn open(location: &Location) -> io::Result<Self> {
        let path = format!("/proc/{}/fd/{}", location.pid, location.fd);
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path)?;
        // The file that was opened, not the path: the process may end, and its pid be used again, at any time.
        let object = Self::adopt(file.into()).map_err(|_| location.gone())?;
        let same = (object.begin.nonce, object.begin.bytes) == (location.nonce, location.bytes);
        if same { Ok(Self { begin: Location { offset: 0, ..*location }, ..object }) } else { Err(location.gone()) }
    }

    /// Where it begins.
    pub(crate) fn begin(&self) -> Location {
        self.begin
    }

    /// The word that it was made with.
    pub(crate) fn label(&self) -> u64 {
        self.label
    }

    /// A descriptor of it for other processes.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from)
    }

    /// Gives the pages of a range back to the system; they read as zero afterwards.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open, and the call takes no pointers. A failure only keeps the pages.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t) };
    }

    /// Maps all of it, for good, at a multiple of [`ALIGN`].
    pub(crate) fn map(&self) -> io::Result<usize> {
        let room = Room::new(self.begin.bytes as usize, ALIGN)?;
        room.fill(room.base(), self.begin.bytes as usize, &self.file, 0)?;
        Ok(room.keep())
    }

    /// Maps a part of it to `address` and up, in room that is empty there.
    pub(crate) fn map_at(&self, room: &Room, address: usize, offset: u64, bytes: usize) -> io::Result<()> {
        room.fill(address, bytes, &self.file, offset)
    }
}

/// How large a file may be: the system kills who makes a larger one.
fn file_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to the place given.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if asked == 0 { limit.rlim_cur } else { u64::MAX }
}

fn name(nonce: i32) -> String {
    format!("gpucomm-memory-{:08x}.", nonce.cast_unsigned())
}

fn nonce() -> i32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The standard library seeds each of these from the system's randomness.
    RandomState::new().build_hasher().finish() as i32
}

/// A range of addresses that this process keeps for itself. What is not mapped there cannot be touched.
#[derive(Debug)]
pub(crate) struct Room {
    base: usize,
    bytes: usize,
    /// The address ranges that hold a mapping, as (start, end).
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
        let mut filled = self.filled.lock();
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

    /// Removes the mapping that [`Self::fill`] made at `address`. No thread may use it.
    pub(crate) fn clear(&self, address: usize) {
        let mut filled = self.filled.lock();
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
        // SAFETY: this file mapped the range, and no thread uses it.
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

// Objects that consist of parts of others: what a program has mapped side by side, under one name for other ranks.
//
// Such an object has no memory. Its file says which parts it consists of, and who maps it maps those.

/// The bit in the label of such objects. The rest of the label is how many parts there are.
const MARK: u64 = 1 << 63;

/// Where the words of a part begin in the file: its place, and how many bytes.
const WORDS: usize = 5;

/// An object that consists of so many bytes at each of these places, one after the other.
pub(crate) fn new(device: i32, parts: &[(Location, u64)]) -> io::Result<Object> {
    let words: Vec<u64> = parts
        .iter()
        .flat_map(|(place, bytes)| {
            let [owner, of, offset, size] = place.words();
            [owner, of, offset, size, *bytes]
        })
        .collect();
    let bytes = parts.iter().map(|(_, bytes)| bytes).sum();
    let object = Object::labelled(device, bytes, MARK | parts.len() as u64)?;
    object.write(&words, 0)?;
    Ok(object)
}

/// Maps all of an object, for good: the address of its first byte. What the file of another process says is not believed.
pub(crate) fn map(object: &Object) -> io::Result<usize> {
    if object.label() & MARK == 0 {
        return object.map();
    }
    let begin = object.begin();
    let room = Room::new(begin.bytes as usize, ALIGN)?;
    let mut at = 0;
    for number in 0..object.label() & !MARK {
        let [owner, of, offset, size, bytes] = object.read::<WORDS>(number * 8 * WORDS as u64)?;
        let place = Location::from_words([owner, of, offset, size]);
        let part = Object::open(&place)?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= part.begin().bytes);
        if part.label() & MARK != 0 || !fits {
            return Err(place.gone());
        }
        part.map_at(&room, room.base() + at, offset, bytes as usize)?;
        at += bytes as usize;
    }
    if at as u64 != begin.bytes {
        return Err(begin.gone());
    }
    Ok(room.keep())
}

/// A byte that is no zero, no NaN in any type, and no small number in most.
pub(crate) const POISON: u8 = 0xc7;

/// Of memory that is larger than twice this, only so much at both ends: pages that nobody uses shall take no memory.
const EDGE: usize = 1 << 20;

/// Fills memory that is about to be handed out.
///
/// # Safety
/// `bytes` bytes at `memory` may be written, and nobody uses them.
pub(crate) unsafe fn poison(memory: *mut u8, bytes: usize) {
    if !settings().strict {
        return;
    }
    let edge = bytes.min(EDGE);
    // SAFETY: both ranges lie within what the caller vouches for.
    unsafe {
        memory.write_bytes(POISON, edge);
        memory.add(bytes - edge).write_bytes(POISON, edge);
    }
}
