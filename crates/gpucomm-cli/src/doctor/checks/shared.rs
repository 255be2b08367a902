//! `/dev/shm`, in which ranks of one host speak.

use super::super::finding::Finding;
use super::super::machine::{Machine, Ranks};

const CHECK: &str = "shared-memory";
const FOLDER: &str = "/dev/shm";

/// What NCCL takes for each rank of a host, in any case: the work of the thread that serves its network.
const FOR_RANK: u64 = 32 << 20;

/// What it takes besides, where a rank speaks with its neighbours by shared memory: buffers of two rings, there and back.
const FOR_BUFFERS: u64 = 4 * (10 << 20);

pub fn check(machine: &Machine, ranks: Ranks) -> Vec<Finding> {
    let mut findings = vec![space(machine, ranks)];
    findings.extend(leftovers(machine));
    findings
}

fn space(machine: &Machine, ranks: Ranks) -> Finding {
    let Some(space) = machine.files.space(FOLDER) else {
        let advice = "mount a tmpfs there: ranks of one host meet in it";
        return Finding::problem(CHECK, format!("there is no {FOLDER}"), advice);
    };
    let has_access =
        machine.gpus().iter().flat_map(|gpu| gpu.links.iter().flatten()).all(|link| link.access == Some(true));
    let need = ranks.local as u64 * if has_access { FOR_RANK } else { FOR_RANK + FOR_BUFFERS };
    let mib = |bytes: u64| bytes >> 20;
    let found = format!("{FOLDER} has {} MiB free of {} MiB", mib(space.free), mib(space.total));
    if ranks.local > 1 && space.free < need {
        let found = format!("{found}, and NCCL may need {} MiB for {} ranks", mib(need), ranks.local);
        let advice = if space.total < need {
            "`--shm-size=1g` or `--ipc=host` for Docker, an emptyDir of medium Memory at /dev/shm for Kubernetes, else `mount -o remount,size=`"
        } else {
            "remove what lies there that no program uses any more"
        };
        return Finding::problem(CHECK, found, advice);
    }
    Finding::ok(CHECK, found)
}

/// What NCCL removes when it ends in good order.
fn leftovers(machine: &Machine) -> Option<Finding> {
    let files: Vec<_> = machine.files.names(FOLDER).into_iter().filter(|name| name.starts_with("nccl-")).collect();
    let first = files.first()?;
    let more = match files.len() {
        1 => String::new(),
        number => format!(" and {} more", number - 1),
    };
    let found = format!("{FOLDER} has {first}{more}, files of NCCL: of programs that run, or that were killed");
    Some(Finding::note("leftovers", found, format!("remove those that `fuser {FOLDER}/nccl-*` does not list")))
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{self, Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(files: &Fake, local: usize) -> (Verdict, String) {
        only(&check(&files.machine(&[]), Ranks { size: local, local, mine: None }), CHECK)
    }

    #[test]
    fn dockers_64_mib_are_not_enough() {
        let docker = Fake::default().space(FOLDER, 64 * MIB, 64 * MIB);
        assert_eq!(of(&docker, 1).0, Verdict::Ok);
        let (verdict, text) = of(&docker, 8);
        assert!(verdict == Verdict::Problem && text.contains("--shm-size") && text.contains("64 MiB free"), "{text}");
        assert_eq!(of(&Fake::default().space(FOLDER, 8192 * MIB, 4096 * MIB), 8).0, Verdict::Ok);
        let (verdict, text) = of(&Fake::default().space(FOLDER, 8192 * MIB, MIB), 8);
        assert!(verdict == Verdict::Problem && text.contains("remove what lies there"), "{text}");
        assert_eq!(of(&Fake::default(), 2).0, Verdict::Problem);
    }

    #[test]
    fn without_direct_access_it_takes_more() {
        let files = Fake::default().space(FOLDER, 128 * MIB, 128 * MIB);
        assert_eq!(of(&files, 2).0, Verdict::Ok);
        let mut gpus = fake::gpus(2);
        gpus[0].links[1].as_mut().unwrap().access = Some(false);
        let machine = Machine { gpus: Ok(gpus), ..files.machine(&[]) };
        assert_eq!(only(&check(&machine, Ranks { size: 2, local: 2, mine: None }), CHECK).0, Verdict::Problem);
    }

    #[test]
    fn what_is_left() {
        let files = Fake::default().space(FOLDER, MIB, MIB).file("/dev/shm/nccl-Ab12", "").file("/dev/shm/other", "");
        let (verdict, text) = only(&check(&files.machine(&[]), Ranks::default()), "leftovers");
        assert!(verdict == Verdict::Note && text.contains("has nccl-Ab12, files"), "{text}");
    }
}
