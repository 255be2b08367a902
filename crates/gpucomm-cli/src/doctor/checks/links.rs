//! The ways between the GPUs of this host.

use super::super::finding::Finding;
use super::super::machine::Machine;

pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings: Vec<_> = access(machine).into_iter().collect();
    findings.extend(disabled(machine));
    findings.extend(iommu(machine));
    findings
}

fn access(machine: &Machine) -> Option<Finding> {
    const CHECK: &str = "links";
    let gpus = machine.gpus();
    if gpus.len() < 2 {
        return None;
    }
    let links = || gpus.iter().flat_map(|gpu| gpu.links.iter().flatten().map(move |link| (gpu.ordinal, link)));
    let pairs = links().count();
    let closed: Vec<_> =
        links().filter(|(_, link)| link.access != Some(true)).map(|(from, link)| (from, link.to)).collect();
    if closed.is_empty() {
        return Some(Finding::ok(CHECK, format!("all {} GPUs have direct access to each other", gpus.len())));
    }
    let mut named: Vec<_> = closed.iter().take(4).map(|(from, to)| format!("{from} to {to}")).collect();
    if closed.len() > named.len() {
        named.push(format!("{} more", closed.len() - named.len()));
    }
    let found = format!("{} of {pairs} ways between GPUs have no direct access: {}", closed.len(), named.join(", "));
    let advice = "NCCL goes through memory of the host there, which is slower: `nvidia-smi topo -m` shows the ways, and IOMMU, ACS and virtual \
                  machines close them; `gpucomm info` shows all";
    Some(Finding::warning(CHECK, found, advice))
}

/// What the environment has closed.
fn disabled(machine: &Machine) -> Option<Finding> {
    const CHECK: &str = "transports";
    let settings = &machine.settings;
    let is_on = |name: &str| settings.number(name).is_some_and(|value| value != 0);
    let p2p = if is_on("NCCL_P2P_DISABLE") {
        Some("NCCL_P2P_DISABLE")
    } else {
        let level = settings.get("NCCL_P2P_LEVEL");
        level.filter(|level| level.eq_ignore_ascii_case("LOC") || *level == "0").map(|_| "NCCL_P2P_LEVEL")
    };
    let shm = is_on("NCCL_SHM_DISABLE").then_some("NCCL_SHM_DISABLE");
    match (p2p, shm) {
        (None, None) => None,
        (Some(p2p), None) => {
            let found = format!("{} keeps GPUs from each other's memory", settings.says(p2p));
            Some(Finding::warning(
                CHECK,
                found,
                format!("unset {p2p}, unless direct access is broken here: NVLink is not used"),
            ))
        }
        (None, Some(shm)) => {
            let found = format!("{} keeps ranks from shared memory of the host", settings.says(shm));
            Some(Finding::warning(
                CHECK,
                found,
                format!("unset {shm}: where GPUs have no direct access, the network is used"),
            ))
        }
        (Some(p2p), Some(shm)) => {
            let found = format!("{} and {}: ranks of one host use the network", settings.says(p2p), settings.says(shm));
            Some(Finding::warning(CHECK, found, format!("unset both {p2p} and {shm}")))
        }
    }
}

/// Traffic between PCI devices that the IOMMU turns away.
fn iommu(machine: &Machine) -> Option<Finding> {
    const CHECK: &str = "iommu";
    let files = machine.files;
    let is_virtual =
        files.read("/proc/cpuinfo").unwrap_or_default().split_whitespace().any(|flag| flag == "hypervisor");
    let passes = files.read("/proc/cmdline").unwrap_or_default();
    let passes = passes.split_whitespace().any(|word| word == "iommu=pt" || word == "iommu.passthrough=1");
    if machine.is_emulated
        || machine.gpus().is_empty()
        || is_virtual
        || passes
        || files.names("/sys/class/iommu").is_empty()
    {
        return None;
    }
    let found = "the IOMMU is on, on what is no virtual machine";
    let advice = "where GPUs or network cards speak over PCI, it may make that slow or wrong: turn it and ACS off in the firmware, or start \
                  Linux with iommu=pt; NVLink is not concerned";
    Some(Finding::note(CHECK, found, advice))
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{self, Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;

    #[test]
    fn ways_that_are_closed() {
        let files = Fake::default();
        let of = |gpus| check(&Machine { gpus: Ok(gpus), ..files.machine(&[]) });
        assert_eq!(only(&of(fake::gpus(4)), "links").0, Verdict::Ok);
        assert_eq!(of(fake::gpus(1)), []);
        let mut gpus = fake::gpus(4);
        gpus[2].links[1].as_mut().unwrap().access = Some(false);
        let (verdict, text) = only(&of(gpus.clone()), "links");
        assert!(verdict == Verdict::Warning && text.contains("1 of 12") && text.contains("2 to 1"), "{text}");
        gpus.iter_mut().flat_map(|gpu| gpu.links.iter_mut().flatten()).for_each(|link| link.access = None);
        assert!(only(&of(gpus), "links").1.contains("8 more"));
    }

    #[test]
    fn what_is_disabled() {
        let files = Fake::default();
        let of = |variables: &[(&str, &str)]| check(&files.machine(variables));
        let healthy = [("NCCL_P2P_DISABLE", "0"), ("NCCL_SHM_DISABLE", ""), ("NCCL_P2P_LEVEL", "SYS")];
        assert!(of(&healthy).iter().all(|finding| finding.check != "transports"));
        for (variables, says) in [
            (&[("NCCL_P2P_DISABLE", "1")] as &[_], "NVLink"),
            (&[("NCCL_P2P_LEVEL", "LOC")], "NVLink"),
            (&[("NCCL_SHM_DISABLE", "1")], "shared memory"),
            (&[("NCCL_SHM_DISABLE", "1"), ("NCCL_P2P_DISABLE", "1")], "use the network"),
        ] {
            let (verdict, text) = only(&of(variables), "transports");
            assert!(verdict == Verdict::Warning && text.contains(says), "{text}");
        }
    }

    #[test]
    fn the_iommu_of_bare_metal() {
        let on = Fake::default().file("/sys/class/iommu/dmar0/name", "");
        let has = |files: &Fake| check(&files.machine(&[])).iter().any(|finding| finding.check == "iommu");
        assert!(has(&on));
        assert!(!has(&Fake::default()));
        assert!(!has(&on.clone().file("/proc/cpuinfo", "flags : fpu hypervisor sse\n")));
        assert!(!has(&on.file("/proc/cmdline", "quiet iommu=pt\n")));
    }
}
