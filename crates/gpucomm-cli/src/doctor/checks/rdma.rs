//! InfiniBand and RoCE: devices, whether NCCL uses them, and whether they reach memory of GPUs.

use super::super::finding::Finding;
use super::super::machine::Machine;
use super::names::List;
use super::process::limit;

const CHECK: &str = "rdma";
const DEVICES: &str = "/sys/class/infiniband";

/// Any of these takes memory of GPUs to the network's driver.
const PEER_MEMORY: [&str; 3] =
    ["/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem", "/sys/kernel/mm/memory_peers/nv_mem"];

/// What queues and buffers take of locked memory, at least.
const LOCKED: u64 = 1 << 30;

pub fn check(machine: &Machine) -> Vec<Finding> {
    let devices = machine.files.names(DEVICES);
    if devices.is_empty() {
        return vec![Finding::ok(CHECK, "there are no InfiniBand or RoCE devices: other hosts are reached by sockets")];
    }
    let settings = &machine.settings;
    if settings.number("NCCL_IB_DISABLE").is_some_and(|value| value != 0) {
        let found = format!(
            "{}, and there is {}: other hosts are reached by sockets",
            settings.says("NCCL_IB_DISABLE"),
            devices.join(", ")
        );
        return vec![Finding::warning(CHECK, found, "unset NCCL_IB_DISABLE, unless that network is broken")];
    }
    let mut findings = vec![ports(machine, &devices)];
    findings.extend(peer_memory(machine));
    findings.extend(locked(machine));
    findings
}

/// Ports that are active, of devices that NCCL may use.
fn ports(machine: &Machine, devices: &[String]) -> Finding {
    let (mut active, mut idle) = (Vec::new(), Vec::new());
    for device in devices {
        for port in machine.files.names(&format!("{DEVICES}/{device}/ports")) {
            let state = machine.files.read(&format!("{DEVICES}/{device}/ports/{port}/state")).unwrap_or_default();
            let is_active = state.contains("ACTIVE");
            if is_active { &mut active } else { &mut idle }.push((device.as_str(), port));
        }
    }
    let text = |ports: &[(&str, String)]| {
        let names: Vec<_> = ports.iter().map(|(device, port)| format!("{device}:{port}")).collect();
        names.join(", ")
    };
    if active.is_empty() {
        let found = format!("no port of {} is active: NCCL leaves them", devices.join(", "));
        return Finding::warning(CHECK, found, "see cables, switches and the subnet manager: `ibstat`, `ibv_devinfo`");
    }
    if let Some(list) = machine.settings.get("NCCL_IB_HCA") {
        let parsed = List::parse(list);
        active.retain(|(device, port)| parsed.takes(device, port.parse().ok()));
        if active.is_empty() {
            let found = format!("{} leaves none of {}", machine.settings.says("NCCL_IB_HCA"), devices.join(", "));
            return Finding::warning(
                CHECK,
                found,
                "name devices that `ibv_devinfo` lists; NCCL uses sockets, which are slower",
            );
        }
    }
    if idle.is_empty() {
        return Finding::ok(CHECK, format!("NCCL may use {}", text(&active)));
    }
    let found = format!("NCCL may use {}; {} is not active", text(&active), text(&idle));
    Finding::note(CHECK, found, "see cables and switches, if that port should carry anything")
}

/// GPUDirect RDMA.
fn peer_memory(machine: &Machine) -> Option<Finding> {
    const CHECK: &str = "gpudirect-rdma";
    if machine.is_emulated || machine.gpus().is_empty() {
        return None;
    }
    if let Some(module) = PEER_MEMORY.iter().find(|path| machine.files.exists(path)) {
        return Some(Finding::ok(
            CHECK,
            format!("the network reaches memory of GPUs by {}", module.rsplit('/').next()?),
        ));
    }
    let version = machine.files.read("/proc/driver/nvidia/version").unwrap_or_default();
    if version.contains("Open Kernel Module") && machine.settings.number("NCCL_DMABUF_ENABLE") != Some(0) {
        return Some(Finding::ok(CHECK, "the network may reach memory of GPUs by dma-buf: the driver is the open one"));
    }
    let found = "nothing takes memory of GPUs to the network: no nvidia_peermem, and no driver with dma-buf";
    let advice = "`modprobe nvidia-peermem`, or the open kernel modules of the driver; without it, all goes through memory of the host";
    Some(Finding::warning(CHECK, found, advice))
}

