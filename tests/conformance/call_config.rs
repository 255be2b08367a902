//! Configurations of single calls: what they compute is the same, ranks agree on them, and nonsense is refused by name.

use std::sync::Arc;

use gpucomm::nccl::{CallConfig, Configured, CtaPolicy};
use gpucomm::version::Version;
use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, NcclCode, ReduceOp, Result, Stream, group, sys};

use crate::support::each_version::{child as run_role, each_version};
use crate::support::{Rig, assert_argument, assert_names, watched};

const CHILD: &str = "call_config::child";

#[test]
#[ignore = "the body of child processes"]
fn child() {
    run_role(&[
        ("computes", computes),
        ("disagree", disagree),
        ("nonsense", nonsense),
        ("algorithms", algorithms),
        ("events", events),
    ]);
}

/// Whether the version has such calls; else it has said so, and nothing has happened.
fn is_there(ranks: usize) -> bool {
    let running = gpucomm::nccl::version().unwrap();
    if running >= Version::new(2, 31, 2) {
        return true;
    }
    let rig = Rig::new(ranks);
    rig.run(|comm, stream| {
        let mut x = DeviceBuffer::from_slice(stream, &[1u32; 5])?;
        let config = CallConfig::new();
        let error = comm.configured(&config).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert_names(&error, &["all_reduce", "2.31.2 or newer", &format!("{running} is running"), "a configured call"]);
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        assert_eq!(x.to_vec(stream)?, [comm.size() as u32; 5]);
        Ok(())
    });
    rig.close();
    false
}

/// The value of element `at` of rank `rank`.
fn value(rank: usize, at: usize) -> u32 {
    (rank as u32 + 3).wrapping_mul(2_654_435_761).wrapping_add((at as u32).wrapping_mul(40_503)) % 10_000
}

fn values(rank: usize, len: usize) -> Vec<u32> {
    (0..len).map(|at| value(rank, at)).collect()
}

const POISON: u32 = 0xdead_beef;

/// All eight, by `on`, each with inputs of its own, and what the host says.
fn all_eight<'a>(
    comm: &'a Communicator,
    stream: &'a Stream,
    config: &'a CallConfig,
    len: usize,
    in_group: bool,
) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let root = size - 1;
    let send = DeviceBuffer::from_slice(stream, &values(rank, len))?;
    let wide = DeviceBuffer::from_slice(stream, &values(rank, len * size))?;
    let poisoned = |len: usize| DeviceBuffer::from_slice(stream, &vec![POISON; len]);
    let mut out = [1, 1, 1, size, 1, size, size, 1].map(|parts| poisoned(len * parts).unwrap());
    let [reduced, at_root, from_root, gathered, part, exchanged, collected, spread] = &mut out;
    type Call<'b> = Box<dyn FnOnce(Configured<'_, 'b>) -> Result<()> + 'b>;
    let calls: [Call<'_>; 8] = [
        Box::new(|on| on.all_reduce((&send, reduced), ReduceOp::Sum, stream)),
        Box::new(|on| on.reduce((&send, at_root), ReduceOp::Max, root, stream)),
        Box::new(|on| on.broadcast((&send, from_root), root, stream)),
        Box::new(|on| on.all_gather((&send, gathered), stream)),
        Box::new(|on| on.reduce_scatter((&wide, part), ReduceOp::Min, stream)),
        Box::new(|on| on.all_to_all((&wide, exchanged), stream)),
        Box::new(|on| on.gather((&send, collected), root, stream)),
        Box::new(|on| on.scatter((&wide, spread), root, stream)),
    ];
    if in_group {
        group(|g| calls.into_iter().try_for_each(|call| call(g.configured(comm, config))))?;
    } else {
        calls.into_iter().try_for_each(|call| call(comm.configured(config)))?;
    }
    let fold = |from: usize, with: fn(u32, u32) -> u32| -> Vec<u32> {
        (from..from + len).map(|at| (0..size).map(|rank| value(rank, at)).reduce(with).unwrap()).collect()
    };
    let everybody: Vec<u32> = (0..size).flat_map(|rank| values(rank, len)).collect();
    let mine = |of: usize, part: usize| (part * len..(part + 1) * len).map(|at| value(of, at)).collect::<Vec<_>>();
    let only_root = |want: Vec<u32>| if rank == root { want } else { vec![POISON; want.len()] };
    let want = [
        fold(0, |a, b| a + b),
        only_root(fold(0, u32::max)),
        values(root, len),
        everybody.clone(),
        fold(rank * len, u32::min),
        (0..size).flat_map(|of| mine(of, rank)).collect(),
        only_root(everybody),
        mine(root, rank),
    ];
    for (at, (out, want)) in out.iter().zip(want).enumerate() {
        assert_eq!(out.to_vec(stream)?, want, "operation {at} of {len} elements");
    }
    Ok(())
}

