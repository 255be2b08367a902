//! Devices that cannot add numbers of eight bits, and a rank that cannot multiply them: who asks is told at once, and what only moves goes on.

use gpucomm::{
    Backend, Communicator, Device, DeviceBuffer, Error, F8E4M3, F8E5M2, InPlace, NcclCode, Reduce, ReduceOp, Result,
    Stream, UniqueId, group,
};

use crate::support::process::{Role, spawn};
use crate::support::{Number, Rig, assert_names, skip, slower, watched};

const CHILD: &str = "float8_devices::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(20.0));
    if let Some(role) = Role::of_this_process("clique") {
        let rig = Rig::new(role.size);
        rig.run(|comm, stream| {
            refused::<F8E4M3>(comm, stream)?;
            refused::<F8E5M2>(comm, stream)?;
            moved::<F8E4M3>(comm, stream)?;
            moved::<F8E5M2>(comm, stream)
        });
        rig.close();
        println!("finished");
    }
    if let Some(role) = Role::of_this_process("rank") {
        apart(role.join().unwrap());
        println!("finished");
    }
}

/// Every reduction of it is an error of the method that names what is missing and what is there.
fn refused<T: Number>(comm: &Communicator, stream: &Stream) -> Result<()> {
    let ranks = comm.size();
    let mut x = DeviceBuffer::<T>::zeroed(stream, 8 * ranks)?;
    let mut part = DeviceBuffer::<T>::zeroed(stream, 8)?;
    let factor = comm.pre_mul_sum(T::of(1))?;
    let operations = [
        ("all_reduce", comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)),
        ("all_reduce", comm.all_reduce(InPlace(&mut x), &factor, stream)),
        ("reduce", comm.reduce(InPlace(&mut x), ReduceOp::Max, 0, stream)),
        ("reduce_scatter", comm.reduce_scatter((&x, &mut part), ReduceOp::Avg, stream)),
        ("reduce_scatter_v", comm.reduce_scatter_v((&x, &mut part), &vec![8; ranks], ReduceOp::Sum, stream)),
        ("all_reduce_scalar", comm.all_reduce_scalar(T::of(1), ReduceOp::Prod, stream).map(drop)),
        ("all_reduce", group(|g| g.all_reduce(comm, InPlace(&mut x), ReduceOp::Min, stream))),
    ];
    for (operation, result) in operations {
        let error = result.expect_err("a device that is too old");
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        let name = T::KIND.name();
        assert_names(&error, &[operation, name, "9.0 or higher", "got 8.6 of device 1", "rank 1"]);
    }
    Ok(())
}

/// What is moved arrives, and what other types sum up.
fn moved<T: Number>(comm: &Communicator, stream: &Stream) -> Result<()> {
    let ranks = comm.size();
    let value = |rank: usize| T::nearest(rank as f64 + 0.5);
    let mine = DeviceBuffer::from_slice(stream, &[value(comm.rank()); 3])?;
    let mut all = DeviceBuffer::<T>::zeroed(stream, 3 * ranks)?;
    comm.all_gather((&mine, &mut all), stream)?;
    let want: Vec<T> = (0..ranks).flat_map(|rank| [value(rank); 3]).collect();
    assert_eq!(all.to_vec(stream)?, want);
    let mut from_last = DeviceBuffer::from_slice(stream, &[value(comm.rank()); 3])?;
    comm.broadcast(InPlace(&mut from_last), ranks - 1, stream)?;
    assert_eq!(from_last.to_vec(stream)?, [value(ranks - 1); 3]);
    let (next, last) = ((comm.rank() + 1) % ranks, (comm.rank() + ranks - 1) % ranks);
    group(|g| {
        g.send(comm, &mine, next, stream)?;
        g.recv(comm, &mut from_last, last, stream)
    })?;
    assert_eq!(from_last.to_vec(stream)?, [value(last); 3]);
    let mut sum = DeviceBuffer::from_slice(stream, &[1.5f32; 3])?;
    comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, stream)?;
    assert_eq!(sum.to_vec(stream)?, [1.5 * ranks as f32; 3]);
    Ok(())
}

/// A rank in a process of its own knows its own device; of the other NCCL tells, which ends the communicator as whatever it says does.
fn apart(comm: Communicator) {
    let stream = Stream::new(comm.device()).unwrap();
    let old = comm.device().compute_capability().unwrap() < (9, 0);
    let mut x = DeviceBuffer::<F8E4M3>::zeroed(&stream, 8).unwrap();
    let error = comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).expect_err("one of the devices is too old");
    match &error {
        Error::Unsupported { .. } if old => assert_names(&error, &["all_reduce", "f8e4m3", "got 8.6"]),
        Error::Nccl { code: NcclCode(4), .. } if !old => assert_names(&error, &["ncclAllReduce", "sm90"]),
        other => panic!("{other:?}"),
    }
    assert_eq!(comm.is_active(), old);
}

fn run(role: &str, ranks: &[(usize, usize)], capabilities: &str) {
    let id = UniqueId::new().unwrap();
    let env = [("GPUCOMM_EMULATOR_CAPABILITY", capabilities)];
    let children: Vec<_> = ranks.iter().map(|place| spawn(CHILD, role, *place, &id, &env)).collect();
    for child in children {
        let end = child.finish(slower(60.0));
        end.assert_success();
        assert!(end.text.contains("finished"), "{role}, {capabilities}: {}", end.text);
    }
}

#[test]
fn a_device_that_is_too_old() {
    watched(120.0, || {
        if gpucomm::backend() != Backend::Emulator || Device::count().unwrap() < 2 {
            return skip("only the emulator has older devices");
        }
        run("clique", &[(0, 2)], "9.0,8.6");
        run("rank", &[(0, 2), (1, 2)], "10.0,8.6");
    });
}

#[test]
fn one_rank_multiplies_none() {
    fn of<T: Number + Reduce>(comm: &Communicator, stream: &Stream) -> Result<()> {
        let factor = comm.pre_mul_sum(T::of(2))?;
        let mut x = DeviceBuffer::from_slice(stream, &[T::of(3); 5])?;
        let error = comm.all_reduce(InPlace(&mut x), &factor, stream).expect_err("no kernel");
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert_names(&error, &["all_reduce", T::KIND.name(), "two ranks or more", "got a communicator of 1 rank"]);
        comm.all_reduce(InPlace(&mut x), ReduceOp::Avg, stream)?;
        assert_eq!(x.to_vec(stream)?, [T::of(3); 5]);
        Ok(())
    }
    watched(60.0, || {
        if !crate::support::harness::reduces_float8() {
            return;
        }
        let rig = Rig::new(1);
        rig.run(|comm, stream| {
            of::<F8E4M3>(comm, stream)?;
            of::<F8E5M2>(comm, stream)
        });
        rig.close();
    });
}
