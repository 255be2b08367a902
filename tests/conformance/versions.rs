//! Other versions of NCCL, which the emulator stands for on request, each with its known bugs: what goes around a bug does so at the
//! versions that have it, and programs meet none.

use gpucomm::known_bugs::TABLE;
use gpucomm::{
    Backend, CommBuffer, Communicator, Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream, UniqueId, Version, f16,
};

use crate::support::process::{Role, spawn};
use crate::support::{Number, Rig, skip, slower, watched};

const CHILD: &str = "versions::child";
const VERSION: &str = "GPUCOMM_EMULATOR_NCCL";

/// Before and after each change.
const VERSIONS: [&str; 6] = ["2.28.9", "2.29.2", "2.29.6", "2.29.7", "2.30.3", "2.32.3"];

/// The bugs that the emulator has on request.
const SHOWN: [&str; 3] = ["misaligned-windows", "one-rank-premulsum", "window-averages"];

/// Elements, and offsets of what is sent and received.
const CASES: [[usize; 3]; 5] = [[3, 0, 0], [3, 1, 0], [64, 2, 1], [1021, 3, 3], [1000, 4, 5]];

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    if let Some(role) = Role::of_this_process("works") {
        gpucomm::set_default_timeout(slower(30.0));
        let rig = Rig::new(role.size);
        rig.run(|comm, stream| {
            between_windows_of::<u8>(comm, stream)?;
            between_windows_of::<f16>(comm, stream)?;
            averages_of::<f16>(comm, stream)?;
            averages_of::<f32>(comm, stream)
        });
        rig.close();
        one_rank();
        println!("finished");
    }
}

