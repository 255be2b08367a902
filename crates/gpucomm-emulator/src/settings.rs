//! The environment variables of the emulator, and what the program asks for itself, read once.
//!
//! A value that cannot be understood is never replaced by the default: no device can be used then, and the error says which
//! variable it is, what it holds and what is expected.

use std::ffi::{CStr, CString, OsString};
use std::fmt::Display;
use std::sync::LazyLock;
use std::time::Duration;

use crate::bugs::{Bugs, Nccl};
use crate::refusals::Refusals;
use crate::{bugs, fault, given};

/// The most devices of a machine.
pub(crate) const MOST_DEVICES: usize = 256;
/// What a time is after which waits are reported.
pub(crate) const PATIENCE: &str = "seconds, such as 2.5, or 0 for no reports";
const QUEUE: std::ops::RangeInclusive<usize> = 2..=1 << 20;
const MEMORY: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 40;

/// How the emulated machine looks and behaves.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// GPUCOMM_EMULATOR_DEVICES: how many devices the machine has; 0 is one without a GPU. See `visible`.
    pub devices: usize,
    /// GPUCOMM_EMULATOR_MEMORY: bytes of memory of each device.
    pub memory: u64,
    /// GPUCOMM_EMULATOR_CAPABILITY: the compute capability of each device.
    pub capabilities: Capabilities,
    /// GPUCOMM_EMULATOR_QUEUE: how many entries a launch queue of a device has.
    pub queue: usize,
    /// GPUCOMM_EMULATOR_QUEUE_ORDER: whether what is in one launch queue begins in the order in which it was enqueued.
    pub queue_order: bool,
    /// GPUCOMM_EMULATOR_DRIVER_LOCK: what a call that waits for a device holds up; see `cuda::driver_lock`.
    pub driver_lock: u32,
    /// GPUCOMM_EMULATOR_NCCL: which version of NCCL this is.
    pub nccl: Nccl,
    /// GPUCOMM_EMULATOR_NVSHMEM: which version of NVSHMEM this is.
    pub nvshmem: u32,
    /// GPUCOMM_EMULATOR_NVLS: whether switches add up and spread data for teams of NVSHMEM.
    pub nvls: bool,
    /// GPUCOMM_EMULATOR_MULTICAST: what the driver has of multicast, and what it refuses.
    pub multicast: Refusals,
    /// GPUCOMM_EMULATOR_BUGS: which bugs of that version there are.
    pub bugs: Bugs,
    /// GPUCOMM_EMULATOR_WINDOWS: whether ranks can map each other's memory, which windows need.
    pub windows: bool,
    /// GPUCOMM_EMULATOR_ORDER: whether different orders of communicators on devices are a violation.
    pub order: bool,
    /// GPUCOMM_EMULATOR_FLOATS: how reductions of floats round.
    pub floats: Floats,
    /// GPUCOMM_EMULATOR_NODE: how many PEs of NVSHMEM a node has, which alone reach each other's memory; `None`: all are on one.
    pub node: Option<usize>,
    /// GPUCOMM_EMULATOR_DEAD_PEER: who learns that a process has ended.
    pub dead_peer: DeadPeer,
    /// GPUCOMM_EMULATOR_LOST: whether a device that is lost takes the others of its process with it, as CUDA has it.
    pub lost_together: bool,
    /// GPUCOMM_EMULATOR_DEADLOCK: how long a wait lasts before it is reported; `None`: for ever.
    pub deadlock: Option<Duration>,
    /// GPUCOMM_EMULATOR_STRICT: a violation ends the process.
    pub strict: bool,
    /// GPUCOMM_EMULATOR_RACES: accesses to memory are looked at; as `strict` where it is not set.
    pub races: bool,
}

