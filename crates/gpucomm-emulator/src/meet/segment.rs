//! The control segment: the shared memory through which ranks meet.
//!
//! A memfd of the process that made the id; other processes open it through `/proc/<pid>/fd/<fd>`.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering;

use super::layout::{Head, Pair, Rank};
use super::plan::{Plan, Shape};
use super::process;
use super::trouble::Trouble;

/// Leads to a segment, from any process of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id([u64; 4]);

impl Id {
    /// All of it, to hand it on through shared memory.
    pub(crate) fn words(self) -> [u64; 4] {
        self.0
    }

    /// What [`Self::words`] took apart; whether it is an id shows when it is opened.
    pub(crate) fn from_words(words: [u64; 4]) -> Self {
        Self(words)
    }

    /// The number that names the segment on the machine.
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

    /// What its ranks share beside the head.
    pub(crate) fn common_of<P: Plan>(&self) -> &P::Common {
        // SAFETY: as in `part`.
        unsafe { self.part::<P, _>(self.shape.common) }
    }

    /// What a rank shows beside what it is.
    pub(crate) fn own_of<P: Plan>(&self, rank: usize) -> &P::Own {
        // SAFETY: as in `part`.
        unsafe { self.part::<P, _>(self.shape.rank(rank) + self.shape.own) }
    }

    /// What lies between two ranks beside their meetings.
    pub(crate) fn between_of<P: Plan>(&self, from: usize, to: usize) -> &P::Between {
        // SAFETY: as in `part`.
        unsafe { self.part::<P, _>(self.shape.pair(from, to) + self.shape.between) }
    }

    /// A part that the plan of this segment has added.
    ///
    /// # Safety
    /// A `T` of plan `P` lies at `at` in a segment of that plan.
    unsafe fn part<P: Plan, T>(&self, at: usize) -> &T {
        assert_eq!(self.shape.name, u64::from_le_bytes(P::NAME), "a segment of another plan");
        // SAFETY: the segment is of this plan, whose name no other has; the caller vouches for the place. The mapping outlives `self`, and
        // what lies there is valid whatever others write, as plans promise.
        unsafe { &*self.base.add(at).cast::<T>() }
    }

    /// A number that names this segment on the machine.
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

/// Makes a segment of that shape: its file, which others open, and the id that leads to it.
pub(super) fn make(shape: Shape) -> Result<(Segment, OwnedFd, Id), Trouble> {
    let failed = |what: &str| Trouble::System(format!("{what}: {}", std::io::Error::last_os_error()));
    // SAFETY: the name is a C string; the call returns a new descriptor or -1.
    let fd = unsafe { libc::memfd_create(c"gpucomm-control".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(failed("memfd_create"));
    }
    // SAFETY: the descriptor is new and nobody else owns it.
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
    Ok((segment, fd, Id([shape.name, place, nonce, process::born(pid).unwrap_or(0)])))
}

/// Checks that `id` is one of a segment of that shape.
pub(super) fn check(id: Id, shape: Shape) -> Result<(), Trouble> {
    let Id([name, place, nonce, _]) = id;
    if name != shape.name || place as u32 == 0 || ((place >> 32) as u32).cast_signed() < 0 || nonce == 0 {
        return Err(Trouble::Invalid("these 128 bytes are no unique id of this emulator".to_owned()));
    }
    Ok(())
}

/// Maps the segment of another process that `id` leads to.
pub(super) fn open(id: Id, shape: Shape) -> Result<Segment, Trouble> {
    let Id([_, place, nonce, born]) = id;
    let (pid, fd) = (place as u32, place >> 32);
    if !process::alive(pid, born) {
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
