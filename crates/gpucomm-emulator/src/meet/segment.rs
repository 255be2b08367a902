//! The control segment: the shared memory through which ranks communicate, and its layout.
//!
//! The process that creates the id creates a memfd. Other processes open it through
//! `/proc/<pid>/fd/<fd>`.
//!
//! A segment holds a head, a part for each rank, and a part for each pair of ranks. All fields are
//! atomics, and zero means "nothing yet". So a new segment needs no initialization, and a dead or
//! hostile peer can write wrong values but cannot make an access invalid.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::meet::futex::Bell;

/// Returns the state letter of a process, and its start time in clock ticks since the machine booted.
fn stat(pid: u32) -> Option<(u8, u64)> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so fields are counted from its end.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 2..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let born = fields.nth(18)?.parse().ok()?;
    Some((state, born))
}

/// The start time of a process. Together with the process id it is unique.
pub(crate) fn process_born(pid: u32) -> Option<u64> {
    stat(pid).map(|(_, born)| born)
}

/// Whether the process with this id and start time is running. A zombie is not.
pub(crate) fn process_lives(pid: u32, started: u64) -> bool {
    if pid == std::process::id() {
        return true;
    }
    match stat(pid) {
        Some((state, born)) => !matches!(state, b'Z' | b'X' | b'x') && (started == 0 || born == started),
        None => {
            // Without /proc, only signal 0 tells, and it takes a zombie for a running process.
            // SAFETY: signal 0 sends nothing.
            !std::path::Path::new("/proc/self/stat").exists() && unsafe { libc::kill(pid as libc::pid_t, 0) } == 0
        }
    }
}

/// The most ranks of one segment.
pub(crate) const MAX_RANKS: usize = 256;

/// The number of words that a rank writes in a meeting, at most.
pub(crate) const WORDS: usize = 24;

/// The head of the segment.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Head {
    pub(super) nonce: AtomicU64,
    /// The number of ranks. 0 until the first one joins.
    pub(crate) size: AtomicU32,
    /// The number of ranks that have joined.
    pub(crate) joined: AtomicU32,
    /// The error code with which the start fails on every rank, or 0.
    pub(crate) refused: AtomicU32,
    /// The ranks or sizes that the error names.
    pub(crate) refused_about: [AtomicI32; 2],
    /// Rings when a rank joins, refuses the start, reaches a step of a meeting, or is found dead.
    pub(crate) news: Bell,
}

/// The state of a rank.
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
    /// The process id. A rank joins by setting it.
    pub(crate) pid: AtomicU32,
    life: AtomicU32,
    pub(crate) born: AtomicU64,
    /// The current call of the rank, for reports. See [`crate::meet::watch`].
    pub(crate) activity: [AtomicU64; 4],
    /// Rings when an operation between this rank and another makes progress.
    pub(crate) bell: Bell,
    /// The words of the rank in a meeting. See [`crate::meet::meeting`].
    pub(crate) board: [AtomicU64; WORDS],
}

// The lives of ranks, as numbers that processes share.
const ABSENT: u32 = 0;
const JOINED: u32 = 1;
const DESTROYED: u32 = 2;
const ABORTED: u32 = 3;
const DEAD: u32 = 4;

impl Rank {
    pub(crate) fn life(&self) -> Life {
        match self.life.load(Ordering::Acquire) {
            ABSENT => Life::Absent,
            JOINED => Life::Joined,
            DESTROYED => Life::Destroyed,
            ABORTED => Life::Aborted,
            _ => Life::Dead,
        }
    }

    pub(crate) fn set_life(&self, life: Life) {
        let life = match life {
            Life::Absent => ABSENT,
            Life::Joined => JOINED,
            Life::Destroyed => DESTROYED,
            Life::Aborted => ABORTED,
            Life::Dead => DEAD,
        };
        self.life.store(life, Ordering::Release);
    }

    /// Whether its process is halted by a signal or a debugger: it does nothing until somebody continues it.
    pub(crate) fn is_halted(&self) -> bool {
        matches!(stat(self.pid.load(Ordering::Acquire)), Some((b'T' | b't', _)))
    }

    /// Whether the rank is dead: its process has ended, or an injected fault has stopped it. A rank that
    /// left before its process ended keeps its life: it may have done all that it was waited for.
    pub(crate) fn dead(&self) -> bool {
        match self.life() {
            Life::Dead => true,
            Life::Absent => false,
            _ => {
                let (pid, born) = (self.pid.load(Ordering::Acquire), self.born.load(Ordering::Acquire));
                if process_lives(pid, born) {
                    return false;
                }
                // It may have left between the two looks.
                let _ = self.life.compare_exchange(JOINED, DEAD, Ordering::AcqRel, Ordering::Relaxed);
                true
            }
        }
    }
}

/// An ordered pair of ranks.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Pair {
    /// The steps of meetings that the first rank has announced to the second. See
    /// [`crate::meet::meeting`].
    pub(crate) told: AtomicU64,
}