/// What becomes of operations that wait for a peer that is dead, or on a communicator that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadPeer {
    /// They wait until the communicator is aborted, and nobody is told: NCCL between processes of one machine.
    Silent,
    /// The same, but after a while the communicator gets an asynchronous error: NCCL over a network.
    Told,
    /// They end at once, with an asynchronous error and without a result.
    Ends,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: 4,
            memory: 16 << 30,
            capabilities: Capabilities::default(),
            queue: 1021,
            queue_order: false,
            driver_lock: 1,
            nccl: bugs::NCCL,
            nvshmem: bugs::NVSHMEM,
            nvls: false,
            multicast: Refusals::default(),
            bugs: Bugs::default(),
            windows: true,
            order: false,
            floats: Floats::default(),
            node: None,
            dead_peer: DeadPeer::Silent,
            // Unit tests share their process, and each has a device of its own to lose.
            lost_together: !cfg!(test),
            deadlock: Some(Duration::from_secs(10)),
            strict: false,
            races: false,
        }
    }
}

static SETTINGS: LazyLock<(Settings, Option<CString>)> = LazyLock::new(|| {
    let mut variables = Variables { read: &given::read, wrong: Vec::new() };
    let settings = variables.settings();
    variables.wrong.extend(fault::check().err());
    let wrong = variables.wrong.join("; ").replace('\0', " ");
    (settings, (!wrong.is_empty()).then(|| CString::new(wrong).unwrap_or_default()))
});

/// The settings of this process; where a variable is wrong, its default.
pub(crate) fn settings() -> &'static Settings {
    &SETTINGS.0
}

/// What is wrong with the variables, if anything is.
pub(crate) fn wrong() -> Option<&'static CStr> {
    SETTINGS.1.as_deref()
}

/// Why what the program asks for is not done.
#[derive(Debug)]
pub enum Refusal {
    /// The emulator is in use.
    Late,
    Wrong(String),
}

/// Asks for `values`, by the names of variables, in place of what those hold.
pub fn ask(values: &[(&'static str, String)]) -> Result<(), Refusal> {
    let read = |name: &str| given::latest(values, name);
    let mut variables = Variables { read: &read, wrong: Vec::new() };
    variables.settings();
    let faults = read(fault::VARIABLE).map(|faults| fault::Plan::parse(&faults.to_string_lossy()));
    variables.wrong.extend(faults.and_then(Result::err));
    if !variables.wrong.is_empty() {
        return Err(Refusal::Wrong(variables.wrong.join("; ")));
    }
    if given::give(values) { Ok(()) } else { Err(Refusal::Late) }
}

/// A time as GPUCOMM_EMULATOR_DEADLOCK holds it.
pub(crate) fn patience(text: &str) -> Option<Option<Duration>> {
    let time = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    Some((!time.is_zero()).then_some(time))
}

struct Variables<'a> {
    read: &'a dyn Fn(&str) -> Option<OsString>,
    wrong: Vec<String>,
}

impl Variables<'_> {
    fn settings(&mut self) -> Settings {
        let mut all = Settings::default();
        self.take("DEVICES", &mut all.devices, format_args!("a number from 0 to {MOST_DEVICES}"), |text| {
            text.parse().ok().filter(|&devices| devices <= MOST_DEVICES)
        });
        let bytes = "bytes of memory of each device, such as 4294967296, 512M or 4G, from 64K to 1T";
        self.take("MEMORY", &mut all.memory, bytes, memory);
        self.take("CAPABILITY", &mut all.capabilities, Capabilities::EXPECTED, Capabilities::parse);
        let entries = format!("a number from {} to {}", QUEUE.start(), QUEUE.end());
        self.take("QUEUE", &mut all.queue, entries, |text| text.parse().ok().filter(|entries| QUEUE.contains(entries)));
        self.take("QUEUE_ORDER", &mut all.queue_order, "0 or 1", flag);
        self.take("DRIVER_LOCK", &mut all.driver_lock, "0, 1 or 2", |text| {
            text.parse().ok().filter(|level| *level <= 2)
        });
        self.take("NCCL", &mut all.nccl, bugs::EXPECTED, bugs::version);
        self.take("NVSHMEM", &mut all.nvshmem, bugs::EXPECTED_NVSHMEM, bugs::nvshmem);
        self.take("NVLS", &mut all.nvls, "0 or 1", flag);
        self.take("MULTICAST", &mut all.multicast, Refusals::EXPECTED, Refusals::parse);
        self.take("BUGS", &mut all.bugs, Bugs::EXPECTED, Bugs::parse);
        all.bugs = all.bugs.of(all.nccl);
        self.take("WINDOWS", &mut all.windows, "0 or 1", flag);
        self.take("ORDER", &mut all.order, "0 or 1", flag);
        self.take("FLOATS", &mut all.floats, Floats::EXPECTED, Floats::parse);
        self.take("NODE", &mut all.node, "a number from 1 to 256", |text| {
            text.parse().ok().filter(|pes| (1..=256).contains(pes)).map(Some)
        });
        self.take("LOST", &mut all.lost_together, "process or device", |text| match text {
            "process" => Some(true),
            "device" => Some(false),
            _ => None,
        });
        self.take("DEAD_PEER", &mut all.dead_peer, "silent, told or ends", |text| match text {
            "silent" => Some(DeadPeer::Silent),
            "told" => Some(DeadPeer::Told),
            "ends" => Some(DeadPeer::Ends),
            _ => None,
        });
        self.take("DEADLOCK", &mut all.deadlock, PATIENCE, patience);
        self.take("STRICT", &mut all.strict, "0 or 1", flag);
        all.races = all.strict;
        self.take("RACES", &mut all.races, "0 or 1", flag);
        self.take("QUIET", &mut false, "0 or 1", flag);
        all
    }

    /// Sets `place` from GPUCOMM_EMULATOR_`name`. Empty is as good as not set.
    fn take<T>(&mut self, name: &str, place: &mut T, expected: impl Display, parse: fn(&str) -> Option<T>) {
        let name = format!("GPUCOMM_EMULATOR_{name}");
        let Some(value) = (self.read)(&name) else { return };
        let text = value.to_string_lossy();
        if text.trim().is_empty() {
            return;
        }
        match parse(text.trim()) {
            Some(value) => *place = value,
            None => self.wrong.push(format!("{name}={text}: expected {expected}")),
        }
    }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn memory(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
    let text = text.strip_suffix(['i', 'I']).unwrap_or(text);
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    let bytes = digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)?;
    // Whole pages.
    MEMORY.contains(&bytes).then_some(bytes / 4096 * 4096)
}

