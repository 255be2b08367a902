//! Collective operations: made operators, disagreements, and what is refused.

use super::*;
use crate::report::expected::{expect, reported};

const F32: ncclDataType_t = ncclDataType_t::ncclFloat32;
const SUM: ncclRedOp_t = ncclRedOp_t::ncclSum;
#[test]
fn a_made_operator_multiplies_each_rank_by_its_scalar() {
    alone!();
    spmd(3, |rank| {
        let scalar = Buffer::new(&[rank.rank as f32 + 1.0]);
        let host = rank.rank as f32 * 0.5;
        let buffer = Buffer::new(&[2.0, 4.0]);
        let mut ops = [ncclRedOp_t(0); 2];
        // SAFETY: the scalars and the buffer are valid until the stream is idle.
        unsafe {
            let (device, immediate) =
                (ncclScalarResidence_t::ncclScalarDevice, ncclScalarResidence_t::ncclScalarHostImmediate);
            assert_eq!(ncclRedOpCreatePreMulSum(&mut ops[0], scalar.0, F32, device, rank.comm), OK);
            let host = (&raw const host).cast_mut().cast();
            assert_eq!(ncclRedOpCreatePreMulSum(&mut ops[1], host, F32, immediate, rank.comm), OK);
            assert_eq!(ncclAllReduce(buffer.0, buffer.0, 2, F32, ops[0], rank.comm, rank.stream), OK);
            assert_eq!(ncclRedOpDestroy(ops[0], rank.comm), OK);
            rank.wait();
            assert_eq!(buffer.values(), [12.0, 24.0]);
            assert_eq!(ncclAllReduce(buffer.0, buffer.0, 2, F32, ops[1], rank.comm, rank.stream), OK);
            rank.wait();
            assert_eq!(buffer.values(), [18.0, 36.0]);
            let double = ncclDataType_t::ncclFloat64;
            let wrong = ncclAllReduce(buffer.0, buffer.0, 1, double, ops[1], rank.comm, rank.stream);
            assert_eq!(wrong, ncclResult_t::ncclInvalidArgument);
            let gone = ncclAllReduce(buffer.0, buffer.0, 2, F32, ops[0], rank.comm, rank.stream);
            assert_eq!(gone, ncclResult_t::ncclInvalidArgument);
            assert_eq!(ncclRedOpDestroy(SUM, rank.comm), ncclResult_t::ncclInvalidArgument);
        }
    });
}

#[test]
fn ranks_that_disagree_all_get_the_error_and_no_data_moves() {
    alone!();
    type Call = fn(&Rank, &Buffer, &Buffer) -> ncclResult_t;
    fn reduce(
        rank: &Rank,
        send: &Buffer,
        recv: &Buffer,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
    ) -> ncclResult_t {
        // SAFETY: the buffers hold 8 floats.
        unsafe { ncclAllReduce(send.0, recv.0, count, datatype, op, rank.comm, rank.stream) }
    }
    let calls: [(Call, &str); 5] = [
        (|r, a, b| reduce(r, a, b, 8 - r.rank, F32, SUM), "7 elements"),
        (|r, a, b| reduce(r, a, b, 4, if r.rank == 1 { ncclDataType_t::ncclInt32 } else { F32 }, SUM), "int32"),
        (|r, a, b| reduce(r, a, b, 4, F32, if r.rank == 1 { ncclRedOp_t::ncclMax } else { SUM }), "max"),
        // SAFETY: the buffers hold 8 floats.
        (|r, a, b| unsafe { ncclBroadcast(a.0, b.0, 4, F32, r.rank as i32, r.comm, r.stream) }, "root 1"),
        (
            |r, a, b| match r.rank {
                1 => reduce(r, a, b, 4, F32, SUM),
                // SAFETY: the buffers hold 8 floats.
                _ => unsafe { ncclAllGather(a.0, b.0, 4, F32, r.comm, r.stream) },
            },
            "AllReduce",
        ),
    ];
    for (call, word) in calls {
        let expected = expect("ranks disagree at collective #1");
        spmd(2, move |rank| {
            let (send, recv) = (Buffer::new(&[1.0; 8]), Buffer::zeros(8));
            assert_eq!(call(rank, &send, &recv), OK, "{}", last_error());
            rank.wait();
            assert_eq!(rank.state(), ncclResult_t::ncclInvalidUsage);
            let text = rank.error();
            assert!(text.contains("rank 1") && text.contains("rank 0") && text.contains(word), "{text}");
            assert_eq!(recv.values(), [0.0; 8]);
            assert_eq!(rank.all_reduce(&recv), ncclResult_t::ncclInvalidUsage, "the communicator has failed");
        });
        assert!(expected.count() > 0);
    }
}

