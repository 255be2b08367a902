//! Which implementation of the C interface this program was built with.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// What runs the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// NVIDIA's libraries, on GPUs.
    Nvidia,
    /// The CPU emulator of this crate.
    Emulator,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvidia => "nvidia",
            Self::Emulator => "emulator",
        })
    }
}

/// The back end of this program. It is chosen when the program is built: the feature `emulator` takes the emulator,
/// unless `GPUCOMM_NO_EMULATOR=1` was set.
///
/// ```
/// match gpucomm::backend() {
///     gpucomm::Backend::Emulator => println!("this run says nothing about speed"),
///     gpucomm::Backend::Nvidia => println!("on GPUs"),
/// }
/// ```
pub const fn backend() -> Backend {
    if cfg!(gpucomm_emulator) { Backend::Emulator } else { Backend::Nvidia }
}

/// How many violations the emulator has seen in this process: calls that a GPU and its libraries would have answered with
/// undefined behaviour, corruption or a hang, such as memory that is freed under a running operation. Each is a line on
/// stderr; with `GPUCOMM_EMULATOR_STRICT=1` the first one ends the process with status 86. Always 0 on NVIDIA's libraries,
/// which do not notice.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// let stream = Stream::new(Device::new(0)?)?;
/// let x = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
/// // At the end of a test.
/// assert_eq!(gpucomm::emulator_violations(), 0);
/// # drop(x);
/// # Ok(())
/// # }
/// ```
pub fn emulator_violations() -> usize {
    #[cfg(gpucomm_emulator)]
    return gpucomm_emulator::violations();
    #[cfg(not(gpucomm_emulator))]
    return 0;
}

/// Says on stderr, once a process, that the emulator is used; called where a device is first used.
/// `GPUCOMM_EMULATOR_QUIET=1` silences it.
pub(crate) fn announce() {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Set before the devices are counted: counting them may come here again.
    if backend() == Backend::Nvidia || SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    if std::env::var_os("GPUCOMM_EMULATOR_QUIET").is_some_and(|value| value == "1") {
        return;
    }
    let mut devices = 0;
    // SAFETY: `devices` is a valid place for one int, and the call has no other condition.
    let error = unsafe { sys::cudaGetDeviceCount(&mut devices) };
    let devices = match error {
        sys::cudaError::cudaSuccess => devices,
        sys::cudaError::cudaErrorNoDevice => 0,
        // The caller gets it as an error, which says more.
        _ => return,
    };
    let noun = if devices == 1 { "device" } else { "devices" };
    // In one piece: the processes of a launch share stderr. Nowhere to write to is no reason to fail.
    let line = format!("gpucomm: running on the CPU emulator ({devices} {noun}), not on a GPU\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