// last one is that of all others.

/// Major and minor.
pub(crate) type Capability = (i32, i32);

/// Of the devices, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capabilities(Vec<Capability>);

impl Default for Capabilities {
    /// That of H100s and H200s.
    fn default() -> Self {
        Self(vec![(9, 0)])
    }
}

impl Capabilities {
    /// What the variable may hold.
    pub const EXPECTED: &'static str = "compute capabilities such as 8.0, one for each device, with commas between";

    pub fn parse(text: &str) -> Option<Self> {
        let digits = |part: &str| part.parse().ok().filter(|number: &i32| (0..100).contains(number));
        let one =
            |text: &str| text.trim().split_once('.').and_then(|(major, minor)| Some((digits(major)?, digits(minor)?)));
        text.split(',').map(one).collect::<Option<_>>().map(Self)
    }

    /// That of the device of the machine with this number.
    pub fn of(&self, number: i32) -> Capability {
        let at = usize::try_from(number).unwrap_or_default();
        self.0.get(at).or(self.0.last()).copied().unwrap_or_default()
    }
}

// between.

/// What is otherwise; nothing unless asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Floats {
    /// `wide-sums`: all sums of floats of one and two bytes are kept in `f32` and rounded once, as NVLink switches do those of two.
    pub wide_sums: bool,
    /// `flush-denormals`: an `f32` that is no normal number is zero, before and after each step.
    pub flush_denormals: bool,
    /// `any-order`: where switches may add up (NVLS), sums begin at another rank each time.
    pub any_order: bool,
}

impl Floats {
    /// What the variable may hold.
    pub const EXPECTED: &'static str = "names with commas between, of wide-sums, flush-denormals and any-order";