#[test]
fn bad_arguments_are_refused_before_anything_runs() {
    alone!();
    spmd(2, |rank| {
        let argument = ncclResult_t::ncclInvalidArgument;
        let (buffer, null) = (Buffer::zeros(8), std::ptr::null_mut());
        let (comm, stream) = (rank.comm, rank.stream);
        // SAFETY: every one of these is refused.
        unsafe {
            assert_eq!(ncclAllReduce(buffer.0, buffer.0, 8, ncclDataType_t(12), SUM, comm, stream), argument);
            assert_eq!(ncclAllReduce(buffer.0, buffer.0, 8, F32, ncclRedOp_t(4096), comm, stream), argument);
            assert_eq!(ncclAllReduce(buffer.0, buffer.0, 8, F32, SUM, null, stream), argument);
            assert_eq!(ncclBroadcast(buffer.0, buffer.0, 8, F32, 2, comm, stream), argument);
            assert!(last_error().contains("root is 2, expected 0 to 1"), "{}", last_error());
            assert_eq!(ncclSend(buffer.0, 8, F32, -1, comm, stream), argument);
        }
        assert_eq!(rank.all_reduce(&buffer), OK, "the communicator still works");
        rank.wait();
    });
}

/// NCCL looks at no pointer: such calls are violations, and fail only where those do not end the process.
#[test]
fn what_nccl_does_not_look_at_is_a_violation() {
    alone!();
    spmd(2, |rank| {
        let refused = |part: &str, call: &dyn Fn() -> ncclResult_t| {
            assert_eq!(reported(part, call), ncclResult_t::ncclInvalidArgument);
            assert!(last_error().contains(part), "{}", last_error());
        };
        let (buffer, null) = (Buffer::zeros(8), std::ptr::null_mut());
        let (comm, stream) = (rank.comm, rank.stream);
        set_device(2);
        let elsewhere = Buffer::zeros(8);
        set_device(rank.rank);
        let freed = Buffer::zeros(8).0;
        // SAFETY: every one of these is refused.
        unsafe {
            let reduce = |send, recv, count| ncclAllReduce(send, recv, count, F32, SUM, comm, stream);
            refused("36 bytes", &|| reduce(buffer.0, buffer.0, 9));
            refused("the send buffer is null", &|| reduce(null, buffer.0, 8));
            refused("overflow", &|| reduce(buffer.0, buffer.0, usize::MAX / 2));
            refused("overlap", &|| reduce(buffer.0, buffer.at(1), 4));
            refused("the receive buffer of 32 bytes", &|| reduce(buffer.0, freed, 8));
            refused("it has no in-place form", &|| ncclAlltoAll(buffer.0, buffer.0, 4, F32, comm, stream));
            refused("device 2, expected device", &|| reduce(elsewhere.0, elsewhere.0, 8));
            let word = std::ptr::without_provenance_mut(0x1234);
            refused("0x1234 is no communicator", &|| ncclAllReduce(buffer.0, buffer.0, 8, F32, SUM, word, stream));
        }
        assert_eq!(rank.all_reduce(&buffer), OK, "the communicator still works");
        rank.wait();
    });
}

/// The null stream is that of the communicator's device, whatever device is current; other streams must belong to it.
#[test]
fn streams_of_other_devices_are_refused_but_the_null_stream_is_not() {
    alone!();
    spmd(2, |rank| {
        let buffer = Buffer::new(&[1.0; 8]);
        set_device(2);
        let other = super::stream();
        // SAFETY: the buffer stays until the stream is idle.
        unsafe {
            let reduce = |stream| ncclAllReduce(buffer.0, buffer.0, 8, F32, SUM, rank.comm, stream);
            assert_eq!(reduce(other), ncclResult_t::ncclInvalidArgument);
            assert_eq!(cudaStreamDestroy(other), cudaError::cudaSuccess);
            assert_eq!(reduce(std::ptr::null_mut()), OK, "{}", last_error());
            set_device(rank.rank);
            while cudaStreamQuery(std::ptr::null_mut()) == cudaError::cudaErrorNotReady {}
        }
        assert_eq!(buffer.values(), [2.0; 8]);
    });
}
