//! Cores on which this process may run, and those near its GPUs.

use std::collections::BTreeSet;

use super::super::finding::Finding;
use super::super::machine::{Machine, Ranks};
use crate::gpus::Gpu;

const CHECK: &str = "cores";

pub fn check(machine: &Machine, ranks: Ranks) -> Vec<Finding> {
    let Some(list) = allowed(machine) else { return Vec::new() };
    let cores = parse(&list);
    let far: Vec<_> = of_process(machine, ranks).iter().filter_map(|gpu| far(machine, gpu, &cores)).collect();
    let is_one = of_process(machine, ranks).len() == 1;
    let Some((gpu, node, near)) = far.first() else {
        return vec![Finding::ok(CHECK, format!("this process may run on cores {list}"))];
    };
    let found =
        format!("this process may run on cores {list} only, and GPU {gpu} is near cores {near} (NUMA node {node})");
    // Who drives several GPUs is far from some.
    if !is_one {
        return vec![Finding::note(CHECK, found, "one process a GPU, each on the cores near it, is faster")];
    }
    let advice =
        format!("`numactl --cpunodebind={node} --membind={node}`, Slurm's --gpu-bind=closest, or Device::pin_thread");
    vec![Finding::warning(CHECK, found, advice)]
}

/// The GPUs that this process will use: its own, where a launcher has said which rank it is; else all that it sees.
fn of_process<'a>(machine: &'a Machine, ranks: Ranks) -> &'a [Gpu] {
    let gpus = machine.gpus();
    match ranks.mine {
        Some(mine) if mine < gpus.len() => &gpus[mine..=mine],
        _ => gpus,
    }
}

fn allowed(machine: &Machine) -> Option<String> {
    let status = machine.files.read("/proc/self/status")?;
    Some(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned())
}

/// The GPU, its node and the cores near it, where this process may run on none of these. Nothing where the system does not say.
fn far(machine: &Machine, gpu: &Gpu, cores: &BTreeSet<usize>) -> Option<(i32, i64, String)> {
    let place = format!("/sys/bus/pci/devices/{}", gpu.pci.as_ref()?.to_lowercase());
    let node = machine.number(&format!("{place}/numa_node")).filter(|&node| node >= 0)?;
    let near = machine.files.read(&format!("{place}/local_cpulist"))?.trim().to_owned();
    let list = parse(&near);
    (!list.is_empty() && list.is_disjoint(cores)).then_some((gpu.ordinal, node, near))
}

/// The numbers of a list such as `0-3,8`.
fn parse(list: &str) -> BTreeSet<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // More cores than Linux has are none.
        (last < 1 << 16).then_some(first..=last)
    };
    list.split(',').filter_map(|part| range(part.trim())).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;

    fn host(allowed: &str) -> Fake {
        Fake::default()
            .file("/proc/self/status", &format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n"))
            .file("/sys/bus/pci/devices/0000:0b:00.0/numa_node", "0\n")
            .file("/sys/bus/pci/devices/0000:0b:00.0/local_cpulist", "0-3,8-11\n")
            .file("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n")
            .file("/sys/bus/pci/devices/0000:1b:00.0/local_cpulist", "4-7,12-15\n")
    }

    #[test]
    fn near_and_far() {
        let of = |allowed, mine| {
            let ranks = Ranks { size: 2, local: 2, mine };
            only(&check(&host(allowed).machine(&[]), ranks), CHECK)
        };
        assert_eq!(of("0-15", None).0, Verdict::Ok);
        assert_eq!(of("4-7", Some(1)).0, Verdict::Ok);
        assert_eq!(of("0-3", None).0, Verdict::Note);
        let (verdict, text) = of("0-3,9", Some(1));
        assert!(
            verdict == Verdict::Warning && text.contains("4-7,12-15") && text.contains("--cpunodebind=1"),
            "{text}"
        );
    }

    #[test]
    fn where_nothing_is_known_nothing_is_wrong() {
        let none = Fake::default().file("/proc/self/status", "Cpus_allowed_list:\t0\n");
        assert_eq!(only(&check(&none.machine(&[]), Ranks::default()), CHECK).0, Verdict::Ok);
        let no_node = host("4").file("/sys/bus/pci/devices/0000:0b:00.0/numa_node", "-1\n");
        assert_eq!(only(&check(&no_node.machine(&[]), Ranks::default()), CHECK).0, Verdict::Ok);
        assert_eq!(check(&Fake::default().machine(&[]), Ranks::default()), []);
        assert_eq!(parse("0-2,5,x,7-6,1-99999999"), BTreeSet::from([0, 1, 2, 5]));
    }
}
