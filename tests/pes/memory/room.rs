//! A heap that cannot grow: an error on all PEs, and nothing is lost. With the library before 3.8 an allocation that fails takes all of the heap away.

use gpucomm::Error;
use gpucomm::nvshmem::{Context, SymmetricBuffer};

use crate::support::{Seat, as_pes_with};

const MIB: usize = 1 << 20;

/// Allocates pieces of so many bytes until there is no room, `most` at most, and looks whether all of them are as they were left.
fn fill(seat: &Seat, ctx: &Context, bytes: usize, most: usize) -> usize {
    let stream = gpucomm::Stream::new(seat.device).unwrap();
    let mark = |at: usize| (16 * seat.pe + at) as u8;
    let mut pieces: Vec<SymmetricBuffer<'_, u8>> = Vec::new();
    loop {
        match ctx.alloc_uninit::<u8>(bytes) {
            Ok(mut piece) => {
                piece.symmetric_mut(bytes - 100..).into_local().fill(&stream, mark(pieces.len())).unwrap();
                pieces.push(piece);
            }
            Err(Error::OutOfMemory { bytes: told, .. }) => {
                assert_eq!(told, bytes);
                break;
            }
            Err(error) => panic!("{error:?}"),
        }
        assert!(pieces.len() <= most, "{} pieces of {bytes} bytes", pieces.len());
    }
    for (at, piece) in pieces.iter().enumerate() {
        assert_eq!(piece.symmetric(bytes - 100..).local().to_vec(&stream).unwrap(), [mark(at); 100]);
    }
    // What is too large for gaps of pieces, and small enough for one.
    pieces.truncate(pieces.len() - 1);
    if pieces.len() > 1 {
        drop(pieces.remove(0));
    }
    assert!(matches!(ctx.alloc::<u8>(2 * bytes), Err(Error::OutOfMemory { .. })));
    drop(ctx.alloc::<u8>(bytes).unwrap());
    drop(ctx.alloc_aligned::<u8>(bytes / 2, 2 * MIB).unwrap());
    pieces.len()
}

fn run(seat: &Seat, bytes: usize, most: usize) {
    let ctx = seat.start().unwrap();
    let counts = seat.gather(&fill(seat, &ctx, bytes, most).to_string());
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    // All is free again.
    fill(seat, &ctx, bytes, most);
    assert!(ctx.close().unwrap().is_empty());
}

/// The library says how long the heap may be, and takes it that it is never as long.
#[test]
fn a_heap_with_a_limit() {
    let environment = [("NVSHMEM_MAX_MEMORY_PER_GPU", "2G"), ("GPUCOMM_EMULATOR_NVSHMEM", "3.4.5")];
    as_pes_with(&[1, 3], &environment, |seat| run(seat, 200 * MIB, 8));
}

#[test]
fn a_heap_with_a_limit_of_a_newer_library() {
    let environment = [("NVSHMEM_MAX_MEMORY_PER_GPU", "2G"), ("GPUCOMM_EMULATOR_NVSHMEM", "3.8.0")];
    as_pes_with(&[2], &environment, |seat| run(seat, 200 * MIB, 8));
}

/// What is left of the device is less than a step.
#[test]
fn a_device_with_less_than_a_step() {
    if gpucomm::backend() == gpucomm::Backend::Emulator {
        let environment = [("GPUCOMM_EMULATOR_MEMORY", "1280M"), ("GPUCOMM_EMULATOR_NVSHMEM", "3.5.0")];
        as_pes_with(&[1, 2], &environment, |seat| run(seat, 150 * MIB, 7));
    }
}

/// What the heap has is given out, however little the device has left.
#[test]
fn what_is_there_is_given_out() {
    if gpucomm::backend() == gpucomm::Backend::Emulator {
        let environment = [("GPUCOMM_EMULATOR_MEMORY", "520M"), ("GPUCOMM_EMULATOR_NVSHMEM", "3.5.0")];
        as_pes_with(&[1, 2], &environment, |seat| {
            let ctx = seat.start().unwrap();
            let stream = gpucomm::Stream::new(seat.device).unwrap();
            let mut all: Vec<_> = (0..5).map(|_| ctx.alloc::<u8>(100 * MIB).unwrap()).collect();
            all.iter_mut().for_each(|one| one.symmetric_mut(..10).into_local().fill(&stream, 1).unwrap());
            assert!(matches!(ctx.alloc::<u8>(100 * MIB), Err(Error::OutOfMemory { .. })));
            drop((all, ctx.alloc::<u8>(MIB).unwrap()));
            assert!(ctx.close().unwrap().is_empty());
        });
    }
}
