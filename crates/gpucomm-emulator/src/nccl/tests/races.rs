//! Operations that nothing puts in order with what else is done with their buffers. Each in a process of its own: what the host sees
//! done for one test comes before all that another one enqueues. There, what is reported and not expected ends the process.

use super::*;
use crate::cuda::core::stream::come_to_the_end;
use crate::report::expected::reported;

const F32: ncclDataType_t = ncclDataType_t::ncclFloat32;

/// Runs `body` on so many ranks that have met.
fn connected(size: usize, body: fn(&Rank)) {
    spmd(size, move |rank| {
        rank.connect();
        body(rank);
    });
}

fn fill(memory: &Buffer, stream: cudaStream_t) {
    // SAFETY: the memory lives until its stream is done.
    assert_eq!(unsafe { cudaMemsetAsync(memory.0, 0, 4 * memory.1, stream) }, cudaError::cudaSuccess);
}

impl Rank {
    /// Expects a report that ends so, of what this rank does.
    fn reported<R>(&self, start: &str, end: &str, mistake: impl FnOnce() -> R) -> R {
        reported(&format!("{start} of rank {} {end}", self.rank), mistake)
    }

    fn add(&self, from: &Buffer, to: &Buffer, stream: cudaStream_t) {
        let op = ncclRedOp_t::ncclSum;
        // SAFETY: the buffers are checked by the function.
        assert_eq!(unsafe { ncclAllReduce(from.0, to.0, 4, F32, op, self.comm, stream) }, OK, "{}", last_error());
    }
}

fn group(body: impl FnOnce()) {
    // SAFETY: takes no pointers.
    unsafe {
        assert_eq!(ncclGroupStart(), OK);
        body();
        assert_eq!(ncclGroupEnd(), OK, "{}", last_error());
    }
}

#[test]
fn operations_read_and_write_in_the_order_of_their_stream() {
    alone!();
    connected(2, |rank| {
        let ([from, to, third], other) = ([4; 3].map(Buffer::zeros), stream());
        rank.add(&from, &to, rank.stream);
        rank.reported("cudaMemsetAsync writes (bytes 0 to 16) what AllReduce", "wrote", || fill(&to, other));
        rank.reported("cudaMemsetAsync writes (bytes 0 to 16) what AllReduce", "read", || fill(&from, other));
        let collides = "reads (bytes 0 to 16) what cudaMemsetAsync wrote";
        rank.reported("AllReduce", collides, || rank.add(&from, &third, rank.stream));
        rank.wait();
        wait(other);
        // NCCL lets what it launches wait for what it has launched before, whatever the stream; but not for other work there.
        rank.add(&from, &to, other);
        rank.add(&from, &to, rank.stream);
        fill(&to, rank.stream);
        let collides = "writes (bytes 0 to 16) what cudaMemsetAsync wrote";
        rank.reported("AllReduce", collides, || rank.add(&from, &to, other));
        rank.wait();
        wait(other);
    });
}

#[test]
fn a_communicator_of_one_rank_keeps_to_its_streams() {
    alone!();
    connected(1, |rank| {
        let ([from, to], other) = ([4; 2].map(Buffer::zeros), stream());
        // Copied at once, also in a group.
        group(|| {
            rank.add(&from, &to, rank.stream);
            rank.add(&to, &from, rank.stream);
        });
        rank.reported("cudaMemsetAsync writes (bytes 0 to 16) what AllReduce", "wrote", || fill(&from, other));
        rank.wait();
        wait(other);
    });
}

