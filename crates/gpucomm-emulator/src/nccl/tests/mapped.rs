//! Memory that programs have mapped themselves.

use std::sync::Arc;

use super::*;
use crate::memory::access::Access;
use crate::memory::mapped;
use crate::memory::mapped::GRANULARITY;
use crate::memory::mapped::{Nature, Physical};
use crate::report::expected::reported;

/// Floats in a grain.
const GRAIN: usize = GRANULARITY / 4;

/// Room for eight grains, in which pieces of memory lie one behind the other.
pub(super) struct Space {
    device: i32,
    base: usize,
    bytes: usize,
}

impl Space {
    pub(super) fn new(device: usize) -> Self {
        Self { device: device as i32, base: mapped::reserve(8 * GRANULARITY, 0).unwrap(), bytes: 0 }
    }

    fn memory(&self, grains: usize) -> Arc<Physical> {
        let nature = Nature { ordinal: self.device, handles: 0, rdma: false };
        Physical::new((grains * GRANULARITY) as u64, nature).unwrap()
    }

    /// Maps so many grains of new memory behind what is there, where its device may do so much with it.
    pub(super) fn grow(&mut self, grains: usize, access: Access) {
        let (at, bytes) = (self.base + self.bytes, grains * GRANULARITY);
        mapped::map(at, bytes, &self.memory(grains)).unwrap();
        mapped::set_access(at, bytes, &[(self.device, access)]).unwrap();
        self.bytes += bytes;
    }

    pub(super) fn at(&self, index: usize) -> *mut f32 {
        std::ptr::with_exposed_provenance_mut::<f32>(self.base).wrapping_add(index)
    }

    fn set(&self, index: usize, values: &[f32]) {
        // SAFETY: memory of the emulator is memory of this process; these tests stay within what they have mapped.
        unsafe { self.at(index).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    fn get(&self, index: usize, count: usize) -> Vec<f32> {
        // SAFETY: as above; the stream is idle.
        unsafe { std::slice::from_raw_parts(self.at(index), count) }.to_vec()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        assert!(mapped::unmap(self.base, 8 * GRANULARITY).unwrap().iter().all(|mapped| mapped.uses() == 0));
        mapped::free(self.base, 8 * GRANULARITY).unwrap();
    }
}

fn sum(rank: &Rank, send: *mut f32, recv: *mut f32, count: usize) -> ncclResult_t {
    let (datatype, op) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
    // SAFETY: the tests pass memory of so many elements.
    unsafe { ncclAllReduce(send.cast(), recv.cast(), count, datatype, op, rank.comm, rank.stream) }
}

/// Sums, a ring of messages and a broadcast across the seams of mappings, which become more meanwhile.
pub(super) fn across_seams(rank: &Rank) {
    let (mut send, mut recv) = (Space::new(rank.rank), Space::new(rank.rank));
    for space in [&mut send, &mut recv] {
        space.grow(1, Access::ReadWrite);
        space.grow(2, Access::ReadWrite);
    }
    let ours = rank.rank as f32;
    let all = (0..rank.size).map(|rank| rank as f32).sum::<f32>();
    for seam in [GRAIN, 3 * GRAIN] {
        // The second seam is there only in the second round.
        send.set(seam - 2, &[1.0, ours]);
        if seam > GRAIN {
            send.grow(1, Access::Read);
            recv.grow(1, Access::ReadWrite);
        }
        send.set(seam, &[2.0, ours]);
        assert_eq!(sum(rank, send.at(seam - 2), recv.at(seam - 3), 4), OK, "{}", last_error());
        rank.wait();
        let size = rank.size as f32;
        assert_eq!(recv.get(seam - 3, 4), [size, all, 2.0 * size, all]);
        let (next, before) = ((rank.rank + 1) % rank.size, (rank.rank + rank.size - 1) % rank.size);
        let datatype = ncclDataType_t::ncclFloat32;
        // SAFETY: the memory stays mapped until the stream is idle.
        unsafe {
            assert_eq!(ncclGroupStart(), OK);
            let from = send.at(seam - 1).cast::<c_void>();
            assert_eq!(ncclSend(from, 2, datatype, next as i32, rank.comm, rank.stream), OK);
            let to = recv.at(seam - 1).cast();
            assert_eq!(ncclRecv(to, 2, datatype, before as i32, rank.comm, rank.stream), OK);
            assert_eq!(ncclGroupEnd(), OK, "{}", last_error());
        }
        rank.wait();
        assert_eq!(recv.get(seam - 1, 2), [before as f32, 2.0]);
        // In place, of which half lies in the last mapping.
        recv.set(seam - 1, &[ours, ours]);
        assert_eq!(sum(rank, recv.at(seam - 1), recv.at(seam - 1), 2), OK, "{}", last_error());
        rank.wait();
        assert_eq!(recv.get(seam - 1, 2), [all, all]);
    }
}

#[test]
fn operations_work_across_mappings() {
    alone!();
    spmd(3, across_seams);
}

#[test]
fn operations_need_access_and_memory() {
    alone!();
    spmd(1, |rank| {
        let mut space = Space::new(0);
        space.grow(1, Access::ReadWrite);
        let argument = ncclResult_t::ncclInvalidArgument;
        let beyond = reported("nothing is mapped", || sum(rank, space.at(GRAIN - 1), space.at(0), 2));
        assert_eq!(beyond, argument);
        space.grow(1, Access::Read);
        assert_eq!(sum(rank, space.at(GRAIN), space.at(0), 4), OK, "{}", last_error());
        let into = |at| reported("the receive buffer is open to device 0", || sum(rank, space.at(0), at, 4));
        assert_eq!(into(space.at(GRAIN)), argument);
        assert_eq!(into(space.at(GRAIN - 1)), argument, "half of it");
        mapped::set_access(space.base, GRANULARITY, &[(0, Access::None)]).unwrap();
        let from = reported("the send buffer is open to device 0", || sum(rank, space.at(0), space.at(8), 4));
        assert_eq!(from, argument);
        rank.wait();
    });
}

#[test]
fn scalars_need_access() {
    alone!();
    spmd(1, |rank| {
        let (mut space, buffer) = (Space::new(0), Buffer::new(&[2.0]));
        space.grow(1, Access::Read);
        space.set(0, &[3.0]);
        let at = space.at(0);
        let (float, residence) = (ncclDataType_t::ncclFloat32, ncclScalarResidence_t::ncclScalarDevice);
        let mut op = ncclRedOp_t::ncclSum;
        // SAFETY: the pointers are valid, the memory until the stream is idle.
        let made = unsafe { ncclRedOpCreatePreMulSum(&mut op, at.cast(), float, residence, rank.comm) };
        assert_eq!(made, OK, "{}", last_error());
        // SAFETY: as above.
        let sum = || unsafe { ncclAllReduce(buffer.0, buffer.0, 1, float, op, rank.comm, rank.stream) };
        assert_eq!(sum(), OK, "{}", last_error());
        rank.wait();
        assert_eq!(buffer.values(), [6.0]);
        mapped::set_access(space.base, GRANULARITY, &[(0, Access::None)]).unwrap();
        assert_eq!(reported("the scalar of the reduction is not open", sum), ncclResult_t::ncclInvalidArgument);
    });
}
