//! What a launcher has set.

use gpucomm::Launch;

use super::super::finding::Finding;
use super::super::machine::{Machine, Ranks};

const CHECK: &str = "launcher";

/// What has started this process, and what is wrong with what it has set.
pub fn check(machine: &Machine) -> (Option<Launch>, Vec<Finding>) {
    let get = |name: &str| machine.settings.get(name).map(str::to_owned);
    // The same that all of this process hold, where the settings are those of the process.
    let launch = if machine.is_this { Launch::from_env() } else { Launch::from_vars(get) };
    let launch = match launch {
        Ok(launch) if launch.seen().is_empty() => {
            return (None, vec![Finding::ok(CHECK, "no launcher has started this process")]);
        }
        Ok(launch) => launch,
        Err(error) => {
            let advice = "set what is missing, or unset what another launcher has left behind; GPUCOMM_LAUNCHER names the one that counts";
            return (None, vec![Finding::problem(CHECK, error.to_string(), advice)]);
        }
    };
    let (by, gpus) = (launch.launcher(), machine.gpus().len());
    // One visible GPU a process is as good as one for each.
    let finding = match launch.local_rank().filter(|&local| gpus > 1 && local >= gpus) {
        Some(local) => {
            let found = format!("{by} says local rank {local}, and this process sees {gpus} GPUs");
            Finding::problem(CHECK, found, "start at most one rank a GPU on each host")
        }
        None => Finding::ok(CHECK, format!("{by} says rank {} of {}", launch.rank(), launch.size())),
    };
    (Some(launch), vec![finding])
}

/// How many ranks there are: those of the launcher, or a rank for each GPU.
pub fn ranks(machine: &Machine, launch: Option<&Launch>) -> Ranks {
    let gpus = machine.gpus().len().max(1);
    match launch {
        Some(one) => {
            let size = one.size();
            Ranks { size, local: one.local_size().unwrap_or(gpus.min(size)), mine: one.local_rank() }
        }
        None => Ranks { size: gpus, local: gpus, mine: None },
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;

    const TORCH: [(&str, &str); 6] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "node-0"),
        ("MASTER_PORT", "29500"),
    ];

    fn of(variables: &[(&str, &str)]) -> (Option<(usize, usize)>, Verdict, String) {
        let files = Fake::default();
        let (launch, findings) = check(&files.machine(variables));
        let (verdict, text) = only(&findings, CHECK);
        (launch.map(|launch| (launch.rank(), launch.size())), verdict, text)
    }

    #[test]
    fn a_rank_is_told() {
        assert_eq!((of(&[]).0, of(&[]).1), (None, Verdict::Ok));
        let (rank, verdict, text) = of(&TORCH);
        assert_eq!((rank, verdict), (Some((3, 4)), Verdict::Ok), "{text}");
        assert!(text.contains("torchrun says rank 3 of 4"), "{text}");
    }

    #[test]
    fn halves_and_contradictions() {
        for (variables, says) in [
            (&[("RANK", "3")] as &[_], "WORLD_SIZE"),
            (&TORCH[..5], "MASTER_PORT"),
            (&[("PMI_SIZE", "3"), ("PMI_RANK", "x")], "PMI_RANK"),
            (&[&TORCH[..], &[("PMI_SIZE", "4"), ("PMI_RANK", "0")]].concat(), "contradict"),
        ] {
            let (rank, verdict, text) = of(variables);
            assert!(rank.is_none() && verdict == Verdict::Problem && text.contains(says), "{text}");
        }
        let agreeing = [&TORCH[..], &[("PMI_SIZE", "4"), ("PMI_RANK", "3")]].concat();
        assert_eq!(of(&agreeing).1, Verdict::Ok);
    }

    #[test]
    fn a_rank_without_a_gpu() {
        let beyond: Vec<_> = TORCH
            .iter()
            .map(|&(name, value)| match name {
                "LOCAL_RANK" => (name, "2"),
                "LOCAL_WORLD_SIZE" => (name, "3"),
                _ => (name, value),
            })
            .collect();
        let (_, verdict, text) = of(&beyond);
        assert!(verdict == Verdict::Problem && text.contains("local rank 2, and this process sees 2 GPUs"), "{text}");
        let files = Fake::default();
        let machine = files.machine(&TORCH);
        let launched = check(&machine).0;
        assert_eq!(ranks(&machine, launched.as_ref()), Ranks { size: 4, local: 2, mine: Some(1) });
        assert_eq!(ranks(&machine, None), Ranks { size: 2, local: 2, mine: None });
    }
}