#[test]
fn what_is_in_one_group_has_no_order() {
    alone!();
    connected(2, |rank| {
        let ([a, b, c], second) = ([4; 3].map(Buffer::zeros), stream());
        group(|| {
            rank.add(&a, &b, rank.stream);
            rank.add(&a, &c, second);
        });
        // Both streams come after all of it.
        fill(&a, second);
        reported("cudaMemsetAsync writes (bytes 0 to 16) what cudaMemsetAsync wrote", || fill(&a, rank.stream));
        rank.wait();
        wait(second);
        rank.reported("in one group, AllReduce", "writes what AllReduce", || {
            group(|| {
                rank.add(&a, &b, rank.stream);
                rank.add(&c, &b, rank.stream);
            });
        });
        rank.reported("in one group, AllReduce", "reads what AllReduce", || {
            group(|| {
                rank.add(&a, &a, rank.stream);
                rank.add(&a, &b, rank.stream);
            });
        });
        rank.reported("in one group, Recv", "writes what Send", || {
            group(|| {
                let me = rank.rank as i32;
                // SAFETY: the memory lives until the stream is done.
                unsafe {
                    assert_eq!(ncclSend(a.0, 2, F32, me, rank.comm, rank.stream), OK);
                    assert_eq!(ncclRecv(a.at(1), 2, F32, me, rank.comm, rank.stream), OK);
                }
            });
        });
        rank.wait();
    });
}

#[test]
fn a_scalar_is_read_when_the_operation_runs() {
    alone!();
    connected(2, |rank| {
        let (buffer, scalar, other) = (Buffer::zeros(4), Buffer::new(&[2.0, 3.0]), stream());
        let (mut op, residence) = (ncclRedOp_t::ncclSum, ncclScalarResidence_t::ncclScalarDevice);
        // SAFETY: the pointers are valid, and the memory lives until the stream is done.
        unsafe {
            assert_eq!(ncclRedOpCreatePreMulSum(&mut op, scalar.0, F32, residence, rank.comm), OK);
            fill(&buffer, rank.stream);
            assert_eq!(ncclAllReduce(buffer.0, buffer.0, 4, F32, op, rank.comm, rank.stream), OK);
        }
        rank.reported("cudaMemsetAsync writes (bytes 0 to 8) what AllReduce", "read", || fill(&scalar, other));
        rank.wait();
        wait(other);
    });
}

#[test]
fn memory_of_nccl_is_freed_when_the_host_has_seen_that_it_is_not_used() {
    alone!();
    connected(1, |rank| {
        for seen in [true, false] {
            let mut at = std::ptr::null_mut();
            // SAFETY: the pointer is valid for a write, and the memory lives until its stream is done.
            unsafe {
                assert_eq!(ncclMemAlloc(&mut at, 4096), OK);
                assert_eq!(cudaMemsetAsync(at, 0, 8, rank.stream), cudaError::cudaSuccess);
            }
            // SAFETY: this frees what was just allocated.
            let free = || assert_eq!(unsafe { ncclMemFree(at) }, OK);
            if seen {
                rank.wait();
                free();
            } else {
                come_to_the_end(rank.stream);
                reported("of device 0: cudaMemsetAsync on stream 1 of device 0 wrote it", free);
            }
        }
    });
}

#[test]
fn elements_of_reductions_are_aligned() {
    alone!();
    connected(2, |rank| {
        let (from, to) = (Buffer::zeros(8), Buffer::zeros(8));
        let [odd_from, odd_to] = [&from, &to].map(|buffer| buffer.0.wrapping_byte_add(2));
        let (sum, comm, stream) = (ncclRedOp_t::ncclSum, rank.comm, rank.stream);
        // SAFETY: the buffers are checked by the function, or hold what it says.
        unsafe {
            reported("the send buffer is at 0x", || ncclAllReduce(odd_from, to.0, 2, F32, sum, comm, stream));
            reported("the receive buffer is at 0x", || ncclAllReduce(from.0, odd_to, 2, F32, sum, comm, stream));
            // What only moves goes as bytes, and of nothing nothing is read.
            assert_eq!(ncclAllGather(odd_from, odd_to, 2, F32, comm, stream), OK);
            assert_eq!(ncclAllReduce(odd_from, odd_to, 0, F32, sum, comm, stream), OK);
            let half = ncclDataType_t::ncclFloat16;
            assert_eq!(ncclAllReduce(odd_from, odd_to, 4, half, sum, comm, stream), OK);
        }
        rank.wait();
    });
}
