//! The cores of the host that are nearest to a device.

use std::path::{Path, PathBuf};

use std::mem;

use super::device::Device;
use crate::error::Result;

/// Where the system shows its devices, if that is not `/sys`.
const VARIABLE: &str = "GPUCOMM_SYSFS";

impl Device {
    /// The cores of the host that are nearest to this device, those of its NUMA node, in order; `None` where the system does not say, as on
    /// machines with one node, in most virtual machines, and on the emulator.
    ///
    /// Read from `/sys/bus/pci/devices`, or below the directory that `GPUCOMM_SYSFS` names in place of `/sys`.
    ///
    /// ```
    /// # use gpucomm::{Device, Result};
    /// # fn main() -> Result<()> {
    /// for device in Device::all()? {
    ///     match device.local_cores()? {
    ///         Some(cores) => println!("{device}: {} cores nearby, from {} on", cores.len(), cores[0]),
    ///         None => println!("{device}: nobody knows which cores are near"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Device::pci_bus_id`].
    pub fn local_cores(self) -> Result<Option<Vec<usize>>> {
        let root =
            std::env::var_os(VARIABLE).filter(|root| !root.is_empty()).map_or_else(|| "/sys".into(), PathBuf::from);
        Ok(near(&root, &self.pci_bus_id()?))
    }

    /// Wraps `sched_setaffinity`: keeps the calling thread, and those that it starts, to the [nearest cores](Self::local_cores), as far as
    /// it may run on them. Returns which these are; `None` where nothing is known, or it may run on none of them: then it does nothing.
    ///
    /// ```
    /// # use gpucomm::{Device, Result};
    /// # fn main() -> Result<()> {
    /// let device = Device::new(0)?;
    /// if device.pin_thread()?.is_none() {
    ///     eprintln!("this thread may run anywhere, also far from {device}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Device::pci_bus_id`].
    pub fn pin_thread(self) -> Result<Option<Vec<usize>>> {
        Ok(self.local_cores()?.and_then(|cores| pin(&cores)))
    }
}

/// The cores near the device at a place of the PCI bus.
fn near(root: &Path, bus_id: &str) -> Option<Vec<usize>> {
    let place = root.join("bus/pci/devices").join(bus_id.to_ascii_lowercase());
    let read = |name: &str| std::fs::read_to_string(place.join(name)).ok();
    // One that belongs to no node has all cores in its list.
    let node: i32 = read("numa_node")?.trim().parse().ok()?;
    let cores = parse(read("local_cpulist")?.trim())?;
    (node >= 0 && !cores.is_empty()).then_some(cores)
}

/// The numbers of a list such as `0-3,8,10-11`.
fn parse(list: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

/// So many cores a set has.
const MOST: usize = libc::CPU_SETSIZE as usize;

/// Cores.
#[derive(Clone, Copy)]
struct Cores(libc::cpu_set_t);

impl Cores {
    fn none() -> Self {
        // SAFETY: integers, of which zero is a value.
        Self(unsafe { mem::zeroed() })
    }

    /// Those on which this thread may run.
    fn allowed() -> Option<Self> {
        let mut cores = Self::none();
        // SAFETY: writes at most as many bytes as are said to the place given; 0 is the calling thread.
        let status = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut cores.0) };
        (status == 0).then_some(cores)
    }

    /// Keeps this thread to them; whether that was possible.
    fn keep_to(&self) -> bool {
        // SAFETY: reads as many bytes as are said; 0 is the calling thread.
        (unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) }) == 0
    }

    fn has(&self, core: usize) -> bool {
        // SAFETY: reads a bit of the set, whose place is checked.
        core < MOST && unsafe { libc::CPU_ISSET(core, &self.0) }
    }

    /// Adds a core below [`MOST`].
    fn add(&mut self, core: usize) {
        if core < MOST {
            // SAFETY: sets a bit of the set, whose place was checked.
            unsafe { libc::CPU_SET(core, &mut self.0) };
        }
    }
}

/// Keeps this thread to those of `cores` on which it may run; to which, if there are any.
fn pin(cores: &[usize]) -> Option<Vec<usize>> {
    let allowed = Cores::allowed()?;
    let cores: Vec<_> = cores.iter().copied().filter(|core| allowed.has(*core)).collect();
    let mut set = Cores::none();
    cores.iter().for_each(|core| set.add(*core));
    (!cores.is_empty() && set.keep_to()).then_some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores() {
        assert_eq!(parse("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!((parse("5"), parse("")), (Some(vec![5]), Some(Vec::new())));
        for nonsense in ["x", "1-", "-1", "0-x", "0-99999999", "1 2"] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn what_the_system_says() {
        let root = std::env::temp_dir().join(format!("gpucomm-cores-{}", std::process::id()));
        let place = root.join("bus/pci/devices/0000:3b:00.0");
        std::fs::create_dir_all(&place).unwrap();
        let say = |node: &str, list: &str| {
            std::fs::write(place.join("numa_node"), node).unwrap();
            std::fs::write(place.join("local_cpulist"), list).unwrap();
            near(&root, "0000:3B:00.0")
        };
        assert_eq!(say("1\n", "4-5,7\n"), Some(vec![4, 5, 7]));
        assert_eq!(say("-1\n", "0-7\n"), None, "it belongs to no node");
        assert_eq!(say("0\n", "\n"), None, "a node without cores");
        assert_eq!(say("zero", "0-7"), None);
        assert_eq!(near(&root, "0000:3c:00.0"), None, "no such device");
        assert_eq!(near(Path::new("/nowhere"), "0000:3b:00.0"), None);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_thread_is_kept_to_what_it_may_run_on() {
        std::thread::spawn(|| {
            let all = || {
                let allowed = Cores::allowed().unwrap();
                (0..MOST).filter(|core| allowed.has(*core)).collect::<Vec<_>>()
            };
            let before = all();
            let (first, last) = (before[0], MOST - 1);
            assert_eq!(pin(&[last]).filter(|_| !before.contains(&last)), None);
            assert_eq!(all(), before, "nothing was done");
            assert_eq!(pin(&[first, last]).unwrap()[0], first);
            assert_eq!(all()[0], first);
            assert!(!Cores::none().has(0) && !Cores::none().has(MOST));
        })
        .join()
        .unwrap();
    }
}
