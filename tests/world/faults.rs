//! The emulator's faults, and a kernel that traps, each in a process of its own: every request is answered, and the world goes on.

use std::time::Duration;

use gpucomm::world::{Members, Op, Phase, Rebuild, WorldOptions};
use gpucomm::{Backend, Device, InPlace};

use super::support::{child, eventually, on, values, world};

const FAULT: &str = "GPUCOMM_TEST_FAULT";
const TRAP: &str = "GPUCOMM_TEST_TRAP";

fn with(fault: &str, left: &str) {
    if gpucomm::backend() != Backend::Emulator {
        return;
    }
    let set = [
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

#[test]
fn a_rank_that_hangs() {
    with("hang=rank3@op25", "4");
}

#[test]
fn a_rank_that_dies() {
    // Its device is well, so another rank takes its place.
    with("die=rank1@op20", "4");
}

/// On GPUs, `GPUCOMM_WORLD_KILLS` times: what the emulator's fault stands for.
#[cfg(feature = "cudarc")]
#[cfg_attr(feature = "emulator", ignore = "needs GPUs")]
#[test]
fn a_kernel_that_traps() {
    let Some(left @ 1..) = Device::count().unwrap().min(4).checked_sub(1) else { return };
    let times = std::env::var("GPUCOMM_WORLD_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for _ in 0..times {
        let said = child("faults::under_load", &[(FAULT, &left.to_string()), (TRAP, "1")]).succeeds("trap");
        print!("{said}");
    }
}

/// A kernel that takes the context of its device with it.
struct Trap {
    #[cfg(feature = "cudarc")]
    kernel: cudarc::driver::sys::CUfunction,
    #[cfg(feature = "cudarc")]
    context: std::sync::Arc<cudarc::driver::CudaContext>,
}

impl Trap {
    #[cfg(feature = "cudarc")]
    fn on(device: Device) -> Self {
        use cudarc::driver::{CudaContext, result};
        const PTX: &std::ffi::CStr =
            c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry fall() { trap; }\n";
        let context = CudaContext::new(usize::try_from(device.ordinal()).unwrap()).unwrap();
        context.bind_to_thread().unwrap();
        // SAFETY: a module's text, which ends with a zero, and which has a function of this name; it is never unloaded.
        let kernel = unsafe {
            let module = result::module::load_data(PTX.as_ptr().cast()).unwrap();
            result::module::get_function(module, c"fall".to_owned()).unwrap()
        };
        Self { kernel, context }
    }

    #[cfg(not(feature = "cudarc"))]
    fn on(_: Device) -> Self {
        Self {}
    }

    fn spring(self) {
        #[cfg(feature = "cudarc")]
        {
            self.context.bind_to_thread().unwrap();
            // SAFETY: it has no parameters.
            let launched = unsafe {
                cudarc::driver::result::launch_kernel(
                    self.kernel,
                    (1, 1, 1),
                    (1, 1, 1),
                    0,
                    std::ptr::null_mut(),
                    &mut [],
                )
            };
            launched.unwrap();
            // There is nothing left to be released.
            std::mem::forget(self.context);
        }
    }
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
    let world = world(4, WorldOptions { rebuild, timeout: Duration::from_secs(3), ..WorldOptions::default() });
    let (mut answered, mut failed) = (0, 0);
    let devices = world.devices();
    let mut trap =
        std::env::var_os(TRAP).map(|_| (Trap::on(devices[fastrand::usize(..devices.len())]), fastrand::u32(4..200)));
    while world.health().generation == 1 && world.health().phase == Phase::Up && answered < 400 {
        // A device may be lost by now.
        let fresh = |device| {
            let stream = gpucomm::Stream::new(device)?;
            gpucomm::DeviceBuffer::from_slice(&stream, &[1u32; 64]).map(InPlace)
        };
        let Ok(forms) = (0..4).map(|_| devices.iter().map(|device| fresh(*device)).collect()).collect() else { break };
        let forms: Vec<Vec<_>> = forms;
        // Several at a time.
        let asked: Vec<_> = forms.into_iter().map(|forms| world.all_reduce(forms, Op::Sum)).collect();
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
    let (since, mut last) = (std::time::Instant::now(), String::new());
    eventually("it is rebuilt", || {
        let health = world.health();
        let now = format!("{:?}, attempt: {:?}", health.phase, health.attempt);
        if now != last {
            println!("after {:?}: {now}", since.elapsed());
            last = now;
        }
        health.phase == Phase::Up && health.generation > 1
    });
    assert_eq!(world.size(), left, "{:?}", world.health());
    for _ in 0..20 {
        let forms = world.devices().into_iter().map(|device| InPlace(on(device, &[1u32; 64])));
        for x in world.all_reduce(forms, Op::Sum).wait().unwrap() {
            assert_eq!(values(&x), [u32::try_from(left).unwrap(); 64]);
        }
    }
    assert_eq!(world.metrics().pending, 0);
    // What is stuck inside NCCL does not hold up the end of the process.
    std::mem::forget(world);
}