    pub fn parse(text: &str) -> Option<Self> {
        let mut floats = Self::default();
        for name in text.split(',') {
            match name.trim() {
                "wide-sums" => floats.wide_sums = true,
                "flush-denormals" => floats.flush_denormals = true,
                "any-order" => floats.any_order = true,
                _ => return None,
            }
        }
        Some(floats)
    }
}

#[cfg(test)]
mod settings_tests {
    use super::*;

    fn with(read: fn(&str) -> Option<OsString>) -> (Settings, Vec<String>) {
        let mut variables = Variables { read: &read, wrong: Vec::new() };
        (variables.settings(), variables.wrong)
    }

    #[test]
    fn what_is_not_set_or_empty_is_the_default() {
        for read in [|_: &str| None, |_: &str| Some(" ".into())] {
            let (settings, wrong) = with(read);
            assert_eq!((settings.devices, settings.memory, settings.strict, wrong.len()), (4, 16 << 30, false, 0));
            assert_eq!(settings.deadlock, Some(Duration::from_secs(10)));
        }
    }

    #[test]
    fn each_value_is_taken_or_named() {
        let (settings, wrong) = with(|name| {
            let value = match name {
                "GPUCOMM_EMULATOR_DEVICES" => "256",
                "GPUCOMM_EMULATOR_DEADLOCK" => "0",
                "GPUCOMM_EMULATOR_STRICT" => "1",
                _ => return None,
            };
            Some(value.into())
        });
        assert_eq!((settings.devices, settings.deadlock, settings.strict, wrong.len()), (256, None, true, 0));
        assert!(settings.races, "as strict is");
        for read in [|_: &str| Some("x".into()), |_: &str| Some("-1".into())] {
            let (settings, wrong) = with(read);
            assert_eq!((settings.devices, settings.memory), (4, 16 << 30));
            let names = "DEVICES MEMORY QUEUE QUEUE_ORDER DRIVER_LOCK NCCL BUGS WINDOWS ORDER FLOATS NODE DEAD_PEER DEADLOCK STRICT RACES QUIET";
            for name in names.split(' ') {
                let start = format!("GPUCOMM_EMULATOR_{name}=");
                assert!(wrong.iter().any(|text| text.starts_with(&start) && text.contains(": expected ")), "{wrong:?}");
            }
        }
        assert_eq!(with(|name| name.ends_with("DEVICES").then(|| "257".into())).1.len(), 1);
    }

    #[test]
    fn amounts_of_memory() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("64K", 64 << 10),
            ("65537", 64 << 10),
            ("512M", 512 << 20),
            ("4g", 4 << 30),
            ("2GiB", 2 << 30),
        ] {
            assert_eq!(memory(text), Some(bytes), "{text}");
        }
        for nonsense in ["", "K", "1K", "-1", "much", "99999999999999G", "2T", "1.5G", "\u{e9}"] {
            assert_eq!(memory(nonsense), None, "{nonsense}");
        }
    }
}

#[cfg(test)]
mod capability_tests {
    use super::*;

    #[test]
    fn the_last_one_is_that_of_the_rest() {
        let two = Capabilities::parse("8.0, 12.1").unwrap();
        assert_eq!([0, 1, 2, 63].map(|number| two.of(number)), [(8, 0), (12, 1), (12, 1), (12, 1)]);
        assert_eq!(Capabilities::default().of(5), (9, 0));
        for nonsense in ["", "9", "9.0,", "9.-1", "9.0.1", "x.y", "9.0;8.0"] {
            assert_eq!(Capabilities::parse(nonsense), None, "{nonsense}");
        }
    }
}

#[cfg(test)]
mod floats_tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(Floats::parse("wide-sums"), Some(Floats { wide_sums: true, ..Floats::default() }));
        let both = Floats { wide_sums: true, flush_denormals: true, any_order: false };
        assert_eq!(Floats::parse("flush-denormals , wide-sums"), Some(both));
        assert_eq!(Floats::parse("any-order"), Some(Floats { any_order: true, ..Floats::default() }));
        assert_eq!(Floats::parse("wide-sums,"), None);
    }
}
