//! Elements that NCCL does not reduce: every operation that only moves, for types of several sizes and alignments, from windows
//! and from other memory; and ranks that name different types.

use fastrand::Rng;
use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::nccl::Layout;
use gpucomm::{CommBuffer, Communicator, DeviceBuffer, Element, InPlace, RecvOnly, Result, SendOnly, Stream, group};

use crate::disagreement::{Rank, buffer, disagree, names, odd_one};
use crate::support::{Rig, assert_argument, random, rank_counts, takes, watched};

/// A type of which the host only knows how to make one up.
trait Plain: Element + std::fmt::Debug + PartialEq {
    fn draw(rng: &mut Rng) -> Self;

    fn some(rng: &mut Rng, len: usize) -> Vec<Self> {
        (0..len).map(|_| Self::draw(rng)).collect()
    }
}

impl Plain for u16 {
    fn draw(rng: &mut Rng) -> Self {
        rng.u16(..)
    }
}

impl Plain for [u8; 3] {
    fn draw(rng: &mut Rng) -> Self {
        [rng.u8(..), rng.u8(..), rng.u8(..)]
    }
}

impl Plain for bool {
    fn draw(rng: &mut Rng) -> Self {
        rng.bool()
    }
}

impl Plain for u128 {
    fn draw(rng: &mut Rng) -> Self {
        rng.u128(..)
    }
}

/// What a user would define.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
struct Token {
    id: u32,
    expert: u16,
    kept: bool,
    rank: u8,
}

// SAFETY: eight bytes without padding, of which `CHECK` looks at the one that is a bool.
unsafe impl Element for Token {
    const CHECK: Option<fn(&[u8]) -> bool> = Some(|bytes| bytes.chunks_exact(8).all(|token| token[6] < 2));
}

impl Plain for Token {
    fn draw(rng: &mut Rng) -> Self {
        Self { id: rng.u32(..), expert: rng.u16(..), kept: rng.bool(), rank: rng.u8(..) }
    }
}

/// A buffer of either kind of memory, of which one element before and one behind is left alone.
enum Place<'c, T: Element> {
    Device(DeviceBuffer<T>),
    Window(CommBuffer<'c, T>),
}

impl<'c, T: Plain> Place<'c, T> {
    fn new(comm: &'c Communicator, stream: &Stream, window: bool, values: &[T]) -> Result<Self> {
        let mut place = if window {
            Self::Window(comm.alloc(stream, values.len() + 2)?)
        } else {
            Self::Device(DeviceBuffer::zeroed(stream, values.len() + 2)?)
        };
        place.inner_mut().copy_from_slice(stream, values)?;
        Ok(place)
    }

    fn empty(comm: &'c Communicator, stream: &Stream, window: bool, len: usize) -> Result<Self> {
        Self::new(comm, stream, window, &vec![T::ZERO; len])
    }

    fn all(&self) -> Slice<'_, T> {
        match self {
            Self::Device(buffer) => buffer.as_slice(),
            Self::Window(buffer) => buffer.as_slice(),
        }
    }

    fn inner(&self) -> Slice<'_, T> {
        self.all().slice(1..self.all().len() - 1)
    }

    fn inner_mut(&mut self) -> SliceMut<'_, T> {
        match self {
            Self::Device(buffer) => {
                let end = buffer.len() - 1;
                buffer.slice_mut(1..end)
            }
            Self::Window(buffer) => {
                let end = buffer.len() - 1;
                buffer.slice_mut(1..end)
            }
        }
    }

    #[track_caller]
    fn holds(&self, stream: &Stream, values: &[T]) -> Result<()> {
        let all = self.all().to_vec(stream)?;
        assert!(all[0] == T::ZERO && all[all.len() - 1] == T::ZERO, "a neighbour was overwritten");
        assert!(all[1..all.len() - 1] == *values, "{:?} is not {values:?}", &all[1..all.len() - 1]);
        Ok(())
    }
}

