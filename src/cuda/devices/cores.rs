//! The cores of the host that are nearest to a device.

use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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
        if last >= CpuSet::MAX_CPU {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

/// Keeps this thread to those of `cores` on which it may run; to which, if there are any.
fn pin(cores: &[usize]) -> Option<Vec<usize>> {
    let allowed = sched_getaffinity(None).ok()?;
    let cores: Vec<_> = cores.iter().copied().filter(|core| allowed.is_set(*core)).collect();
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    (!cores.is_empty() && sched_setaffinity(None, &set).is_ok()).then_some(cores)
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
            let allowed = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).unwrap();
            assert_eq!(pin(&[CpuSet::MAX_CPU - 1]).filter(|_| !allowed.is_set(CpuSet::MAX_CPU - 1)), None);
            assert_eq!(sched_getaffinity(None).unwrap(), allowed, "nothing was done");
            assert_eq!(pin(&[first, CpuSet::MAX_CPU - 1]).unwrap()[0], first);
            assert!(sched_getaffinity(None).unwrap().is_set(first));
        })
        .join()
        .unwrap();
    }
}
