//! The emulator, asked from code.

use std::time::Duration;

use gpucomm::{
    Backend, Clique, Communicator, Device, DeviceBuffer, EmulatorSettings, Error, InPlace, ReduceOp, Result, Stream,
};

use crate::support::alone::{alone, is_alone};
use crate::support::{assert_argument, assert_names, quick, skip, slower, watched};

fn emulated() -> bool {
    let emulated = gpucomm::backend() == Backend::Emulator;
    if !emulated {
        let error = EmulatorSettings::new().with_devices(1).apply().expect_err("these are GPUs");
        assert!(matches!(error, Error::Unsupported { operation: "EmulatorSettings::apply", .. }), "{error:?}");
        skip("there is no emulator here");
    }
    emulated
}

fn sum(comm: &Communicator) -> Result<Vec<i32>> {
    let stream = Stream::new(comm.device())?;
    let mut x = DeviceBuffer::from_slice(&stream, &[1; 3])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    let mut sums = vec![0; 3];
    x.slice(..).copy_to_slice_timeout(&stream, &mut sums, slower(2.0))?;
    Ok(sums)
}

/// What cannot be is refused, and nothing of it is taken; then the machine is as it was asked for, and stays so.
#[test]
fn of_the_process() {
    if !emulated() {
        return;
    }
    watched(60.0, || {
        let operation = "EmulatorSettings::apply";
        let expected = "what the variables may hold";
        let settings = EmulatorSettings::new;
        assert_argument(
            settings().with_devices(257).apply(),
            operation,
            expected,
            "GPUCOMM_EMULATOR_DEVICES=257: expected a number",
        );
        assert_argument(
            settings().with_devices(2).with_memory(1).apply(),
            operation,
            expected,
            "MEMORY=1: expected bytes",
        );
        assert_argument(settings().with_faults("explode=rank0@op1").apply(), operation, expected, "explode=rank0@op1");
        settings().with_devices(3).with_memory(1 << 20).apply().unwrap();
        settings().with_devices(7).with_faults("oom=device1@1").with_deadlock(Duration::from_secs(1)).apply().unwrap();
        assert_eq!(Device::count().unwrap(), 7);
        let devices = Device::all().unwrap();
        assert_eq!(devices[0].memory_info().unwrap().total, 1 << 20);
        let stream = Stream::new(devices[1]).unwrap();
        let error = DeviceBuffer::<u8>::uninit(&stream, 10).expect_err("the fault that was asked for");
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
        for late in [settings().with_devices(7), settings()] {
            let error = late.apply().expect_err("it is too late");
            assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
            assert_names(&error, &[operation, "in use already", "before the first use of a device"]);
        }
    });
}

/// One clique has a fault, and the other on the same devices has none.
#[test]
fn of_a_clique() {
    if !emulated() {
        return;
    }
    watched(60.0, || {
        let devices = Device::all().unwrap();
        let clique = || Clique::init_all(&devices[..2]).unwrap();
        let (well, ill) = (clique(), clique());
        assert_eq!(ill.spmd(sum).unwrap(), [[2; 3]; 2]);
        EmulatorSettings::new().with_faults("async_error=rank1@op3").apply_to(ill.ranks()).unwrap();
        for _ in 0..4 {
            assert_eq!(well.spmd(sum).unwrap(), [[2; 3]; 2]);
        }
        assert_eq!(ill.spmd(sum).unwrap(), [[2; 3]; 2], "its second operation");
        let error = quick(slower(5.0), || ill.spmd(sum)).expect_err("its third");
        assert_names(&error, &["an error injected", "rank 1 at operation #3"]);
        let ended = EmulatorSettings::new().with_faults("").apply_to(ill.ranks()).expect_err("it has ended");
        assert!(matches!(ended, Error::Aborted { operation: "EmulatorSettings::apply_to", .. }), "{ended:?}");
        // Later rules take the place of earlier ones.
        for faults in ["hang=rank0@op6", ""] {
            EmulatorSettings::new().with_faults(faults).apply_to(well.ranks()).unwrap();
        }
        for _ in 0..3 {
            assert_eq!(well.spmd(sum).unwrap(), [[2; 3]; 2]);
        }
        let alone = Clique::init_all(&devices[..1]).unwrap();
        EmulatorSettings::new().with_faults("async_error=rank0@op1").apply_to(alone.ranks()).unwrap();
        assert!(alone.spmd(sum).is_err(), "of one rank");
        let refused = EmulatorSettings::new().with_faults("lose=device0@op1").apply_to(well.ranks());
        assert_argument(refused, "EmulatorSettings::apply_to", "what the variables may hold", "about its ranks");
        let refused =
            EmulatorSettings::new().with_devices(4).apply_to(well.ranks()).expect_err("they have them in common");
        assert!(matches!(refused, Error::InvalidUsage { .. }), "{refused:?}");
    });
}

/// Who waits too long for whom is told for the one clique, and not for the other.
#[test]
fn deadlocks_of_a_clique() {
    if !emulated() {
        return;
    }
    if is_alone() {
        let clique = Clique::init_all(&Device::all().unwrap()[..2]).unwrap();
        EmulatorSettings::new().with_deadlock(Duration::from_millis(200)).apply_to(clique.ranks()).unwrap();
        let result = clique.spmd(|comm| {
            sum(comm)?;
            if comm.rank() == 1 {
                std::thread::sleep(Duration::from_millis(900));
            }
            sum(comm)
        });
        assert_eq!(result.unwrap(), [[2; 3]; 2]);
        return;
    }
    let end = alone("emulator_settings::deadlocks_of_a_clique").finish(slower(60.0));
    end.assert_success();
    assert!(end.text.contains("deadlock? ") && end.text.contains("rank 0 has waited 0."), "{}", end.text);
}