/// The fields that a library adds to a segment: common ones, those of each rank, and those of each pair
/// of ranks.
///
/// # Safety
/// Zeros are a valid value of each type, and so is anything that other processes write at any time. No
/// two plans have the same name.
pub(crate) unsafe trait Plan {
    /// Identifies segments of this plan.
    const NAME: [u8; 8];
    type Common: Sync;
    type Own: Sync;
    type Between: Sync;
}

/// The largest alignment of a part.
const ALIGN: usize = 64;
/// The size of the head with the common fields: one page.
const HEAD_BYTES: usize = 4096;

/// The layout of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) name: u64,
    /// The offsets of the plan's fields from the start of the segment, of a rank, and of a pair.
    pub(super) common: usize,
    pub(super) own: usize,
    pub(super) between: usize,
    /// The distances between two ranks, and between two pairs.
    rank: usize,
    pair: usize,
}

const fn behind<Meet, Part>() -> usize {
    assert!(align_of::<Meet>() <= ALIGN && align_of::<Part>() <= ALIGN);
    size_of::<Meet>().next_multiple_of(align_of::<Part>())
}

const fn stride<Meet, Part>() -> usize {
    (behind::<Meet, Part>() + size_of::<Part>()).next_multiple_of(ALIGN)
}

impl Shape {
    pub(super) const fn of<P: Plan>() -> Self {
        assert!(stride::<Head, P::Common>() <= HEAD_BYTES);
        Self {
            name: u64::from_le_bytes(P::NAME),
            common: behind::<Head, P::Common>(),
            own: behind::<Rank, P::Own>(),
            between: behind::<Pair, P::Between>(),
            rank: stride::<Rank, P::Own>(),
            pair: stride::<Pair, P::Between>(),
        }
    }

    /// The offset of a rank.
    pub(super) fn rank(&self, rank: usize) -> usize {
        assert!(rank < MAX_RANKS);
        HEAD_BYTES + rank * self.rank
    }

    /// The offset of a pair. It does not depend on the number of ranks, so the system only provides the
    /// pages of pairs that exchange messages.
    pub(super) fn pair(&self, from: usize, to: usize) -> usize {
        assert!(from < MAX_RANKS && to < MAX_RANKS);
        HEAD_BYTES + MAX_RANKS * self.rank + (from * MAX_RANKS + to) * self.pair
    }

    /// The size of a segment.
    pub(super) fn bytes(&self) -> usize {
        HEAD_BYTES + MAX_RANKS * self.rank + MAX_RANKS * MAX_RANKS * self.pair
    }
}

/// A plan for tests, with parts of odd sizes.
#[cfg(test)]
pub(crate) mod bare {
    use super::Plan;
    use std::sync::atomic::{AtomicU8, AtomicU64};

    #[derive(Debug)]
    pub(crate) struct Bare;

    // SAFETY: all is atomic, and the name is used once.
    unsafe impl Plan for Bare {
        const NAME: [u8; 8] = *b"bareplan";
        type Common = AtomicU64;
        type Own = [AtomicU8; 3];
        type Between = AtomicU8;
    }
}

/// Why a segment cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The caller passed an invalid id.
    Invalid(String),
    /// A system call failed.
    System(String),
}

/// Identifies a segment for all processes of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id([u64; 4]);

impl Id {
    /// The id as words, to pass it on through shared memory.
    pub(crate) fn words(self) -> [u64; 4] {
        self.0
    }

    /// The id with these [`words`](Self::words). [`open`] checks it.
    pub(crate) fn from_words(words: [u64; 4]) -> Self {
        Self(words)
    }

    /// The random number that identifies the segment on the machine.
    pub(super) fn nonce(self) -> u64 {
        self.0[2]
    }
}

/// A mapped control segment.
#[derive(Debug)]
pub(crate) struct Segment {
    base: *mut u8,
    nonce: u64,
    shape: Shape,
}

// SAFETY: the mapping is process-wide and everything in it is atomic.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `base` was mapped with this length and nobody can refer to it after the last owner is gone.
        unsafe { libc::munmap(self.base.cast(), self.shape.bytes()) };
    }
}

impl Segment {
    fn map(file: &impl AsRawFd, nonce: u64, shape: Shape) -> std::io::Result<Self> {
        // SAFETY: a fresh shared mapping of a file that is at least this long; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                shape.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), nonce, shape })
    }

    pub(crate) fn head(&self) -> &Head {
        // SAFETY: the mapping is long enough and page-aligned, holds only atomics, and outlives `self`.
        unsafe { &*self.base.cast::<Head>() }
    }

    pub(crate) fn rank(&self, rank: usize) -> &Rank {
        // SAFETY: as in `head`; the shape checks the index.
        unsafe { &*self.base.add(self.shape.rank(rank)).cast::<Rank>() }
    }

    pub(crate) fn pair(&self, from: usize, to: usize) -> &Pair {
        // SAFETY: as in `head`; the shape checks the indices.
        unsafe { &*self.base.add(self.shape.pair(from, to)).cast::<Pair>() }
    }

