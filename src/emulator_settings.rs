//! The emulator, asked from code.

use std::time::Duration;

use crate::error::{Error, Result};
#[cfg(feature = "nccl")]
use crate::nccl::Communicator;

const APPLY: &str = "EmulatorSettings::apply";
#[cfg(feature = "nccl")]
const APPLY_TO: &str = "EmulatorSettings::apply_to";

/// What a program asks of the emulator, in place of the environment variables `GPUCOMM_EMULATOR_…`: what is not asked for is as these say,
/// or the default.
///
/// ```
/// use gpucomm::{Device, EmulatorSettings, Result};
///
/// # fn main() -> Result<()> {
/// EmulatorSettings::new().with_devices(8).with_memory(1 << 30).apply()?;
/// assert_eq!(Device::count()?, 8);
/// // The emulator is in use, and has the devices that it has.
/// assert!(EmulatorSettings::new().with_devices(2).apply().is_err());
/// # Ok(())
/// # }
/// ```
///
/// Of the variables that have no method here, who tries what is newer needs one: `GPUCOMM_EMULATOR_NCCL=2.30.7` has the emulator stand for that
/// NCCL, or for another from 2.28.7 on; without it, for 2.28.9, where symmetric windows, one-sided operations, suspending and
/// `Communicator::properties` are not to be had. The rest of them stand in `CONTRIBUTING.md`.
///
/// # Faults
///
/// Rules, with semicolons between. Ranks and operations are numbers; times are in `us`, `ms` or `s`.
///
/// | rule | what happens |
/// |---|---|
/// | `seed=7` | the seed of all chances; 0 if it is not given |
/// | `die=rank1@op5` | rank 1 dies in front of its operation 5: its process ends with status 99 if it has no other rank of that communicator, else the rank stops for ever and counts as dead |
/// | `hang=rank2@op3` | rank 2 stops in front of its operation 3, until it is aborted |
/// | `late=rank0@op2:200ms` | rank 0 waits 200 ms in front of its operation 2 |
/// | `async_error=rank1@op4` | instead of its operation 4, rank 1's communicator gets an asynchronous error |
/// | `oom=device0@3` | the third allocation on device 0 fails |
/// | `start=rank1@2` | the second start of a rank 1 in this process fails before it meets the others |
/// | `late_start=rank0@2:2s` | the second start of a rank 0 in this process, or of a part of a communicator in which it is rank 0, ends 2 s after all have met |
/// | `lose=device0@op5` | device 0 is lost when it comes to its work number 5: that, and what is queued, never runs, and every call that touches it, or another device of its process, fails from then on; with `GPUCOMM_EMULATOR_LOST=device` the others stay |
/// | `slow=device0@op5:5ms` | the work number 5 of device 0 begins 5 ms late; with `slow_copy`, `slow_fill`, `slow_function` (of the host), `slow_communication` only if it is that |
/// | `slow_wait=device0@op3:5ms` | streams of device 0 stay 5 ms longer where they wait for another for the third time, or take the time of an event |
/// | `die=0.001`, `late=0.01:5ms`, … | each of these with a chance in place of a number: at each operation, allocation, start, piece of work or wait |
///
/// Operations are the collectives, sends and receives that a rank issues on one communicator, counted from 1 in the order of their launch;
/// collectives of nothing are not launched. Allocations, work and waits are counted from 1 on each device. A rule that names a number acts
/// once in a process, or, asked for with [`apply_to`](Self::apply_to), once on each rank. A chance depends on nothing but the seed, the
/// rule, the rank or device and the number, so the same program meets the same faults again.
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is asked for before apply"]
pub struct EmulatorSettings {
    devices: Option<usize>,
    memory: Option<u64>,
    strict: Option<bool>,
    faults: Option<String>,
    deadlock: Option<Duration>,
}

impl EmulatorSettings {
    /// Nothing in particular.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many devices the machine has, 64 at most; `GPUCOMM_EMULATOR_DEVICES`.
    pub fn with_devices(mut self, devices: usize) -> Self {
        self.devices = Some(devices);
        self
    }

    /// Bytes of memory of each device, of which only what is used takes memory; `GPUCOMM_EMULATOR_MEMORY`.
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Whether the first [violation](crate::emulator_violations) ends the process; `GPUCOMM_EMULATOR_STRICT`.
    ///
    /// ```
    /// # use gpucomm::EmulatorSettings;
    /// # fn main() -> gpucomm::Result<()> {
    /// EmulatorSettings::new().with_strict(true).apply()?;
    /// // From now on the first violation ends the process, with status 86.
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_strict(mut self, strict: bool) -> Self {
        self.strict = Some(strict);
        self
    }

