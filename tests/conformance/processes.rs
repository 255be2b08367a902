//! Ranks as separate processes: this program, started again.

use std::time::Duration;

use gpucomm::{
    Backend, Device, DeviceBuffer, Error, InPlace, Layout, NcclCode, ReduceOp, Result, Stream, UniqueId, group,
};

use crate::support::process::{Child, Role, all_succeed, spawn, spawn_all};
use crate::support::reference::{check, reduce};
use crate::support::{Case, Guarded, Number, Op, OpExt, each_type, rank_counts, slower, still_works, takes, watched};

const CHILD: &str = "processes::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(30.0));
    let roles: [(&str, fn(Role) -> Result<()>); 4] = [
        ("everything", everything),
        ("on one device", on_one_device),
        ("victim", victim),
        ("left waiting", left_waiting),
    ];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role).unwrap();
        }
    }
}

fn reductions_of<T: Number>(comm: &gpucomm::Communicator, stream: &Stream) {
    let (rank, size) = (comm.rank(), comm.size());
    for op in Op::of::<T>(size) {
        for len in [0, 1, 1021, 40_009].into_iter().filter(|len| takes(("processes", T::KIND, size, op, len))) {
            let case = Case::reducing::<T>("all_reduce by processes", op, size, len, false);
            let inputs = case.inputs::<T>(size, len);
            let want = reduce(&inputs, op);
            let send = Guarded::holding(stream, &inputs[rank]).unwrap();
            let mut recv = Guarded::poisoned(stream, len).unwrap();
            op.with(comm, |op| comm.all_reduce((send.inner(), recv.inner_mut()), op, stream)).unwrap();
            check(&case, rank, &recv.read(stream).unwrap(), &want);
        }
    }
}

fn everything(role: Role) -> Result<()> {
    let comm = role.join()?;
    assert_eq!((comm.rank(), comm.size()), (role.rank, role.size));
    let stream = &Stream::new(comm.device())?;
    use_all(&comm, stream)?;
    comm.close_timeout(slower(20.0))
}

/// Collectives, messages, and a window.
pub fn use_all(comm: &gpucomm::Communicator, stream: &Stream) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    each_type!(reductions_of(comm, stream));

    let own = DeviceBuffer::from_slice(stream, &[rank as u32 + 1; 1021])?;
    let everybody: Vec<u32> = (1..=size as u32).flat_map(|rank| [rank; 1021]).collect();
    let mut all = DeviceBuffer::<u32>::zeroed(stream, 1021 * size)?;
    comm.all_gather((&own, &mut all), stream)?;
    assert_eq!(all.to_vec(stream)?, everybody);
    let many = DeviceBuffer::from_slice(stream, &vec![rank as u32 + 1; 1021 * size])?;
    comm.all_to_all((&many, &mut all), stream)?;
    assert_eq!(all.to_vec(stream)?, everybody);
    let mut part = DeviceBuffer::<u32>::zeroed(stream, 1021)?;
    comm.reduce_scatter((&many, &mut part), ReduceOp::Sum, stream)?;
    assert_eq!(part.to_vec(stream)?, [(size * (size + 1) / 2) as u32; 1021]);
    comm.broadcast(InPlace(&mut part), size - 1, stream)?;

    let mut window = comm.alloc_from(stream, &[rank as f32; 5000])?;
    comm.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream)?;
    assert_eq!(window.to_vec(stream)?, [(size * (size - 1) / 2) as f32; 5000]);

    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut from_before = DeviceBuffer::<u32>::zeroed(stream, 1021)?;
    group(|g| {
        g.send(comm, &own, next, stream)?;
        g.recv(comm, &mut from_before, before, stream)
    })?;
    assert_eq!(from_before.to_vec(stream)?, [before as u32 + 1; 1021]);

    // Rank r sends r + 1 elements to each.
    let (out, into) = (vec![rank + 1; size], (1..=size).collect::<Vec<_>>());
    let layout = |counts| Layout { counts, offsets: None };
    comm.all_to_all_v((&many, &mut all), layout(&out), layout(&into), stream)?;
    let want: Vec<u32> = (1..=size).flat_map(|peer| vec![peer as u32; peer]).collect();
    assert_eq!(all.slice(0..want.len()).to_vec(stream)?, want);
    drop(window);
    Ok(())
}

#[test]
fn every_operation() {
    watched(180.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            all_succeed(spawn_all(CHILD, "everything", ranks, &[]), slower(90.0));
        }
    });
}

/// What makes one device the only one that a process sees.
fn only(device: usize) -> (&'static str, String) {
    let hex = Device::new(device).unwrap().uuid().unwrap().map(|byte| format!("{byte:02x}")).concat();
    let name = format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    ("CUDA_VISIBLE_DEVICES", name)
}

/// A process for each rank of a role, rank r of which sees the device `devices[r]` alone.
fn spawn_each_on_one(role: &str, devices: &[usize], env: &[(&str, &str)]) -> Vec<Child> {
    let id = UniqueId::new().unwrap();
    let spawn_on = |(rank, &device): (usize, &usize)| {
        let (name, value) = only(device);
        spawn(CHILD, role, (rank, devices.len()), &id, &[env, &[(name, &value)]].concat())
    };
    devices.iter().enumerate().map(spawn_on).collect()
}