    /// The common fields of the plan.
    pub(crate) fn common_of<P: Plan>(&self) -> &P::Common {
        // SAFETY: as in `part`.
        unsafe { self.part::<P, _>(self.shape.common) }
    }

    /// The fields of the plan for a rank.
    pub(crate) fn own_of<P: Plan>(&self, rank: usize) -> &P::Own {
        // SAFETY: as in `part`.
        unsafe { self.part::<P, _>(self.shape.rank(rank) + self.shape.own) }
    }

    /// The fields of the plan for a pair of ranks.
    pub(crate) fn between_of<P: Plan>(&self, from: usize, to: usize) -> &P::Between {
        // SAFETY: as in `part`.
        unsafe { self.part::<P, _>(self.shape.pair(from, to) + self.shape.between) }
    }

    /// A field of the plan.
    ///
    /// # Safety
    /// In a segment of plan `P`, a `T` lies at offset `at`.
    unsafe fn part<P: Plan, T>(&self, at: usize) -> &T {
        assert_eq!(self.shape.name, u64::from_le_bytes(P::NAME), "a segment of another plan");
        // SAFETY: the segment has this plan, because no two plans have the same name, and the caller
        // promises the offset. The mapping lives as long as `self`. The plan promises that the value is
        // valid whatever other processes write.
        unsafe { &*self.base.add(at).cast::<T>() }
    }

    /// The random number that identifies the segment on the machine.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }
}

fn random() -> Result<u64, Trouble> {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most eight bytes into the array.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 8 {
        return Err(Trouble::System(format!("getrandom: {}", std::io::Error::last_os_error())));
    }
    Ok(u64::from_ne_bytes(bytes) | 1)
}

fn unmapped(error: std::io::Error) -> Trouble {
    Trouble::System(format!("mmap of a control segment: {error}"))
}

/// Creates a segment of this shape. Returns it with its file, which other processes open, and its id.
pub(super) fn make(shape: Shape) -> Result<(Segment, OwnedFd, Id), Trouble> {
    let failed = |what: &str| Trouble::System(format!("{what}: {}", std::io::Error::last_os_error()));
    // SAFETY: the name is a C string; the call returns a new descriptor or -1.
    let fd = unsafe { libc::memfd_create(c"gpucomm-control".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(failed("memfd_create"));
    }
    // SAFETY: the descriptor is new, so nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), shape.bytes() as libc::off_t) } != 0 {
        return Err(failed("ftruncate of a control segment"));
    }
    let nonce = random()?;
    let segment = Segment::map(&fd, nonce, shape).map_err(unmapped)?;
    segment.head().nonce.store(nonce, Ordering::Release);
    let pid = std::process::id();
    let place = u64::from(pid) | u64::from(fd.as_raw_fd().cast_unsigned()) << 32;
    Ok((segment, fd, Id([shape.name, place, nonce, process_born(pid).unwrap_or(0)])))
}

/// Checks that `id` is the id of a segment of this shape.
pub(super) fn check(id: Id, shape: Shape) -> Result<(), Trouble> {
    let Id([name, place, nonce, _]) = id;
    if name != shape.name || place as u32 == 0 || ((place >> 32) as u32).cast_signed() < 0 || nonce == 0 {
        return Err(Trouble::Invalid("these 128 bytes are no unique id of this emulator".to_owned()));
    }
    Ok(())
}

/// Maps a segment that another process has created.
pub(super) fn open(id: Id, shape: Shape) -> Result<Segment, Trouble> {
    let Id([_, place, nonce, born]) = id;
    let (pid, fd) = (place as u32, place >> 32);
    if !process_lives(pid, born) {
        return Err(Trouble::System(format!("the process {pid} that made the unique id has ended")));
    }
    let path = format!("/proc/{pid}/fd/{fd}");
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(&path)
        .map_err(|e| Trouble::System(format!("cannot open the unique id's control segment {path}: {e}")))?;
    let stale = || Trouble::Invalid(format!("the unique id of process {pid} is no longer valid (it was used)"));
    if file.metadata().map_or(0, |meta| meta.len()) < shape.bytes() as u64 {
        return Err(stale());
    }
    let segment = Segment::map(&file, nonce, shape).map_err(unmapped)?;
    if segment.head().nonce.load(Ordering::Acquire) != nonce {
        return Err(stale());
    }
    Ok(segment)
}

#[cfg(test)]
mod process_tests {
    use super::*;

    #[test]
    fn this_process_runs_and_an_ended_one_does_not() {
        let me = std::process::id();
        assert!(process_lives(me, process_born(me).expect("/proc")));
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let pid = child.id();
        let started = process_born(pid).unwrap_or(0);
        // The child becomes a zombie, because it is not reaped yet.
        for _ in 0..200 {
            if !process_lives(pid, started) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!process_lives(pid, started));
        child.wait().expect("the child ends");
        assert!(!process_lives(pid, started));
    }
}
