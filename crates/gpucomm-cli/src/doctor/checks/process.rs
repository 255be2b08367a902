//! What the system grants this process: files, processes, memory, time on the CPU.

use super::super::finding::Finding;
use super::super::machine::{Machine, Ranks};

/// A limit: what holds now, and up to what the process may raise it; `None` is no limit.
type Limit = (Option<u64>, Option<u64>);

/// Files that a rank has open by itself, and those more for each other rank.
const FILES: u64 = 256;
const FILES_FOR_RANK: u64 = 8;

/// Threads of a rank, CUDA's and NCCL's.
const THREADS: u64 = 64;

/// Memory of the host that a rank takes, much of it pinned.
const MEMORY: u64 = 1 << 30;

pub fn check(machine: &Machine, ranks: Ranks) -> Vec<Finding> {
    let mut findings = vec![open_files(machine, ranks)];
    findings.extend(processes(machine, ranks));
    findings.extend(memory(machine, ranks));
    findings.extend(cpus(machine, ranks));
    findings
}

/// A line of `/proc/self/limits`, such as `Max open files`.
pub fn limit(machine: &Machine, name: &str) -> Option<Limit> {
    let limits = machine.files.read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace().map(|word| match word {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    });
    Some((words.next()??, words.next()??))
}

fn open_files(machine: &Machine, ranks: Ranks) -> Finding {
    const CHECK: &str = "open-files";
    let need = FILES + FILES_FOR_RANK * ranks.size as u64;
    let Some((soft, hard)) = limit(machine, "Max open files") else {
        return Finding::note(CHECK, "the limit of open files cannot be read", "see `ulimit -n`");
    };
    let of = format!("a rank of {} may need {need}", ranks.size);
    let text = |limit: Option<u64>| limit.map_or("any number of".to_owned(), |number| number.to_string());
    let is_short = |limit: Option<u64>| limit.is_some_and(|number| number < need);
    if is_short(hard) {
        let found = format!("this process may have at most {} files open, and {of}", text(hard));
        return Finding::problem(
            CHECK,
            found,
            "raise the hard limit: `--ulimit nofile=65536` for containers, LimitNOFILE for services",
        );
    }
    if is_short(soft) {
        let found = format!("this process may have {} files open, and {of}", text(soft));
        return Finding::warning(
            CHECK,
            found,
            "`ulimit -n 65536` before the program: not every NCCL raises it by itself",
        );
    }
    Finding::ok(CHECK, format!("this process may have {} files open", text(soft)))
}

/// Processes and threads: by user, and by the control group.
fn processes(machine: &Machine, ranks: Ranks) -> Option<Finding> {
    let of_user = limit(machine, "Max processes").and_then(|(soft, _)| soft).map(|number| (number, "this user"));
    let group = group(machine, "pids.max", "pids/pids.max").and_then(|text| text.parse().ok());
    let of_group = group.map(|number: u64| (number, "this control group"));
    let need = THREADS * ranks.local as u64;
    let (number, whose) = of_user.into_iter().chain(of_group).filter(|(number, _)| *number < need).min()?;
    let found = format!("{whose} may have {number} threads, and {} ranks here may need {need}", ranks.local);
    let advice = "`ulimit -u`, `--pids-limit=-1` for containers, TasksMax=infinity for services";
    Some(Finding::warning("threads", found, advice))
}

/// A value of the control group of this process, by its names in the second and in the first version of them.
fn group(machine: &Machine, second: &str, first: &str) -> Option<String> {
    let groups = machine.files.read("/proc/self/cgroup").unwrap_or_default();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_end_matches('/');
    // In a container, its own group may be shown as the root of all.
    [format!("/sys/fs/cgroup{path}/{second}"), format!("/sys/fs/cgroup/{second}"), format!("/sys/fs/cgroup/{first}")]
        .iter()
        .find_map(|path| machine.files.read(path))
        .map(|text| text.trim().to_owned())
}

fn memory(machine: &Machine, ranks: Ranks) -> Option<Finding> {
    let most: u64 = group(machine, "memory.max", "memory/memory.limit_in_bytes")?.parse().ok()?;
    let used = group(machine, "memory.current", "memory/memory.usage_in_bytes").and_then(|text| text.parse().ok());
    let free = most.saturating_sub(used.unwrap_or(0));
    let need = MEMORY * ranks.local as u64;
    if free >= need {
        return None;
    }
    let found = format!(
        "the control group has {} MiB of memory left of {} MiB, for {} ranks",
        free >> 20,
        most >> 20,
        ranks.local
    );
    let advice = "raise the limit (`--memory` for containers, --mem for Slurm): pinned memory and /dev/shm count, and who goes over it is killed";
    Some(Finding::warning("memory", found, advice))
}