/// Memory that may be locked.
fn locked(machine: &Machine) -> Option<Finding> {
    let (soft, _) = limit(machine, "Max locked memory")?;
    let soft = soft.filter(|&bytes| bytes < LOCKED)?;
    let found = format!("only {} KiB of memory may be locked, and RDMA locks its queues and buffers", soft / 1024);
    let advice = "`ulimit -l unlimited`, `--ulimit memlock=-1` for containers, LimitMEMLOCK=infinity for services";
    Some(Finding::warning("locked-memory", found, advice))
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;

    fn host(states: &[(&str, &str)]) -> Fake {
        states.iter().fold(Fake::default(), |files, (port, state)| {
            let (device, port) = port.split_once(':').unwrap();
            files.file(&format!("{DEVICES}/{device}/ports/{port}/state"), state)
        })
    }

    #[test]
    fn ports_that_nccl_may_use() {
        let of = |files: &Fake, variables: &[(&str, &str)]| only(&check(&files.machine(variables)), CHECK);
        assert_eq!(of(&Fake::default(), &[("NCCL_IB_DISABLE", "1")]).0, Verdict::Ok);
        let both = host(&[("mlx5_0:1", "4: ACTIVE"), ("mlx5_1:1", "4: ACTIVE")]);
        assert_eq!(of(&both, &[]), (Verdict::Ok, "NCCL may use mlx5_0:1, mlx5_1:1 | ".to_owned()));
        assert_eq!(of(&both, &[("NCCL_IB_HCA", "=mlx5_1:1")]).1, "NCCL may use mlx5_1:1 | ");
        assert_eq!(of(&both, &[("NCCL_IB_HCA", "^mlx5_1")]).1, "NCCL may use mlx5_0:1 | ");
        let (verdict, text) = of(&both, &[("NCCL_IB_HCA", "mlx4")]);
        assert!(verdict == Verdict::Warning && text.contains("NCCL_IB_HCA=mlx4 leaves none"), "{text}");
        assert_eq!(of(&both, &[("NCCL_IB_DISABLE", "1")]).0, Verdict::Warning);
        let half = host(&[("mlx5_0:1", "4: ACTIVE"), ("mlx5_0:2", "1: DOWN")]);
        assert_eq!(of(&half, &[]).0, Verdict::Note);
        assert_eq!(of(&host(&[("mlx5_0:1", "1: DOWN")]), &[]).0, Verdict::Warning);
    }

    #[test]
    fn memory_of_gpus() {
        let of = |files: &Fake| only(&check(&files.machine(&[])), "gpudirect-rdma").0;
        let bare = host(&[("mlx5_0:1", "4: ACTIVE")]);
        assert_eq!(of(&bare), Verdict::Warning);
        assert_eq!(of(&bare.clone().file("/sys/module/nvidia_peermem/version", "")), Verdict::Ok);
        let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65";
        let open = bare.file("/proc/driver/nvidia/version", version);
        assert_eq!(of(&open), Verdict::Ok);
        assert_eq!(only(&check(&open.machine(&[("NCCL_DMABUF_ENABLE", "0")])), "gpudirect-rdma").0, Verdict::Warning);
    }

    #[test]
    fn memory_that_may_be_locked() {
        let of = |limit: &str| {
            let line = format!("Max locked memory         {limit:<20} unlimited            bytes     \n");
            let files = host(&[("mlx5_0:1", "4: ACTIVE")]).file("/proc/self/limits", &line);
            check(&files.machine(&[])).into_iter().find(|finding| finding.check == "locked-memory")
        };
        assert_eq!(of("unlimited"), None);
        assert!(of("65536").is_some_and(|finding| finding.found.contains("64 KiB")));
    }
}
