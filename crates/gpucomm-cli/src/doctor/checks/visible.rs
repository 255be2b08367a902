//! Which GPUs this process sees, and whether it may use them.

use std::collections::BTreeMap;

use super::super::finding::Finding;
use super::super::machine::Machine;

const CHECK: &str = "gpus";
const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// Values of `cudaDevAttrComputeMode`.
const PROHIBITED: i32 = 2;
const EXCLUSIVE: i32 = 3;

pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![gpus(machine)];
    findings.extend(listed(machine));
    findings.extend(modes(machine));
    findings.extend(slices(machine));
    findings
}

fn gpus(machine: &Machine) -> Finding {
    let says = machine.settings.says(VARIABLE);
    let by = if machine.settings.raw(VARIABLE).is_some() { format!(", as {says} has it") } else { String::new() };
    match &machine.gpus {
        Err(error) => {
            let advice = match machine.settings.raw(VARIABLE) {
                Some(_) => format!("see that {says} names GPUs that `nvidia-smi -L` lists, or unset it"),
                None => "see that `nvidia-smi` lists GPUs, and that this user may open /dev/nvidia*".to_owned(),
            };
            Finding::problem(CHECK, format!("no GPU can be used: {error}"), advice)
        }
        Ok(gpus) if gpus.is_empty() => Finding::problem(
            CHECK,
            format!("this process sees no GPU{by}"),
            format!("unset {VARIABLE}, or name GPUs in it"),
        ),
        // Each of them has a name of its own.
        Ok(gpus) if machine.is_emulated => {
            Finding::ok(CHECK, format!("this process sees {} emulated GPUs{by}", gpus.len()))
        }
        Ok(gpus) => {
            let mut names: BTreeMap<&str, usize> = BTreeMap::new();
            for gpu in gpus {
                *names.entry(gpu.name.as_deref().unwrap_or("of unknown name")).or_default() += 1;
            }
            let names: Vec<_> = names.iter().map(|(name, number)| format!("{number} {name}")).collect();
            if names.len() > 1 {
                let found = format!("this process sees GPUs of several kinds{by}: {}", names.join(", "));
                return Finding::note(CHECK, found, "NCCL goes at the pace of the slowest one");
            }
            Finding::ok(CHECK, format!("this process sees {}{by}", names.join(", ")))
        }
    }
}

/// What is wrong with the list in the variable.
fn listed(machine: &Machine) -> Option<Finding> {
    const CHECK: &str = "visible-devices";
    let text = machine.settings.raw(VARIABLE)?;
    let entries: Vec<&str> = text.split(',').map(str::trim).collect();
    if matches!(entries[..], ["" | "-1" | "NoDevFiles"]) {
        let advice = format!("unset {VARIABLE}, or name GPUs in it: `0,1`");
        return Some(Finding::problem(CHECK, format!("{VARIABLE}={text} hides all GPUs"), advice));
    }
    if let Some(twice) = entries.iter().enumerate().find(|(at, one)| entries[..*at].contains(one)) {
        let found = format!("{VARIABLE}={text} names {} twice, and CUDA shows no GPU at all then", twice.1);
        return Some(Finding::problem(CHECK, found, "name each GPU once"));
    }
    // CUDA stops at the first entry that it does not know.
    let first_left_out = machine.gpus.as_ref().ok().and_then(|gpus| entries.get(gpus.len()));
    let strange = first_left_out.or_else(|| entries.iter().find(|entry| !is_gpu(entry)))?;
    let found =
        format!("{VARIABLE}={text}: `{strange}` is no GPU here, and CUDA leaves out that entry and all behind it");
    Some(Finding::warning(CHECK, found, "name GPUs by the numbers or the UUIDs that `nvidia-smi -L` lists"))
}

/// Whether this may be a GPU: a number, a UUID, or a slice of one.
fn is_gpu(entry: &str) -> bool {
    entry.parse::<u32>().is_ok() || entry.starts_with("GPU-") || entry.starts_with("MIG-")
}

