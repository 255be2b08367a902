//! A board in memory that the processes of one host share: each rank leaves its note of a round there, which saves a trip to the
//! store.
//!
//! Rank 0 makes a file that is memory and has no name. In its note of round 0 it says where `/proc` shows it. The others map it and
//! say in their notes of round 1 whether they could. All ranks read the same notes, so all of them use the board from round 2 on,
//! or none of them does: ranks on several hosts, or in containers that do not see each other's processes, keep to the store.
//! Nothing is left over when a rank is killed.
//!
//! Each rank has two places, for even and odd rounds. A rank comes to round `n + 2` after it has read the notes of all ranks of
//! round `n + 1`, which each of them left after it had read all notes of round `n`. So the place of round `n` is free by then.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::lock::Mutex;

/// The words of a place: the round, the length, the note.
const PLACE: usize = 128;

/// The longest note, in bytes.
const ROOM: usize = (PLACE - 2) * WORD;

const WORD: usize = size_of::<u64>();

/// The round that follows the two in which the ranks agree on a board.
pub(super) const FIRST: u64 = 2;

/// In the word of a round: the note is in the store.
const IN_STORE: u64 = 1 << 63;

/// A note of a rank.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Posted {
    Note(Vec<u8>),
    /// The rank has left it in the store.
    InStore,
    NotYet,
}

/// What one rank knows of the board.
#[derive(Debug, Default)]
pub(super) struct Board {
    shared: OnceLock<Shared>,
    /// Whether all ranks use it.
    is_used: AtomicBool,
}

impl Board {
    /// What a rank says of the board in its note of this round.
    pub(super) fn says(&self, round: u64, (rank, size): (usize, usize)) -> Vec<u8> {
        match round {
            0 if rank == 0 && size > 1 => {
                let Some((shared, place)) = Shared::create(size) else { return Vec::new() };
                let _ = self.shared.set(shared);
                place.into_bytes()
            }
            1 if rank > 0 => vec![self.shared.get().is_some().into()],
            _ => Vec::new(),
        }
    }

    /// Hears what all ranks have said in a round to which all have come.
    pub(super) fn hears<'n>(&self, round: u64, (rank, size): (usize, usize), said: impl Iterator<Item = &'n [u8]>) {
        let mut said = said.enumerate().filter(|(other, _)| *other != rank);
        match round {
            0 if rank > 0 => {
                let place = said.find(|(other, _)| *other == 0).and_then(|(_, place)| std::str::from_utf8(place).ok());
                if let Some(shared) = place.and_then(|place| Shared::open(place, size)) {
                    let _ = self.shared.set(shared);
                }
            }
            1 => {
                let all = said.all(|(other, said)| other == 0 || said == [1]);
                self.is_used.store(all && self.shared.get().is_some(), Ordering::Relaxed);
                self.shared.get().into_iter().for_each(|shared| drop(shared.file.lock().take()));
            }
            _ => {}
        }
    }

    /// Leaves the note of `rank` of a round. False if it has to go to the store.
    pub(super) fn post(&self, round: u64, rank: usize, note: &[u8]) -> bool {
        self.used(round).is_some_and(|shared| shared.post(round, rank, note))
    }

    /// Says that the note of `rank` of a round is in the store.
    pub(super) fn post_elsewhere(&self, round: u64, rank: usize) {
        if let Some(shared) = self.used(round) {
            shared.place(round, rank)[0].store((round + 1) | IN_STORE, Ordering::Release);
        }
    }

    /// The board, if notes of this round may be on it.
    pub(super) fn used(&self, round: u64) -> Option<&Shared> {
        self.shared.get().filter(|_| round >= FIRST && self.is_used.load(Ordering::Relaxed))
    }

    /// This rank leaves nothing on it any more. What is there stays.
    pub(super) fn retire(&self) {
        self.is_used.store(false, Ordering::Relaxed);
    }
}

/// How many bytes a file of this process may have, as `ulimit -f` says.
fn longest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is valid for a write. Where the call fails, it stays as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