/// As launchers start them: the first device that it sees is another one for each process.
#[test]
fn every_operation_with_one_visible_device_each() {
    watched(180.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let devices: Vec<_> = (0..ranks).rev().collect();
            all_succeed(spawn_each_on_one("everything", &devices, &[]), slower(90.0));
        }
    });
}

/// The start of a rank whose device another rank has too.
fn on_one_device(role: Role) -> Result<()> {
    let error = role.join().expect_err("two ranks on one device");
    // ncclInvalidUsage
    assert!(matches!(error, Error::Nccl { code: NcclCode(5), .. }), "{error:?}");
    if gpucomm::backend() == Backend::Emulator {
        assert!(error.to_string().contains("Duplicate GPU detected: rank 0 and rank 1"), "{error}");
    }
    Ok(())
}

#[test]
fn two_processes_on_one_device() {
    watched(90.0, || {
        all_succeed(spawn_each_on_one("on one device", &[0, 0], &[]), slower(40.0));
        if gpucomm::backend() == Backend::Emulator {
            // Ordinals tell nothing: here they differ.
            let id = UniqueId::new().unwrap();
            let list = |rank, list| spawn(CHILD, "on one device", (rank, 2), &id, &[("CUDA_VISIBLE_DEVICES", list)]);
            all_succeed(vec![list(0, "2,3"), list(1, "0,2")], slower(40.0));
            // Newer versions can be told to allow it.
            let enabled = |version| [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("GPUCOMM_EMULATOR_NCCL", version)];
            all_succeed(spawn_each_on_one("on one device", &[1, 1], &enabled("2.29.7")), slower(40.0));
            all_succeed(spawn_each_on_one("everything", &[1, 1], &enabled("2.30.3")), slower(40.0));
        }
        still_works(2);
    });
}

/// Reduces until its peer is killed; then the error must come within the deadline, and a new communicator must work.
fn victim(role: Role) -> Result<()> {
    let comm = role.join()?;
    let stream = Stream::new(comm.device())?;
    let mut x = DeviceBuffer::from_slice(&stream, &vec![1.0f32; 100_000])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    stream.synchronize_timeout(slower(20.0))?;
    println!("ready");
    let limit = slower(4.0);
    comm.set_timeout(limit);
    let start = std::time::Instant::now();
    let error = loop {
        let result = comm
            .all_reduce(InPlace(&mut x), ReduceOp::Max, &stream)
            .and_then(|()| stream.synchronize_timeout(limit))
            .and_then(|()| comm.async_error());
        if let Err(error) = result {
            break error;
        }
        assert!(start.elapsed() < slower(60.0), "nobody was killed");
    };
    assert!(matches!(error, Error::Timeout { .. } | Error::Nccl { .. } | Error::Aborted { .. }), "{error:?}");
    println!("noticed: {error}");
    // It may have been aborted when the error was noticed.
    assert_ne!(comm.aborter().abort("a peer was killed"), gpucomm::nccl::AbortOutcome::StillRunning);
    drop(comm);
    // The first wait may report what was aborted; after it the stream goes on.
    let _ = stream.synchronize_timeout(slower(20.0));
    x.fill(&stream, 3.0)?;
    assert!(x.to_vec(&stream)?.iter().all(|value| *value == 3.0));
    still_works(1);
    println!("recovered");
    Ok(())
}

#[test]
fn a_process_that_is_killed() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let mut children = spawn_all(CHILD, "victim", ranks, &[]);
            for child in &mut children {
                child.wait_for("ready", slower(40.0));
            }
            // In the middle of something, more likely than not.
            std::thread::sleep(Duration::from_millis(30));
            let mut last = children.pop().unwrap();
            last.kill();
            assert!(!last.finish(slower(10.0)).status.success());
            let killed = std::time::Instant::now();
            for child in &mut children {
                child.wait_for("noticed", slower(12.0));
            }
            assert!(killed.elapsed() < slower(12.0));
            all_succeed(children, slower(40.0));
            still_works(ranks);
        }
    });
}

/// A process that never starts: the others give up within their deadline (and say who is missing, where it is known).
fn left_waiting(role: Role) -> Result<()> {
    let options = gpucomm::nccl::InitOptions::new().with_timeout(slower(2.0));
    // SAFETY: nobody issues anything.
    let error =
        unsafe { gpucomm::Communicator::init_rank_with(role.device()?, role.size, &role.id, role.rank, &options) }
            .expect_err("a rank is missing");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    still_works(1);
    Ok(())
}

#[test]
fn a_process_that_never_starts() {
    watched(60.0, || {
        for ranks in rank_counts(&[3]) {
            let id = UniqueId::new().unwrap();
            let children = (0..ranks - 1).map(|rank| spawn(CHILD, "left waiting", (rank, ranks), &id, &[])).collect();
            all_succeed(children, slower(30.0));
            still_works(ranks);
        }
    });
}
