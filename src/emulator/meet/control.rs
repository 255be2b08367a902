//! The control segment: the shared memory through which the ranks of one communicator meet.
//!
//! A memfd of the process that made the unique id; other processes open it through `/proc/<pid>/fd/<fd>`. Everything
//! in it is atomic and zero means "nothing yet", so a fresh segment needs no initialisation and a hostile or dead
//! peer can make values wrong but no access invalid.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::futex::{Bell, Gate};
use super::process;
use super::stranded::Stranded;
use crate::emulator::nccl::basics::error::{Failure, Outcome};
use crate::emulator::nccl::run::grouping::GROUP_WORDS;
use crate::sys::ncclUniqueId;

/// The most ranks that a communicator can have.
pub(crate) const MAX_RANKS: usize = 256;

/// What a rank tells the others about an operation.
pub(crate) const WORDS: usize = 24;

/// What the two ends of a message tell each other.
pub(crate) const PAIR_WORDS: usize = 9;

const MAGIC: u64 = u64::from_le_bytes(*b"gpucomm1");

/// The head of the segment.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Head {
    nonce: AtomicU64,
    /// Ranks of the communicator; 0 until the first one has come.
    pub(crate) size: AtomicU32,
    /// Ranks that have come.
    pub(crate) joined: AtomicU32,
    /// 0, or the code with which init fails for every rank.
    pub(crate) refused: AtomicU32,
    /// The ranks or sizes that the refusal is about.
    pub(crate) refused_about: [AtomicI32; 2],
    /// Rings when somebody joins, refuses, or is known to be dead.
    pub(crate) news: Bell,
    /// All ranks have come to the next collective operation.
    pub(crate) arrival: Gate,
    /// All ranks have done their share of it.
    pub(crate) departure: Gate,
    /// Set by a rank that could not do its share.
    pub(crate) broken: AtomicU32,
    /// Calls of the host that all ranks make: split, window registration.
    pub(crate) host: Gate,
    /// First meetings inside calls of collectives. See [`crate::emulator::nccl::calls::connect`].
    pub(crate) connect: Gate,
    /// A bit for each window that a rank took with it when it ended.
    pub(crate) stranded: Stranded,
}

/// What a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Absent,
    Joined,
    Destroyed,
    Aborted,
    Dead,
}

/// One rank's part of the segment.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Rank {
    /// Process id; claims the place.
    pub(crate) pid: AtomicU32,
    life: AtomicU32,
    pub(crate) born: AtomicU64,
    pub(crate) device: AtomicI32,
    /// Collective operations that this rank has come to.
    pub(crate) arrived: AtomicU64,
    /// Collective operations that this rank has done its share of.
    pub(crate) departed: AtomicU64,
    /// Calls of the host that this rank has come to.
    pub(crate) hosted: AtomicU64,
    /// First meetings inside calls of collectives that this rank has come to.
    pub(crate) connected: AtomicU64,
    /// What it is doing, for reports. See [`crate::emulator::nccl::wait::deadlock`].
    pub(crate) activity: [AtomicU64; 4],
    /// Rings when a message to or from this rank has made progress.
    pub(crate) bell: Bell,
    /// The collective operation it has come to.
    pub(crate) words: [AtomicU64; WORDS],
    /// What the group holds that it is at. See [`crate::emulator::nccl::run::grouping`].
    pub(crate) group: [AtomicU64; GROUP_WORDS],
    /// The host call it has come to.
    pub(crate) host_words: [AtomicU64; WORDS],
}

impl Rank {
    pub(crate) fn life(&self) -> Life {
        match self.life.load(Ordering::Acquire) {
            0 => Life::Absent,
            1 => Life::Joined,
            2 => Life::Destroyed,
            3 => Life::Aborted,
            _ => Life::Dead,
        }
    }

    pub(crate) fn set_life(&self, life: Life) {
        let life = match life {
            Life::Absent => 0,
            Life::Joined => 1,
            Life::Destroyed => 2,
            Life::Aborted => 3,
            Life::Dead => 4,
        };
        self.life.store(life, Ordering::Release);
    }

    /// Whether the rank will never do anything again, because its process has ended or a fault stopped it.
    pub(crate) fn dead(&self) -> bool {
        match self.life() {
            Life::Dead => true,
            Life::Absent => false,
            _ => {
                let (pid, born) = (self.pid.load(Ordering::Acquire), self.born.load(Ordering::Acquire));
                if process::alive(pid, born) {
                    return false;
                }
                self.set_life(Life::Dead);
                true
            }
        }
    }
}

