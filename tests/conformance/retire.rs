//! Windows that were dropped go together, on all ranks. On the emulator, ranks that come to different views of where windows lie end the
//! process.

use std::time::Duration;

use gpucomm::{CommBuffer, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

use crate::support::process::{Role, all_succeed, spawn_all};
use crate::support::{Rig, assert_names, rank_counts, slower, watched};

/// More than the granularity of device memory, so that windows of different sizes leave gaps of different sizes.
const MIB: usize = 1 << 20;

/// A window of the ranks, through which they sum.
fn sums_are_right(comm: &Communicator, stream: &Stream, window: &mut CommBuffer<'_, u32>) -> Result<()> {
    window.fill(stream, comm.rank() as u32 + 1)?;
    comm.all_reduce(InPlace(&mut *window), ReduceOp::Sum, stream)?;
    let want = (comm.size() * (comm.size() + 1) / 2) as u32;
    assert!(window.to_vec(stream)? == vec![want; window.len()]);
    Ok(())
}

/// One rank's window is still in use when those of the others are not.
#[test]
fn a_window_that_is_in_use_goes_with_the_others() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut stay = comm.alloc::<u32>(stream, MIB)?;
                for round in 0..3 {
                    let window = comm.alloc::<u8>(stream, 3 * MIB)?;
                    let mut copy = DeviceBuffer::<u8>::zeroed(stream, 3 * MIB)?;
                    if comm.rank() == round % ranks {
                        stream.launch_host(|| std::thread::sleep(Duration::from_millis(200)))?;
                        copy.copy_from(stream, &window)?;
                    }
                    drop(window);
                    // Long enough for whoever would take it away as soon as it can.
                    std::thread::sleep(Duration::from_millis(100));
                    let mut next = comm.alloc::<u32>(stream, MIB / 2)?;
                    sums_are_right(comm, stream, &mut next)?;
                    sums_are_right(comm, stream, &mut stay)?;
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// Ranks that drop at different points, and in different orders.
#[test]
fn a_window_stays_until_all_have_dropped_it() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let odd = comm.rank() % 2 == 1;
                let (a, b) = (comm.alloc::<u8>(stream, 5 * MIB)?, comm.alloc::<u8>(stream, MIB)?);
                let (early, late) = if odd { (a, b) } else { (b, a) };
                drop(early);
                let mut c = comm.alloc::<u32>(stream, MIB)?;
                drop(late);
                let mut d = comm.alloc::<u32>(stream, MIB)?;
                sums_are_right(comm, stream, &mut c)?;
                sums_are_right(comm, stream, &mut d)?;
                drop(c);
                comm.reclaim()?;
                let mut e = comm.alloc::<u32>(stream, 2 * MIB)?;
                sums_are_right(comm, stream, &mut e)?;
                sums_are_right(comm, stream, &mut d)
            });
            rig.close();
        }
    });
}

/// Bytes that are in use on the device of a rank.
fn used(comm: &Communicator) -> Result<usize> {
    comm.device().memory_info().map(|info| info.total - info.free)
}

/// Alone, because other tests use the same devices.
#[test]
fn memory_comes_back() {
    watched(120.0, || {
        for role in ["reclaim", "again"] {
            let small = [("GPUCOMM_EMULATOR_MEMORY", "48M")];
            all_succeed(spawn_all("retire::in_a_child", role, 1, &small), slower(80.0));
        }
    });
}

#[test]
#[ignore = "a child of the test above"]
fn in_a_child() {
    let body = if Role::of_this_process("reclaim").is_some() {
        reclaiming_gives_the_memory_back
    } else if Role::of_this_process("again").is_some() {
        allocating_again_and_again_needs_memory_for_two
    } else {
        return;
    };
    for ranks in rank_counts(&[1, 2, 3, 4]) {
        let rig = Rig::new(ranks);
        body(&rig);
        rig.close();
    }
}

fn reclaiming_gives_the_memory_back(rig: &Rig) {
    let mut before = Vec::new();
    for round in 0..4 {
        let after = rig.run(|comm, stream| {
            for _ in 0..4 {
                let mut window = comm.alloc::<u32>(stream, MIB)?;
                comm.all_reduce(InPlace(&mut window), ReduceOp::Max, stream)?;
            }
            comm.reclaim()?;
            used(comm)
        });
        // NCCL takes some for itself at the first windows.
        assert!(round < 2 || after == before, "{} ranks, round {round}: {after:?}, not {before:?}", rig.size());
        before = after;
    }
}

/// For the window that is new, and for the one that was dropped before.
fn allocating_again_and_again_needs_memory_for_two(rig: &Rig) {
    let free = |comm: &Communicator| comm.device().memory_info().map(|info| info.free);
    rig.run(|comm, stream| {
        drop(comm.alloc::<u32>(stream, 1)?);
        comm.reclaim()?;
        stream.synchronize()
    });
    let bytes = rig.run(|comm, _| free(comm)).into_iter().min().unwrap_or(0) / 5 * 2;
    rig.run(|comm, stream| {
        for _ in 0..8 {
            let mut window = comm.alloc::<u32>(stream, bytes / 4)?;
            comm.all_reduce(InPlace(window.slice_mut(..1000)), ReduceOp::Max, stream)?;
        }
        Ok(())
    });
}

#[test]
fn a_rank_that_does_something_else_is_told() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            let result = rig.try_run(|comm, stream| {
                let mut x = comm.alloc::<u32>(stream, 4)?;
                if comm.rank() == 1 { comm.reclaim() } else { comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream) }
            });
            let error = result.expect_err("ranks disagree");
            assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
            assert_names(&error, &["reclaim", "all_reduce"]);
        }
    });
}

/// Also where both take one page.
#[test]
fn ranks_allocate_the_same_length() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            let result = rig.try_run(|comm, stream| {
                let window = comm.alloc::<u32>(stream, if comm.rank() == 1 { 30 } else { 10 })?;
                window.to_vec(stream)
            });
            let error = result.expect_err("ranks disagree");
            assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
            assert_names(&error, &["alloc of 40 bytes", "alloc of 120 bytes"]);
        }
    });
}