/// The memory that all ranks share.
#[derive(Debug)]
pub(super) struct Shared {
    words: NonNull<AtomicU64>,
    ranks: usize,
    /// The file until all have mapped it, in the process that made it.
    file: Mutex<Option<File>>,
}

// SAFETY: the memory stays mapped until the drop, and is accessed as atomic words only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes it for so many ranks, and says where others find it. `None` if there is no room for it.
    fn create(ranks: usize) -> Option<(Self, String)> {
        if Self::bytes(ranks) as u64 > longest_file() {
            // To write it would end the process, by SIGXFSZ.
            return None;
        }
        let draw = || RandomState::new().hash_one(std::process::id());
        let name = format!("gpucomm-board-{:016x}{:016x}", draw(), draw());
        let c_name = std::ffi::CString::new(&*name).ok()?;
        // SAFETY: the name ends with a null.
        let descriptor = unsafe { libc::memfd_create(c_name.as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: it was just opened, and nobody else has it.
        let mut file = unsafe { File::from_raw_fd(descriptor) };
        // Written, and not only made so long: memory that turns out to be missing later would be a SIGBUS.
        file.write_all(&vec![0; Self::bytes(ranks)]).ok()?;
        let words = Self::map(&file, ranks)?;
        let place = format!("/proc/{}/fd/{} {name}", std::process::id(), file.as_raw_fd());
        Some((Self { words, ranks, file: Mutex::new(Some(file)) }, place))
    }

    /// Maps what rank 0 has made for so many ranks. `None` if it is not to be found here, or is something else.
    fn open(place: &str, ranks: usize) -> Option<Self> {
        let (path, name) = place.split_once(' ')?;
        // Another process may have this number where processes are counted otherwise.
        if !path.starts_with("/proc/")
            || std::fs::read_link(path).ok()? != Path::new(&format!("/memfd:{name} (deleted)"))
        {
            return None;
        }
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        if file.metadata().ok()?.len() != Self::bytes(ranks) as u64 {
            return None;
        }
        Some(Self { words: Self::map(&file, ranks)?, ranks, file: Mutex::default() })
    }

    fn bytes(ranks: usize) -> usize {
        2 * ranks * PLACE * WORD
    }

    fn map(file: &File, ranks: usize) -> Option<NonNull<AtomicU64>> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses an address at which nothing is, and the file has so many bytes.
        let start = unsafe { mmap(ptr::null_mut(), Self::bytes(ranks), access, flags, file, 0) };
        NonNull::new(start.ok()?.cast())
    }

    /// The place of a rank in a round.
    fn place(&self, round: u64, rank: usize) -> &[AtomicU64] {
        assert!(rank < self.ranks);
        let at = (2 * rank + usize::from(!round.is_multiple_of(2))) * PLACE;
        // SAFETY: so many words are mapped for each rank, aligned to a page, until the drop; other processes, too, access them as
        // atomic words only. A process of this user that cuts the file, or writes to it otherwise, is not guarded against.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().add(at), PLACE) }
    }

    /// Leaves a note. False if it is too long.
    fn post(&self, round: u64, rank: usize, note: &[u8]) -> bool {
        if note.len() > ROOM {
            return false;
        }
        let place = self.place(round, rank);
        place[1].store(note.len() as u64, Ordering::Relaxed);
        for (word, bytes) in place[2..].iter().zip(note.chunks(WORD)) {
            let mut whole = [0; WORD];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        place[0].store(round + 1, Ordering::Release);
        true
    }

    /// What a rank has left in a round.
    pub(super) fn read(&self, round: u64, rank: usize) -> Posted {
        let place = self.place(round, rank);
        let stands = place[0].load(Ordering::Acquire);
        if stands == (round + 1) | IN_STORE {
            return Posted::InStore;
        }
        if stands != round + 1 {
            return Posted::NotYet;
        }
        let len = (place[1].load(Ordering::Relaxed) as usize).min(ROOM);
        let words = place[2..].iter().take(len.div_ceil(WORD));
        let mut note: Vec<u8> = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        note.truncate(len);
        Posted::Note(note)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and no place of it is borrowed any more.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), Self::bytes(self.ranks)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The boards of all ranks after the two rounds in which they agree, of which `deaf` do not find the memory.
    fn agreed(size: usize, deaf: &[usize]) -> Vec<Board> {
        let boards: Vec<Board> = (0..size).map(|_| Board::default()).collect();
        for round in 0..FIRST {
            let said: Vec<_> = boards.iter().enumerate().map(|(rank, board)| board.says(round, (rank, size))).collect();
            for (rank, board) in boards.iter().enumerate() {
                let heard = said.iter().map(|said| if round == 0 && deaf.contains(&rank) { &[][..] } else { said });
                board.hears(round, (rank, size), heard);
            }
        }
        boards
    }

    #[test]
    fn notes_of_any_length_are_read_by_all() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let boards = agreed(3, &[]);
        for round in FIRST..300 {
            let notes: Vec<Vec<u8>> =
                (0..3).map(|_| (0..random.usize(..=ROOM)).map(|_| random.u8(..)).collect()).collect();
            for rank in 0..3 {
                let before = boards[(rank + 1) % 3].used(round).unwrap().read(round, rank);
                assert_eq!(before, Posted::NotYet);
                assert!(boards[rank].post(round, rank, &notes[rank]));
            }
            for board in &boards {
                for (rank, note) in notes.iter().enumerate() {
                    assert_eq!(board.used(round).unwrap().read(round, rank), Posted::Note(note.clone()));
                }
            }
        }
    }

    #[test]
    fn what_is_too_long_is_in_the_store() {
        let boards = agreed(2, &[]);
        assert!(!boards[0].post(2, 0, &[7; ROOM + 1]));
        assert_eq!(boards[1].used(2).unwrap().read(2, 0), Posted::NotYet);
        boards[0].post_elsewhere(2, 0);
        assert_eq!(boards[1].used(2).unwrap().read(2, 0), Posted::InStore);
        assert!(boards[0].post(3, 0, &[7; ROOM]));
        assert_eq!(boards[1].used(3).unwrap().read(3, 0), Posted::Note(vec![7; ROOM]));
    }

    #[test]
    fn all_use_it_or_none() {
        for deaf in [&[1][..], &[2], &[1, 2]] {
            assert!(agreed(3, deaf).iter().all(|board| board.used(FIRST).is_none()), "{deaf:?}");
        }
        let boards = agreed(3, &[]);
        assert!(boards.iter().all(|board| board.used(FIRST).is_some() && board.used(1).is_none()));
        boards[1].retire();
        assert!(!boards[1].post(FIRST, 1, &[]) && boards[2].post(FIRST, 2, &[]));
        assert!(agreed(1, &[]).iter().all(|board| board.used(FIRST).is_none()));
    }

    #[test]
    fn the_file_is_closed_once_all_have_it() {
        let is_open = |board: &Board| board.shared.get().unwrap().file.lock().is_some();
        assert!(agreed(2, &[]).iter().chain(&agreed(2, &[1])[..1]).all(|board| !is_open(board)));
        let alone = Board::default();
        assert!(!alone.says(0, (0, 2)).is_empty() && is_open(&alone));
    }

    #[test]
    fn what_is_no_board_is_not_mapped() {
        let (shared, place) = Shared::create(2).unwrap();
        assert!(Shared::open(&place, 2).is_some());
        // Of another number of ranks.
        assert!(Shared::open(&place, 3).is_none());
        // Something else is where it was said to be.
        let (_other, elsewhere) = Shared::create(2).unwrap();
        let (path, name) = (elsewhere.split_once(' ').unwrap().0, place.split_once(' ').unwrap().1);
        assert!(Shared::open(&format!("{path} {name}"), 2).is_none());
        for nowhere in ["", "/proc/self/fd/0", "/dev/null x", &format!("/proc/0/fd/0 {name}")] {
            assert!(Shared::open(nowhere, 2).is_none(), "{nowhere:?}");
        }
        drop(shared);
        assert!(Shared::open(&place, 2).is_none());
    }
}