fn modes(machine: &Machine) -> Vec<Finding> {
    const CHECK: &str = "compute-mode";
    let of_mode = |mode| {
        let gpus = machine.gpus().iter().filter(|gpu| gpu.compute_mode == Some(mode));
        gpus.map(|gpu| gpu.ordinal.to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut findings = Vec::new();
    let (prohibited, exclusive) = (of_mode(PROHIBITED), of_mode(EXCLUSIVE));
    if !prohibited.is_empty() {
        let found = format!("no process may compute on GPU {prohibited}: its compute mode is Prohibited");
        findings.push(Finding::problem(CHECK, found, "`nvidia-smi -c DEFAULT` by root, or leave the GPU out"));
    }
    if !exclusive.is_empty() {
        let found =
            format!("only one process at a time may use GPU {exclusive}: its compute mode is Exclusive_Process");
        let advice =
            "start one process a GPU, and let no process touch those of others; or `nvidia-smi -c DEFAULT` by root";
        findings.push(Finding::warning(CHECK, found, advice));
    }
    findings
}

/// Slices of a GPU.
fn slices(machine: &Machine) -> Option<Finding> {
    let is_slice = |name: &str| name.contains(" MIG ");
    let by_list =
        machine.settings.get(VARIABLE).is_some_and(|list| list.split(',').any(|one| one.trim().starts_with("MIG-")));
    if !by_list && !machine.gpus().iter().filter_map(|gpu| gpu.name.as_deref()).any(is_slice) {
        return None;
    }
    let advice = "one rank a GPU: NCCL refuses two slices of one GPU as duplicates, and slices have no direct access to other GPUs; turn MIG \
                  off for jobs of several ranks";
    Some(Finding::warning("mig", "what this process sees is a slice of a GPU (MIG)", advice))
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{self, Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;
    use crate::gpus::Gpu;

    fn found(list: &str, gpus: usize) -> Vec<Finding> {
        let files = Fake::default();
        let gpus = Ok(fake::gpus(gpus as i32));
        check(&Machine { gpus, ..files.machine(&[(VARIABLE, list)]) })
    }

    #[test]
    fn lists() {
        for (list, gpus) in [("0,1", 2), ("GPU-8932,1", 2), (" 1 , 0", 2), ("MIG-12", 1)] {
            assert!(found(list, gpus).iter().all(|finding| finding.check != "visible-devices"), "{list}");
        }
        for (list, gpus, verdict, says) in [
            ("", 0, Verdict::Problem, "hides all"),
            ("-1", 0, Verdict::Problem, "hides all"),
            ("0,1,0", 0, Verdict::Problem, "names 0 twice"),
            ("0,9,1", 1, Verdict::Warning, "`9` is no GPU"),
            ("0,gpu1", 1, Verdict::Warning, "`gpu1` is no GPU"),
        ] {
            let (got, text) = only(&found(list, gpus), "visible-devices");
            assert!(got == verdict && text.contains(says), "{list}: {text}");
        }
    }

    #[test]
    fn what_is_seen() {
        let files = Fake::default();
        let of = |gpus| only(&check(&Machine { gpus, ..files.machine(&[]) }), CHECK);
        assert_eq!(of(Ok(fake::gpus(3))), (Verdict::Ok, "this process sees 3 NVIDIA H100 | ".to_owned()));
        assert_eq!(of(Ok(Vec::new())).0, Verdict::Problem);
        let (verdict, text) = of(Err("no driver".to_owned()));
        assert!(verdict == Verdict::Problem && text.contains("no driver"), "{text}");
        let mut mixed = fake::gpus(2);
        mixed[1].name = Some("NVIDIA A100".to_owned());
        assert_eq!(of(Ok(mixed.clone())).0, Verdict::Note);
        let emulated = check(&Machine { is_emulated: true, gpus: Ok(mixed), ..files.machine(&[]) });
        assert_eq!(only(&emulated, CHECK).0, Verdict::Ok);
        let (_, text) = only(&found("1", 1), CHECK);
        assert!(text.contains("as CUDA_VISIBLE_DEVICES=1 has it"), "{text}");
    }

    #[test]
    fn modes_and_slices() {
        let files = Fake::default();
        let of = |change: fn(&mut Gpu)| {
            let mut gpus = fake::gpus(2);
            change(&mut gpus[1]);
            check(&Machine { gpus: Ok(gpus), ..files.machine(&[]) })
        };
        let (verdict, text) = only(&of(|gpu| gpu.compute_mode = Some(2)), "compute-mode");
        assert!(verdict == Verdict::Problem && text.contains("GPU 1"), "{text}");
        assert_eq!(only(&of(|gpu| gpu.compute_mode = Some(3)), "compute-mode").0, Verdict::Warning);
        let slice = of(|gpu| gpu.name = Some("NVIDIA A100-SXM4-40GB MIG 1g.5gb".to_owned()));
        assert_eq!(only(&slice, "mig").0, Verdict::Warning);
        assert_eq!(only(&found("MIG-12", 1), "mig").0, Verdict::Warning);
        assert_eq!(of(|_| ()).len(), 1);
    }
}