fn computes(ranks: usize) {
    if !is_there(ranks) {
        return;
    }
    let rig = Rig::new(ranks);
    let configs = [
        CallConfig::new(),
        CallConfig::new().with_min_ctas(2).with_max_ctas(3).with_nvls_ctas(2).with_cta_policy(CtaPolicy::Efficiency),
        CallConfig::new().with_cga_cluster_size(2).with_profiler_tag(77),
        CallConfig::new().with_algorithms("ring, ^ring").unwrap().with_algorithm_fallback(true),
    ];
    rig.run(|comm, stream| {
        for config in &configs {
            for len in [0, 1, 1021] {
                all_eight(comm, stream, config, len, false)?;
                all_eight(comm, stream, config, len, true)?;
            }
        }
        // Those that say the same are the same, whoever made them, and tags are nobody else's business.
        let own = CallConfig::new().with_max_ctas(7).with_profiler_tag(comm.rank() as u64 + 1);
        all_eight(comm, stream, &own, 33, false)
    });
    rig.close();
}

fn disagree(ranks: usize) {
    if ranks < 2 || !is_there(ranks) {
        return;
    }
    for in_group in [false, true] {
        let rig = Rig::new(ranks);
        let error = rig.try_run(|comm, stream| {
            let config = CallConfig::new().with_max_ctas(if comm.rank() == 1 { 2 } else { 4 });
            let mut x = DeviceBuffer::from_slice(stream, &[1u32; 5])?;
            let result = if in_group {
                group(|g| g.configured(comm, &config).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream))
            } else {
                comm.configured(&config).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
            };
            let error = result.and_then(|()| stream.synchronize()).expect_err("the configurations differ");
            assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
            assert_names(&error, &["all_reduce of 5 u32", "with configuration"]);
            Err::<(), _>(error)
        });
        error.unwrap_err();
    }
    // One that has one, and one that has none.
    let rig = Rig::new(ranks);
    let error = rig.try_run(|comm, stream| {
        let config = CallConfig::new();
        let mut x = DeviceBuffer::from_slice(stream, &[1u32; 5])?;
        match comm.rank() {
            0 => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?,
            _ => comm.configured(&config).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?,
        }
        stream.synchronize()
    });
    assert!(matches!(error, Err(Error::Disagreement { .. })), "{error:?}");
}

fn nonsense(ranks: usize) {
    if !is_there(ranks) {
        return;
    }
    let rig = Rig::new(ranks);
    rig.run(|comm, stream| {
        let mut x = DeviceBuffer::from_slice(stream, &[1u32; 5])?;
        let new = CallConfig::new;
        for (config, expected, got) in [
            (new().with_min_ctas(0), "1 to 64", "0"),
            (new().with_max_ctas(65), "1 to 64", "65"),
            (new().with_nvls_ctas(-1), "1 to 64", "-1"),
            (new().with_cga_cluster_size(9), "0 to 8", "9"),
            (new().with_min_ctas(5).with_max_ctas(4), "at most max_ctas, which is 4", "5"),
            (new().with_cta_policy(CtaPolicy::CopyEngines), "0 or 1", "2"),
            (new().with_profiler_tag(1 << 63), "without the highest bit", "0x8000000000000000"),
        ] {
            let refused = comm.configured(&config).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream);
            assert_argument(refused, "all_reduce", expected, got);
        }
        let xor = comm.configured(&new()).all_reduce(InPlace(&mut x), ReduceOp::Xor, stream);
        assert_argument(xor, "all_reduce", "Sum, Prod, Min, Max or Avg, which NCCL has", "Xor");
        assert!(new().with_algorithms("ri\0ng").is_err());
        let (two, four) = (new().with_cga_cluster_size(2), new().with_cga_cluster_size(4));
        let (mut y, mut z) = (DeviceBuffer::<u32>::zeroed(stream, 5)?, DeviceBuffer::<u32>::zeroed(stream, 5)?);
        for other in [Some(&four), None] {
            let differ = group(|g| {
                g.configured(comm, &two).all_reduce(InPlace(&mut y), ReduceOp::Sum, stream)?;
                match other {
                    Some(other) => g.configured(comm, other).all_reduce(InPlace(&mut z), ReduceOp::Sum, stream),
                    None => g.all_reduce(comm, InPlace(&mut z), ReduceOp::Sum, stream),
                }
            });
            assert_argument(differ, "all_reduce", "2 for all collectives", other.map_or("none", |_| "4"));
        }
        // Nothing of all this was submitted.
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        assert_eq!(x.to_vec(stream)?, [comm.size() as u32; 5]);
        Ok(())
    });
    rig.close();
}