/// One message at a time between an ordered pair of ranks.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Pair {
    /// See [`crate::emulator::nccl::run::p2p`].
    pub(crate) state: AtomicU32,
    /// How far the sender and the receiver are with their first meeting. See [`crate::emulator::nccl::calls::connect`].
    pub(crate) met: [AtomicU32; 2],
    _pad: AtomicU32,
    /// Messages that were sent and received.
    pub(crate) done: AtomicU64,
    pub(crate) sender: [AtomicU64; PAIR_WORDS],
    pub(crate) receiver: [AtomicU64; PAIR_WORDS],
}

const HEAD_BYTES: usize = 4096;
const RANK_BYTES: usize = size_of::<Rank>();
const PAIR_BYTES: usize = size_of::<Pair>();
const PAIRS_AT: usize = HEAD_BYTES + MAX_RANKS * RANK_BYTES;
const BYTES: usize = PAIRS_AT + MAX_RANKS * MAX_RANKS * PAIR_BYTES;
const _: () =
    assert!(size_of::<Head>() <= HEAD_BYTES && RANK_BYTES.is_multiple_of(64) && PAIR_BYTES.is_multiple_of(64));

/// A mapped control segment.
#[derive(Debug)]
pub(crate) struct Segment {
    base: *mut u8,
    nonce: u64,
}

// SAFETY: the mapping is process-wide and everything in it is atomic.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `base` was mapped with this length and nobody can refer to it after the last owner is gone.
        unsafe { libc::munmap(self.base.cast(), BYTES) };
    }
}

impl Segment {
    fn map(file: &impl AsRawFd, nonce: u64) -> std::io::Result<Self> {
        // SAFETY: a fresh shared mapping of a file that is at least this long; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), nonce })
    }

    pub(crate) fn head(&self) -> &Head {
        // SAFETY: the mapping is long enough and page-aligned, holds only atomics, and outlives `self`.
        unsafe { &*self.base.cast::<Head>() }
    }

    pub(crate) fn rank(&self, rank: usize) -> &Rank {
        assert!(rank < MAX_RANKS);
        // SAFETY: as in `head`; the index was checked.
        unsafe { &*self.base.add(HEAD_BYTES + rank * RANK_BYTES).cast::<Rank>() }
    }

    pub(crate) fn pair(&self, from: usize, to: usize) -> &Pair {
        assert!(from < MAX_RANKS && to < MAX_RANKS);
        // The distance does not depend on the communicator's size, so pages are touched only where messages go.
        let index = from * MAX_RANKS + to;
        // SAFETY: as in `head`; the index was checked.
        unsafe { &*self.base.add(PAIRS_AT + index * PAIR_BYTES).cast::<Pair>() }
    }

    /// A number that names this segment on the machine.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }
}

/// The files of segments made here, kept open until every rank has joined; and all mappings of this process.
#[derive(Default)]
struct Known {
    made: HashMap<u64, (Option<OwnedFd>, Arc<Segment>)>,
    /// Which of `made` have a file, oldest first.
    files: VecDeque<u64>,
    mapped: HashMap<u64, Weak<Segment>>,
}

/// The most files of segments that wait for their ranks; ids that are made and never used must not use up all files.
const FILES: usize = 128;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known<R>(f: impl FnOnce(&mut Known) -> R) -> R {
    let mut guard: MutexGuard<'_, Option<Known>> = KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    f(guard.get_or_insert_with(Known::default))
}

fn random() -> Outcome<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most eight bytes into the array.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 8 {
        return Err(Failure::system(format!("getrandom: {}", std::io::Error::last_os_error())));
    }
    Ok(u64::from_ne_bytes(bytes) | 1)
}

/// Makes a segment and the id that leads to it.
pub(crate) fn create() -> Outcome<ncclUniqueId> {
    let failed = |what: &str| Failure::system(format!("{what}: {}", std::io::Error::last_os_error()));
    // SAFETY: the name is a C string; the call returns a new descriptor or -1.
    let fd = unsafe { libc::memfd_create(c"gpucomm-control".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(failed("memfd_create"));
    }
    // SAFETY: the descriptor is new and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), BYTES as libc::off_t) } != 0 {
        return Err(failed("ftruncate of a control segment"));
    }
    let nonce = random()?;
    let segment = Segment::map(&fd, nonce).map_err(|e| Failure::system(format!("mmap of a control segment: {e}")))?;
    segment.head().nonce.store(nonce, Ordering::Release);
    let pid = std::process::id();
    let mut bytes = [0u8; 128];
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..12].copy_from_slice(&pid.to_le_bytes());
    bytes[12..16].copy_from_slice(&fd.as_raw_fd().to_le_bytes());
    bytes[16..24].copy_from_slice(&nonce.to_le_bytes());
    bytes[24..32].copy_from_slice(&process::born(pid).unwrap_or(0).to_le_bytes());
    let segment = Arc::new(segment);
    known(|known| {
        known.mapped.insert(nonce, Arc::downgrade(&segment));
        known.made.insert(nonce, (Some(fd), segment));
        known.files.push_back(nonce);
        while known.files.len() > FILES
            && let Some(oldest) = known.files.pop_front()
        {
            // Ranks of this process can still join.
            if let Some((file, _)) = known.made.get_mut(&oldest) {
                *file = None;
            }
        }
    });
    Ok(encode(&bytes))
}