/// Between two windows, and between one and other memory.
fn between_windows_of<T: Number>(comm: &Communicator, stream: &Stream) -> Result<()> {
    let len = 1100;
    let mut windows: [CommBuffer<'_, T>; 2] = [comm.alloc(stream, len)?, comm.alloc(stream, 2 * len)?];
    let mut others = [DeviceBuffer::<T>::zeroed(stream, len)?, DeviceBuffer::<T>::zeroed(stream, 2 * len)?];
    let value = |rank: usize, at: usize| T::of(((7 * at + 3 * rank) % 50) as u8);
    let values: Vec<_> = (0..len).map(|at| value(comm.rank(), at)).collect();
    windows[0].copy_from_slice(stream, &values)?;
    others[0].copy_from_slice(stream, &values)?;
    for (from_window, to_window) in [(true, true), (true, false), (false, true), (false, false)] {
        for [count, from, to] in CASES {
            let [send, recv] = &mut windows;
            let [other_send, other_recv] = &mut others;
            let send = if from_window { send.slice(from..from + count) } else { other_send.slice(from..from + count) };
            let all = to..to + comm.size() * count;
            let recv = if to_window { recv.slice_mut(all.clone()) } else { other_recv.slice_mut(all.clone()) };
            comm.all_gather((send, recv), stream)?;
            let got = if to_window { windows[1].slice(all) } else { others[1].slice(all) }.to_vec(stream)?;
            let want: Vec<_> =
                (0..comm.size()).flat_map(|rank| (from..from + count).map(move |at| value(rank, at))).collect();
            assert!(got == want, "all_gather of {count} from {from_window} {from} to {to_window} {to}");
            let [send, recv] = &mut windows;
            let [other_send, other_recv] = &mut others;
            let send = if from_window { send.slice(from..from + count) } else { other_send.slice(from..from + count) };
            let part = to..to + count;
            let recv = if to_window { recv.slice_mut(part.clone()) } else { other_recv.slice_mut(part.clone()) };
            comm.all_reduce((send, recv), ReduceOp::Sum, stream)?;
            let got = if to_window { windows[1].slice(part) } else { others[1].slice(part) }.to_vec(stream)?;
            let sum = |at: usize| (0..comm.size()).map(|rank| ((7 * at + 3 * rank) % 50) as u8).sum();
            let want: Vec<_> = (from..from + count).map(|at| T::of(sum(at))).collect();
            assert!(got == want, "all_reduce of {count} from {from_window} {from} to {to_window} {to}");
        }
    }
    Ok(())
}

/// Of floating-point numbers, which NCCL multiplies before it sums them.
fn averages_of<T: Number>(comm: &Communicator, stream: &Stream) -> Result<()> {
    let (len, size) = (1021, comm.size());
    let values: Vec<_> = (0..len).map(|at| T::of((size * (at % 9) + 4 * comm.rank()) as u8)).collect();
    let sum = |at: usize| (0..size).map(|rank| size * (at % 9) + 4 * rank).sum::<usize>();
    let want: Vec<_> = (0..len).map(|at| T::of((sum(at) / size) as u8)).collect();
    let (window, other) = (comm.alloc_from(stream, &values)?, DeviceBuffer::from_slice(stream, &values)?);
    let (mut to_window, mut to_other) = (comm.alloc::<T>(stream, len)?, DeviceBuffer::<T>::zeroed(stream, len)?);
    comm.all_reduce((&window, &mut to_window), ReduceOp::Avg, stream)?;
    comm.all_reduce((&window, &mut to_other), ReduceOp::Avg, stream)?;
    assert!(to_window.to_vec(stream)? == want && to_other.to_vec(stream)? == want, "average from a window");
    comm.all_reduce((&other, &mut to_window), ReduceOp::Avg, stream)?;
    comm.all_reduce((&other, &mut to_other), ReduceOp::Avg, stream)?;
    assert!(to_window.to_vec(stream)? == want && to_other.to_vec(stream)? == want, "average from other memory");
    comm.all_reduce(InPlace(&mut to_window), ReduceOp::Avg, stream)?;
    assert!(to_window.to_vec(stream)? == want, "average of averages");
    Ok(())
}

/// A pre-multiplied sum of one rank.
fn one_rank() {
    let rig = Rig::new(1);
    rig.run(|comm, stream| {
        let operator = comm.pre_mul_sum(2.0f32)?;
        for len in [1, 31, 4099] {
            let send = DeviceBuffer::from_slice(stream, &vec![3.0f32; len])?;
            let mut recv = DeviceBuffer::zeroed(stream, len)?;
            comm.all_reduce((&send, &mut recv), &operator, stream)?;
            assert_eq!(recv.to_vec(stream)?, vec![6.0; len]);
        }
        Ok(())
    });
    rig.close();
}

#[test]
fn no_version_shows_its_bugs() {
    watched(120.0, || {
        if gpucomm::backend() != Backend::Emulator || Device::count().unwrap() < 2 {
            return skip("only the emulator stands for other versions");
        }
        for name in SHOWN {
            assert!(TABLE.iter().any(|bug| bug.name == name), "{name}");
        }
        let bugs = SHOWN.join(",");
        for version in VERSIONS {
            let env = [(VERSION, version), ("GPUCOMM_EMULATOR_BUGS", &bugs)];
            let end = spawn(CHILD, "works", (0, 2), &UniqueId::new().unwrap(), &env).finish(slower(60.0));
            end.assert_success();
            assert!(end.text.contains("finished"), "{version}: {}", end.text);
        }
    });
}

/// Without the bugs, or with more of them than the version has, nothing needs to be gone around.
#[test]
fn the_table_has_the_versions_of_the_emulator() {
    for (name, first_without) in
        [("misaligned-windows", (2, 30, 3)), ("one-rank-premulsum", (2, 29, 7)), ("abort-keeps-windows", (2, 29, 7))]
    {
        let bug = TABLE.iter().find(|bug| bug.name == name).expect(name);
        let (major, minor, patch) = first_without;
        assert!(!bug.concerns(Version::new(major, minor, patch)), "{name}");
        assert!(bug.concerns(Version::new(2, 28, 9)), "{name}");
    }
}