fn cpus(machine: &Machine, ranks: Ranks) -> Option<Finding> {
    let second = group(machine, "cpu.max", "");
    let by_second = second.and_then(|text| {
        let (quota, period) = text.split_once(' ')?;
        Some((quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?))
    });
    let by_first = || {
        let of = |name| machine.number(&format!("/sys/fs/cgroup/cpu/{name}")).filter(|&value| value > 0);
        Some((of("cpu.cfs_quota_us")? as f64, of("cpu.cfs_period_us")? as f64))
    };
    let (quota, period) = by_second.or_else(by_first)?;
    let cpus = quota / period;
    if cpus >= 2.0 * ranks.local as f64 {
        return None;
    }
    let found = format!("the control group has the time of {cpus:.1} CPUs, for {} ranks", ranks.local);
    let advice =
        "two CPUs a rank at least (`--cpus` for containers): a thread of NCCL's that is held back holds up all ranks";
    Some(Finding::warning("cpu-time", found, advice))
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;

    const RANKS: Ranks = Ranks { size: 8, local: 2, mine: None };

    fn limits(files: &str, processes: &str) -> Fake {
        let text = format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max processes             {processes}                processes \n\
             Max open files            {files}                files     \n"
        );
        Fake::default().file("/proc/self/limits", &text)
    }

    #[test]
    fn files() {
        let of = |soft_and_hard, ranks| {
            only(&check(&limits(soft_and_hard, "1000 1000").machine(&[]), ranks), "open-files").0
        };
        let many = Ranks { size: 1000, ..RANKS };
        assert_eq!(of("1024 4096", RANKS), Verdict::Ok);
        assert_eq!(of("unlimited unlimited", many), Verdict::Ok);
        assert_eq!(of("1024 65536", many), Verdict::Warning);
        assert_eq!(of("1024 4096", many), Verdict::Problem);
        assert_eq!(only(&check(&Fake::default().machine(&[]), RANKS), "open-files").0, Verdict::Note);
    }

    #[test]
    fn threads() {
        let of = |files: Fake| check(&files.machine(&[]), RANKS).into_iter().find(|finding| finding.check == "threads");
        assert_eq!(of(limits("1024 4096", "unlimited unlimited")), None);
        assert!(
            of(limits("1024 4096", "100 100"))
                .is_some_and(|finding| finding.found.starts_with("this user may have 100"))
        );
        let group = limits("1024 4096", "1000 1000").file("/sys/fs/cgroup/pids.max", "64\n");
        assert!(of(group).is_some_and(|finding| finding.found.contains("control group may have 64")));
        assert_eq!(of(limits("1024 4096", "1000 1000").file("/sys/fs/cgroup/pids.max", "max\n")), None);
    }

    #[test]
    fn memory_and_time() {
        let of = |files: &[(&str, &str)], check: &str| {
            let files = files.iter().fold(limits("1024 4096", "1000 1000"), |fake, (path, text)| fake.file(path, text));
            super::check(&files.machine(&[]), RANKS).into_iter().find(|finding| finding.check == check)
        };
        let own = ("/proc/self/cgroup", "0::/job/1\n");
        let group = "/sys/fs/cgroup/job/1";
        let max = format!("{group}/memory.max");
        let now = format!("{group}/memory.current");
        assert_eq!(of(&[own, (&max, "max\n")], "memory"), None);
        assert_eq!(of(&[own, (&max, "4294967296\n"), (&now, "1000000000\n")], "memory"), None);
        assert!(of(&[own, (&max, "4294967296\n"), (&now, "3221225472\n")], "memory").is_some());
        assert!(of(&[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")], "memory").is_some());
        let time = format!("{group}/cpu.max");
        assert_eq!(of(&[own, (&time, "max 100000\n")], "cpu-time"), None);
        assert_eq!(of(&[own, (&time, "400000 100000\n")], "cpu-time"), None);
        assert!(
            of(&[own, (&time, "150000 100000\n")], "cpu-time")
                .is_some_and(|finding| finding.found.contains("1.5 CPUs"))
        );
        let first = "/sys/fs/cgroup/cpu/cpu.cfs_";
        let (quota, period) = (format!("{first}quota_us"), format!("{first}period_us"));
        assert!(of(&[(&quota, "100000\n"), (&period, "100000\n")], "cpu-time").is_some());
        assert_eq!(of(&[(&quota, "-1\n"), (&period, "100000\n")], "cpu-time"), None);
    }
}