fn encode(bytes: &[u8; 128]) -> ncclUniqueId {
    ncclUniqueId { internal: bytes.map(|byte| byte as _) }
}

/// The eight words of an id that mean anything, to hand it on through shared memory.
pub(crate) fn id_words(id: &ncclUniqueId) -> [u64; 4] {
    let bytes = id.internal.map(|byte| byte as u8);
    std::array::from_fn(|i| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap_or_default()))
}

/// The id that [`id_words`] took apart.
pub(crate) fn id_from_words(words: [u64; 4]) -> ncclUniqueId {
    let mut bytes = [0u8; 128];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    encode(&bytes)
}

/// Finds the segment that `id` leads to.
pub(crate) fn open(id: &ncclUniqueId) -> Outcome<Arc<Segment>> {
    let [magic, place, nonce, born] = id_words(id);
    let (pid, fd) = (place as u32, (place >> 32) as i32);
    if magic != MAGIC || pid == 0 || fd < 0 || nonce == 0 {
        return Err(Failure::argument("these 128 bytes are no unique id of this emulator"));
    }
    if let Some(segment) = known(|known| known.mapped.get(&nonce).and_then(Weak::upgrade)) {
        return Ok(segment);
    }
    if !process::alive(pid, born) {
        return Err(Failure::system(format!("the process {pid} that made the unique id has ended")));
    }
    let path = format!("/proc/{pid}/fd/{fd}");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(&path)
        .map_err(|e| Failure::system(format!("cannot open the unique id's control segment {path}: {e}")))?;
    let stale = || Failure::argument(format!("the unique id of process {pid} is no longer valid (it was used)"));
    if file.metadata().map_or(0, |meta: std::fs::Metadata| meta.len()) < BYTES as u64 {
        return Err(stale());
    }
    map_opened(&file, nonce, stale)
}

fn map_opened(file: &File, nonce: u64, stale: impl Fn() -> Failure) -> Outcome<Arc<Segment>> {
    let segment = Segment::map(file, nonce).map_err(|e| Failure::system(format!("mmap of a control segment: {e}")))?;
    if segment.head().nonce.load(Ordering::Acquire) != nonce {
        return Err(stale());
    }
    Ok(known(|known| {
        if let Some(segment) = known.mapped.get(&nonce).and_then(Weak::upgrade) {
            return segment;
        }
        known.mapped.retain(|_, segment| segment.strong_count() > 0);
        let segment = Arc::new(segment);
        known.mapped.insert(nonce, Arc::downgrade(&segment));
        segment
    }))
}

/// Closes the file of a segment that every rank has joined: no other can come.
pub(crate) fn complete(segment: &Segment) {
    known(|known| {
        if known.made.remove(&segment.nonce).is_some() {
            known.files.retain(|nonce| *nonce != segment.nonce);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_segment_in_the_same_process() {
        let id = create().expect("a segment");
        let first = open(&id).expect("found");
        let again = open(&id_from_words(id_words(&id))).expect("found");
        assert!(Arc::ptr_eq(&first, &again));
        first.head().size.store(7, Ordering::Relaxed);
        assert_eq!(again.head().size.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn unused_ids_do_not_use_up_files() {
        let ids: Vec<_> = (0..3 * FILES).map(|_| create().expect("a segment")).collect();
        assert!(known(|known| known.made.values().filter(|(file, _)| file.is_some()).count()) <= FILES);
        assert!(open(&ids[0]).is_ok(), "ranks of this process can still join");
    }

    #[test]
    fn bytes_that_are_no_id_are_refused() {
        let mut id = create().expect("a segment");
        id.internal[0] ^= 1;
        assert!(open(&id).is_err());
        assert!(open(&ncclUniqueId { internal: [0; 128] }).is_err());
    }
}