/// Where no algorithm is left, NCCL says so.
fn algorithms(ranks: usize) {
    if ranks < 2 || !is_there(ranks) {
        return;
    }
    let rig = Rig::new(ranks);
    let error = rig.try_run(|comm, stream| {
        let mut x = DeviceBuffer::from_slice(stream, &[1u32; 5])?;
        let some = CallConfig::new().with_algorithms("Tree,RING").unwrap();
        comm.configured(&some).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        assert_eq!(x.to_vec(stream)?, [comm.size() as u32; 5]);
        let none = CallConfig::new().with_algorithms("no such algorithm").unwrap();
        let fallen_back = none.clone().with_algorithm_fallback(true);
        comm.configured(&fallen_back).all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
        stream.synchronize()?;
        comm.configured(&none).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
    });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Nccl { operation: "ncclAllReduceConfig", code: NcclCode(4), .. }), "{error:?}");
}

/// An event of the user's, which is recorded with the launch.
fn events(ranks: usize) {
    if !is_there(ranks) {
        return;
    }
    let running = gpucomm::nccl::version().unwrap();
    let rig = Rig::new(ranks);
    rig.run(|comm, stream| {
        let mut event = std::ptr::null_mut();
        // SAFETY: a place for one event, on the device that `spmd` has made current.
        let made = unsafe { sys::cudaEventCreateWithFlags(&raw mut event, sys::cudaEventDisableTiming) };
        assert_eq!(made, sys::cudaError::cudaSuccess);
        // SAFETY: made above, and destroyed below, after all that was enqueued.
        let config = unsafe { CallConfig::new().with_launch_completion(event) };
        let mut x = DeviceBuffer::from_slice(stream, &[1u32; 5])?;
        let result = comm.configured(&config).all_reduce(InPlace(&mut x), ReduceOp::Sum, stream);
        if running < Version::new(2, 32, 3) {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            assert_names(&error, &["2.32.3 or newer", "for launch_completion"]);
        } else {
            result?;
            assert_eq!(x.to_vec(stream)?, [comm.size() as u32; 5]);
            // SAFETY: a live event.
            assert_eq!(unsafe { sys::cudaEventQuery(event) }, sys::cudaError::cudaSuccess);
            let (mut y, mut z) = (DeviceBuffer::<u32>::zeroed(stream, 5)?, DeviceBuffer::<u32>::zeroed(stream, 5)?);
            let second = group(|g| {
                g.configured(comm, &config).all_reduce(InPlace(&mut y), ReduceOp::Sum, stream)?;
                g.configured(comm, &config).all_reduce(InPlace(&mut z), ReduceOp::Sum, stream)
            });
            assert_argument(second, "all_reduce", "one for each communicator", "a second one");
        }
        stream.synchronize()?;
        // SAFETY: nothing uses it any more.
        assert_eq!(unsafe { sys::cudaEventDestroy(event) }, sys::cudaError::cudaSuccess);
        Ok(())
    });
    rig.close();
}

#[test]
fn each_collective_computes_the_same() {
    watched(300.0, || each_version(CHILD, "computes"));
}

#[test]
fn ranks_that_differ_are_told() {
    watched(300.0, || each_version(CHILD, "disagree"));
}

#[test]
fn nonsense_is_refused_by_name() {
    watched(300.0, || each_version(CHILD, "nonsense"));
}

#[test]
fn algorithms_are_chosen_by_name() {
    watched(300.0, || each_version(CHILD, "algorithms"));
}

#[test]
fn an_event_is_recorded_with_the_launch() {
    watched(300.0, || each_version(CHILD, "events"));
}

/// A configuration may be shared, and outlive what it was used for.
#[test]
fn configurations_go_to_threads() {
    let config = Arc::new(CallConfig::new().with_max_ctas(2));
    let other = Arc::clone(&config);
    std::thread::spawn(move || drop(other)).join().unwrap();
    drop(config);
}
