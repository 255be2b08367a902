//! The emulator's faults, and, on GPUs, kernels that trap, each in a process of its own: every request is answered, and the world goes on.

use std::time::Duration;

use gpucomm::world::{Members, Reason, Rebuild, WorldOptions, health::Phase};
use gpucomm::{Backend, Device, Error, InPlace, ReduceOp};

use super::support::{child, eventually, number, on, until_rebuilt, values, world};
use super::trap::Trap;

const FAULT: &str = "GPUCOMM_TEST_FAULT";

fn with(fault: &str, left: &str) {
    if gpucomm::backend() != Backend::Emulator {
        return;
    }
    let set = [
        ("GPUCOMM_EMULATOR_LOST", "device"),
        ("GPUCOMM_EMULATOR_FAULTS", fault),
        (FAULT, left),
        ("GPUCOMM_EMULATOR_DEVICES", "4"),
        ("GPUCOMM_EMULATOR_STRICT", "0"),
    ];
    child("faults::under_load", &set).succeeds(fault);
}

#[test]
fn an_error_of_a_communicator() {
    with("async_error=rank1@op30", "4");
}

#[test]
fn a_device_that_is_lost() {
    with("lose=device2@op40", "3");
}

/// As CUDA has it: all devices of the process are lost with one, and its world is not rebuilt.
#[test]
fn a_process_that_has_lost_its_devices() {
    let set = [(FAULT, "0"), ("GPUCOMM_EMULATOR_FAULTS", "lose=device1@op40"), ("GPUCOMM_EMULATOR_STRICT", "0")];
    if Trap::SOME && Device::count().unwrap() > 1 {
        let times = number("GPUCOMM_WORLD_KILLS").unwrap_or(1);
        (0..times).for_each(|_| print!("{}", child("faults::under_load", &set).succeeds("its devices are lost")));
    }
}

#[test]
fn a_rank_that_hangs() {
    with("hang=rank3@op25", "4");
}

#[test]
fn a_rank_that_dies() {
    // Its device is well, so another rank takes its place.
    with("die=rank1@op20", "4");
}

#[test]
#[ignore = "with a fault"]
fn under_load() {
    let Ok(left) = std::env::var(FAULT) else { return };
    let left: usize = left.parse().unwrap();
    let rebuild = Rebuild::Automatic {
        members: Members::Survivors,
        first: Duration::from_millis(50),
        longest: Duration::from_secs(2),
        attempts: 10,
    };
    let world = world(4, WorldOptions::new().with_rebuild(rebuild).with_timeout(Duration::from_secs(3)));
    let (mut answered, mut failed) = (0, 0);
    let devices = world.devices();
    let mut trap = (left == 0).then(|| (Trap::on(devices[fastrand::usize(..devices.len())]), fastrand::u32(4..200)));
    while world.health().generation == 1 && world.health().phase == Phase::Up && answered < 400 {
        // A device may be lost by now.
        let fresh = |device| {
            let stream = gpucomm::Stream::new(device)?;
            gpucomm::DeviceBuffer::from_slice(&stream, &[1u32; 64]).map(InPlace)
        };
        let Ok(forms) = (0..4).map(|_| devices.iter().map(|device| fresh(*device)).collect()).collect() else { break };
        let forms: Vec<Vec<_>> = forms;
        // Several at a time.
        let asked: Vec<_> = forms.into_iter().map(|forms| world.all_reduce(forms, ReduceOp::Sum)).collect();
        if let Some((trap, _)) = trap.take_if(|(_, when)| answered >= *when) {
            trap.spring();
        }
        for wide in asked {
            answered += 1;
            match wide.wait() {
                Ok(back) => drop(back),
                Err(_) => failed += 1,
            }
        }
    }
    eventually("the fault comes", || world.health().phase != Phase::Up || world.health().generation > 1);
    println!("{failed} of {answered} requests have failed: {:?}", world.health().cause);
    if left == 0 {
        eventually("it is told", || world.health().attempt.is_some());
        assert!(matches!(world.health().attempt, Some(Error::DeviceLost { .. })), "{:?}", world.health());
        assert_eq!(world.metrics().pending, 0);
        assert_eq!(world.barrier().wait().err().map(|failed| failed.reason), Some(Reason::Down));
        // There is nothing on which it could be closed.
        std::process::exit(0);
    }
    until_rebuilt(&world);
    assert_eq!(world.size(), left, "{:?}", world.health());
    for _ in 0..20 {
        let forms = world.devices().into_iter().map(|device| InPlace(on(device, &[1u32; 64])));
        for x in world.all_reduce(forms, ReduceOp::Sum).wait().unwrap() {
            assert_eq!(values(&x), [u32::try_from(left).unwrap(); 64]);
        }
    }
    assert_eq!(world.metrics().pending, 0);
    // What is stuck inside NCCL does not hold up the end of the process.
    std::mem::forget(world);
}