    /// Which [faults](Self#faults) are injected; `GPUCOMM_EMULATOR_FAULTS`.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, EmulatorSettings, Error, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// // The second allocation on device 0 fails.
    /// EmulatorSettings::new().with_faults("oom=device0@2").apply()?;
    /// let stream = Stream::new(Device::new(0)?)?;
    /// let first = DeviceBuffer::<f32>::uninit(&stream, 10)?;
    /// assert!(matches!(DeviceBuffer::<f32>::uninit(&stream, 10), Err(Error::OutOfMemory { .. })));
    /// # drop(first);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_faults(mut self, rules: impl Into<String>) -> Self {
        self.faults = Some(rules.into());
        self
    }

    /// After which time a waiting rank reports on stderr who waits for whom; zero is never. `GPUCOMM_EMULATOR_DEADLOCK`.
    ///
    /// ```
    /// # use gpucomm::EmulatorSettings;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// EmulatorSettings::new().with_deadlock(Duration::from_secs(2)).apply()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_deadlock(mut self, after: Duration) -> Self {
        self.deadlock = Some(after);
        self
    }

    /// Asks for it in this process, before its first use of a device. Of what is asked for twice, the last holds. Processes that make
    /// communicators together ask for the same machine.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] where the emulator is in use already; [`Error::InvalidArgument`] for what cannot be;
    /// [`Error::Unsupported`] where this program does not run on the emulator: see [`backend`](crate::backend()).
    pub fn apply(&self) -> Result<()> {
        emulated(APPLY)?;
        ask(&self.asked())
    }

    /// Asks for faults and a time of deadlock on some ranks alone, such as those of a clique; what was asked for the process, or by
    /// variables, holds for them as well.
    ///
    /// ```
    /// use gpucomm::{Clique, Device, DeviceBuffer, EmulatorSettings, Error, InPlace, ReduceOp, Result, Stream};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<()> {
    /// let clique = Clique::init_all(&Device::all()?)?;
    /// EmulatorSettings::new().with_faults("hang=rank1@op1").apply_to(clique.ranks())?;
    /// let sums = clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let mut x = DeviceBuffer::from_slice(&stream, &[1.0])?;
    ///     comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    ///     stream.synchronize_timeout(Duration::from_millis(300))
    /// });
    /// assert!(matches!(sums, Err(Error::Timeout { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] for devices, memory or strictness, which all ranks have in common; [`Error::InvalidArgument`] for rules that
    /// are not about ranks, or cannot be understood; [`Error::Aborted`] where a communicator has ended; [`Error::Unsupported`] as
    /// [`apply`](Self::apply).
    #[cfg(feature = "nccl")]
    pub fn apply_to(&self, ranks: &[Communicator]) -> Result<()> {
        emulated(APPLY_TO)?;
        if self.devices.is_some() || self.memory.is_some() || self.strict.is_some() {
            let reason = "expected faults and a time of deadlock, got settings that all ranks have in common".into();
            return Err(Error::InvalidUsage { operation: APPLY_TO, reason });
        }
        let deadlock = self.seconds();
        ranks.iter().try_for_each(|rank| ask_of(rank, self.faults.as_deref(), deadlock.as_deref()))
    }

    /// By the names of the variables.
    fn asked(&self) -> Vec<(&'static str, String)> {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let all = [
            ("GPUCOMM_EMULATOR_DEVICES", number(self.devices.map(|devices| devices as u64))),
            ("GPUCOMM_EMULATOR_MEMORY", number(self.memory)),
            ("GPUCOMM_EMULATOR_STRICT", number(self.strict.map(u64::from))),
            ("GPUCOMM_EMULATOR_FAULTS", self.faults.clone()),
            ("GPUCOMM_EMULATOR_DEADLOCK", self.seconds()),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    fn seconds(&self) -> Option<String> {
        self.deadlock.map(|after| after.as_secs_f64().to_string())
    }
}

/// Hands on what is asked for in this process.
#[cfg(gpucomm_emulator)]
fn ask(asked: &[(&'static str, String)]) -> Result<()> {
    use gpucomm_emulator::{Refusal, ask};

    ask(asked).map_err(|refusal| match refusal {
        Refusal::Late => {
            let reason = "the emulator is in use already: expected this call before the first use of a device";
            Error::InvalidUsage { operation: APPLY, reason: reason.into() }
        }
        Refusal::Wrong(wrong) => Error::argument(APPLY, "settings", "what the variables may hold", wrong),
    })
}

/// Hands on what is asked for on `rank`.
#[cfg(all(feature = "nccl", gpucomm_emulator))]
fn ask_of(rank: &Communicator, faults: Option<&str>, deadlock: Option<&str>) -> Result<()> {
    let reason = || format!("rank {} has ended", rank.rank());
    let handle = rank.as_raw().ok_or_else(|| Error::Aborted { operation: APPLY_TO, reason: reason().into() })?;
    gpucomm_emulator::ask_of(handle, faults, deadlock)
        .map_err(|wrong| Error::argument(APPLY_TO, "settings", "what the variables may hold", wrong))
}

#[cfg(not(gpucomm_emulator))]
fn ask(_: &[(&'static str, String)]) -> Result<()> {
    emulated(APPLY)
}

#[cfg(all(feature = "nccl", not(gpucomm_emulator)))]
fn ask_of(_: &Communicator, _: Option<&str>, _: Option<&str>) -> Result<()> {
    emulated(APPLY_TO)
}

/// Fails where this is no emulator.
fn emulated(operation: &'static str) -> Result<()> {
    match crate::backend() {
        crate::Backend::Emulator => Ok(()),
        crate::Backend::Nvidia => {
            let needs = "the emulator, which the feature `emulator` takes in place of the libraries".into();
            Err(Error::Unsupported { operation, needs })
        }
    }
}
