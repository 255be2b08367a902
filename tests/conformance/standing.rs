//! How communicators stand, and what those say that take no calls any more.

use std::time::Duration;

use gpucomm::nccl::CommState;
use gpucomm::{DeviceBuffer, Error, InPlace, ReduceOp};

use crate::support::{Rig, rank_counts, slower, watched};

#[test]
fn what_was_aborted_says_since_when_and_why() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            let comm = rig.clique.rank(0);
            let stream = gpucomm::Stream::new(comm.device()).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[1u8; 3]).unwrap();
            assert_eq!((comm.state(), comm.aborter().state()), (CommState::Active, Some(CommState::Active)));
            let _ = comm.aborter().abort("the test gives up");
            assert!(rig.clique.ranks().iter().all(|comm| comm.state() == CommState::Aborted && !comm.is_active()));
            let mut refused = || comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).expect_err("aborted");
            let error = refused();
            let Error::Aborted { operation: "all_reduce", reason } = &error else { panic!("{error:?}") };
            assert!(reason.starts_with("the test gives up (") && reason.ends_with(" ago)"), "{error}");
            std::thread::sleep(Duration::from_millis(1100));
            let error = refused();
            assert!(
                error.to_string().contains("the test gives up (") && error.to_string().contains(" s ago)"),
                "{error}"
            );
        }
    });
}

#[test]
fn what_was_closed_is_closed() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            let aborter = rig.clique.rank(0).aborter();
            rig.clique.close_timeout(slower(10.0)).unwrap();
            // What NCCL has let go of may be kept a little longer by who looks after it.
            assert!(matches!(aborter.state(), None | Some(CommState::Closed)), "{:?}", aborter.state());
            assert!(!aborter.is_active());
        }
    });
}

/// A line that says what it is, not all that is within.
#[test]
fn what_is_shown_of_them() {
    watched(60.0, || {
        let rig = Rig::new(1);
        let comm = rig.clique.rank(0);
        let shown = format!("{comm:?}");
        assert_eq!(shown, "Communicator { name: \"world\", rank: 0, size: 1, device: Device(0), state: Active, .. }");
        assert_eq!(format!("{:?}", rig.clique), format!("Clique {{ ranks: [{shown}], pinned: false }}"));
        let sum = comm.pre_mul_sum(0.5f32).unwrap();
        assert_eq!(format!("{sum:?}"), "PreMulSum { element: F32, rank: 0, factor: \"on the host\", .. }");
        let stream = gpucomm::Stream::new(comm.device()).unwrap();
        let (mut x, y) =
            (DeviceBuffer::<u8>::zeroed(&stream, 3).unwrap(), DeviceBuffer::<u8>::zeroed(&stream, 3).unwrap());
        gpucomm::group(|g| {
            g.barrier_on_stream(comm, &stream)?;
            g.all_reduce(comm, (&y, &mut x), ReduceOp::Sum, &stream)?;
            g.barrier_on_stream(comm, &stream)?;
            assert_eq!(format!("{g:?}"), "[\"barrier_on_stream\", \"all_reduce\", \"barrier_on_stream\"]");
            Ok(())
        })
        .unwrap();
        let _ = comm.aborter().abort("to see it");
        assert!(format!("{comm:?}").contains("state: Aborted"), "{comm:?}");
    });
}
