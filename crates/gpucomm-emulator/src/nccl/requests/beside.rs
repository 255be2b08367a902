//! Bugs of NCCL's kernels, where they were asked for: what they write that is not the result.

use super::request::Request;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::{Kind, Redop, element, is_float};
use crate::nccl::state::comm::Comm;
use crate::settings::settings;
use crate::sys::{ncclDataType_t, ncclResult_t};

/// Bytes of a pack, in which the kernels for small messages between windows read.
const PACK: usize = 8;

/// What they read at once.
const WORD: u64 = 4;

/// Where a rank's data begins, for kernels that cannot read it there: 0 where others are used, else a word plus the bytes by which the
/// address is beside one.
pub(crate) fn of(comm: &Comm, request: &Request, redop: Redop) -> u64 {
    let bugs = settings().bugs;
    if !bugs.misaligned_windows || comm.size == 1 {
        return 0;
    }
    let small_float =
        is_float(request.datatype) && element(request.datatype).is_some_and(|(size, _)| size < WORD as usize);
    let small = match request.kind {
        Kind::AllGather => true,
        Kind::AllReduce | Kind::ReduceScatter => redop == Redop::Sum && small_float,
        _ => false,
    };
    let enough = if bugs.misaligned_with_one_window { 1 } else { 2 };
    if small && windows(comm, request) >= enough { WORD + request.send.addr() as u64 % WORD } else { 0 }
}

/// How many of the two buffers lie in symmetric windows.
fn windows(comm: &Comm, request: &Request) -> usize {
    comm.windows.symmetric([request.send.addr(), request.recv.addr()])
}

/// Fails where there is no kernel for averages between windows.
pub(crate) fn find_kernel(comm: &Comm, request: &Request, redop: Redop) -> Outcome {
    let has_kernels = is_float(request.datatype) && request.datatype != ncclDataType_t::ncclFloat64;
    let concerned = request.kind == Kind::AllReduce && redop == Redop::Avg && has_kernels;
    if concerned && settings().bugs.window_averages && comm.size > 1 && windows(comm, request) > 0 {
        return Err(Failure::new(ncclResult_t::ncclUnhandledCudaError, "Cuda failure 'invalid device function'"));
    }
    Ok(())
}

/// Spoils what the kernels get wrong in the result of `rank`, from where the data of each rank begins. An operation `kind` of
/// parts of `part` bytes.
///
/// # Safety
/// `recv` is the receive buffer of the operation, which nobody else touches now.
pub(crate) unsafe fn spoil(kind: Kind, part: usize, rank: usize, recv: *mut u8, begins: &[u64]) {
    for (peer, begin) in begins.iter().enumerate().filter(|(_, begin)| **begin >= WORD) {
        let (to, from) = match kind {
            Kind::AllGather => (peer * part, *begin),
            Kind::ReduceScatter => (0, begin + (rank * part) as u64),
            _ => (0, *begin),
        };
        let right = (WORD - from % WORD) as usize;
        // Of each pack, the bytes up to the next word are right.
        for at in (0..part).filter(|at| !from.is_multiple_of(WORD) && at % PACK >= right) {
            // SAFETY: within the receive buffer, as the caller promises.
            unsafe { *recv.add(to + at) ^= 0x55 };
        }
    }
}

/// How many of the elements the kernel for pre-multiplied sums of one rank does.
pub(crate) fn done(comm: &Comm, request: &Request, redop: Redop, size: usize) -> usize {
    let Request { kind, count, datatype, .. } = *request;
    // Averages of floats are such sums.
    let multiplies = redop == Redop::PreMulSum || redop == Redop::Avg && is_float(datatype);
    let hit = comm.size == 1 && kind.reduces() && multiplies && settings().bugs.one_rank_premulsum;
    if !hit || count == 0 {
        return count;
    }
    let blocks = (count * size).div_ceil(16 << 10).min(32);
    let share = (count / blocks).next_multiple_of(16 / size);
    count.min(share * blocks)
}