fn every_operation<T: Plain>(rig: &Rig, rng: &mut Rng) {
    for (len, window) in [0, 1, 3, 1001, 20_003].into_iter().flat_map(|len| [(len, false), (len, true)]) {
        if !takes(("moved", size_of::<T>(), rig.size(), len, window)) {
            continue;
        }
        let size = rig.size();
        let root = rng.usize(..size);
        let all: Vec<Vec<T>> = (0..size).map(|_| T::some(rng, len * size)).collect();
        let first: Vec<&[T]> = all.iter().map(|of| &of[..len]).collect();
        let joined = first.concat();
        rig.run(|comm, stream| {
            let rank = comm.rank();
            let place = |values: &[T]| Place::new(comm, stream, window, values);
            let empty = |len| Place::<T>::empty(comm, stream, window, len);
            let (peer, before) = ((rank + 1) % size, (rank + size - 1) % size);

            let mut x = place(first[rank])?;
            comm.broadcast(InPlace(x.inner_mut()), root, stream)?;
            x.holds(stream, first[root])?;

            let (x, mut y) = (place(first[rank])?, empty(len * size)?);
            comm.all_gather((x.inner(), y.inner_mut()), stream)?;
            y.holds(stream, &joined)?;
            let counts = vec![len; size];
            comm.all_gather_v(InPlace(y.inner_mut()), Layout::packed(&counts), stream)?;
            y.holds(stream, &joined)?;

            let mut z = empty(len)?;
            if rank == root {
                comm.gather((x.inner(), y.inner_mut()), root, stream)?;
                y.holds(stream, &joined)?;
                comm.scatter((y.inner(), z.inner_mut()), root, stream)?;
            } else {
                comm.gather(SendOnly(x.inner()), root, stream)?;
                comm.scatter(RecvOnly(z.inner_mut()), root, stream)?;
            }
            z.holds(stream, first[rank])?;

            let (x, mut y) = (place(&all[rank])?, empty(len * size)?);
            let want: Vec<T> = all.iter().flat_map(|of| &of[rank * len..(rank + 1) * len]).copied().collect();
            comm.all_to_all((x.inner(), y.inner_mut()), stream)?;
            y.holds(stream, &want)?;
            let mut y = empty(len * size)?;
            comm.all_to_all_v((x.inner(), y.inner_mut()), Layout::packed(&counts), Layout::packed(&counts), stream)?;
            y.holds(stream, &want)?;

            let (x, mut y) = (place(first[rank])?, empty(len)?);
            group(|g| {
                g.send(comm, x.inner(), peer, stream)?;
                g.recv(comm, y.inner_mut(), before, stream)
            })?;
            y.holds(stream, first[before])
        });
    }
}

#[test]
fn every_operation_moves_any_element() {
    watched(180.0, || {
        let mut rng = random::rng("moved");
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            every_operation::<u16>(&rig, &mut rng);
            every_operation::<[u8; 3]>(&rig, &mut rng);
            every_operation::<bool>(&rig, &mut rng);
            every_operation::<u128>(&rig, &mut rng);
            every_operation::<Token>(&rig, &mut rng);
            rig.close();
        }
    });
}

#[test]
fn types_of_one_size_are_told_apart() {
    disagree(
        &[2, 4],
        Rank::NeedsAll,
        names(&["all_gather", "8 u16 of 2 bytes", "8 i16 of 2 bytes"]),
        |comm, stream| {
            if odd_one(comm) {
                let mut recv = buffer::<i16>(stream, 8 * comm.size())?;
                comm.all_gather((&buffer::<i16>(stream, 8)?, &mut recv), stream)
            } else {
                let mut recv = buffer::<u16>(stream, 8 * comm.size())?;
                comm.all_gather((&buffer::<u16>(stream, 8)?, &mut recv), stream)
            }
        },
    );
}

#[test]
fn types_of_other_sizes_are_told_apart() {
    disagree(&[2, 4], Rank::NeedsAll, names(&["all_gather", "8 u8", "8 [u8; 3] of 3 bytes"]), |comm, stream| {
        if odd_one(comm) {
            comm.all_gather(InPlace(&mut buffer::<[u8; 3]>(stream, 8 * comm.size())?), stream)
        } else {
            comm.all_gather(InPlace(&mut buffer::<u8>(stream, 8 * comm.size())?), stream)
        }
    });
}

#[test]
fn messages_of_another_type() {
    disagree(&[2], Rank::NeedsAll, names(&["8 u16 of 2 bytes", "8 [u8; 2] of 2 bytes"]), |comm, stream| {
        if odd_one(comm) {
            comm.recv(&mut buffer::<[u8; 2]>(stream, 8)?, 0, stream)
        } else {
            comm.send(&buffer::<u16>(stream, 8)?, 1, stream)
        }
    });
}

#[test]
fn a_message_to_itself_of_another_type() {
    watched(60.0, || {
        let rig = Rig::new(1);
        rig.run(|comm, stream| {
            let (x, mut y) = (buffer::<u16>(stream, 4)?, buffer::<[u8; 2]>(stream, 4)?);
            let result = group(|g| {
                g.send(comm, &x, 0, stream)?;
                g.recv(comm, &mut y, 0, stream)
            });
            assert_argument(result, "recv", "4 u16 of 2 bytes", "4 [u8; 2] of 2 bytes");
            Ok(())
        });
    });
}
