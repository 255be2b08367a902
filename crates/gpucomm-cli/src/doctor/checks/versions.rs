//! The libraries: whether they are those that this program was built for, what is known to be wrong with them, and whether there are several.

use std::collections::BTreeSet;

use gpucomm::known_bugs::{BugStatus, KnownBug, Library as Of};

use super::super::finding::Finding;
use super::super::machine::Machine;
use crate::libraries::{Library, loaded};

pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings: Vec<_> = machine.libraries.iter().map(library).collect();
    for of in [Of::Nccl, Of::Nvshmem] {
        let told = |bug: &&&KnownBug| bug.library == of && bug.status == BugStatus::Documented;
        let bugs: Vec<_> = machine.bugs.iter().filter(told).copied().collect();
        findings.extend(known(of.name(), &bugs));
    }
    if !machine.is_emulated {
        findings.extend(several(machine));
    }
    findings
}

fn library(library: &Library) -> Finding {
    let check = library.name.to_lowercase().replace(' ', "-");
    let from = library.loaded.as_ref().map(|path| format!(", from {path}")).unwrap_or_default();
    match (&library.running, &library.refused) {
        (Err(error), _) => {
            let found = format!("{} does not say its version: {error}", library.name);
            Finding::problem(
                &check,
                found,
                "see that LD_LIBRARY_PATH leads to the library that this program was built for",
            )
        }
        (Ok(running), Some(refused)) => {
            let found = format!("{} {running} is running{from}, which is not used: {refused}", library.name);
            let advice = format!("install {} {} or newer, or build for {running}", library.name, library.built);
            Finding::problem(&check, found, advice)
        }
        (Ok(running), None) => {
            Finding::ok(&check, format!("{} {running} is running{from}; built for {}", library.name, library.built))
        }
    }
}

/// Bugs that programs may meet.
fn known(library: &str, bugs: &[&KnownBug]) -> Option<Finding> {
    const CHECK: &str = "known-bugs";
    if bugs.is_empty() {
        return None;
    }
    let names: Vec<_> = bugs.iter().map(|bug| bug.name).collect();
    let found = format!("the {library} that is running has bugs that programs may meet: {}", names.join(", "));
    // A newer version helps only where one is known to.
    match bugs.iter().filter_map(|bug| bug.last).max() {
        Some(last) => {
            let mended: Vec<_> = bugs.iter().filter(|bug| bug.last.is_some()).map(|bug| bug.name).collect();
            let advice = format!(
                "versions after {last} are free of {}; `gpucomm info --verbose` tells what happens",
                mended.join(", ")
            );
            Some(Finding::warning(CHECK, found, advice))
        }
        None => Some(Finding::note(CHECK, found, "`gpucomm info --verbose` tells what happens, and what can be done")),
    }
}

/// More than one NCCL.
fn several(machine: &Machine) -> Vec<Finding> {
    const CHECK: &str = "several-nccl";
    const FILE: &str = "libnccl.so";
    let mut findings = Vec::new();
    let maps = machine.files.read("/proc/self/maps").unwrap_or_default();
    let mapped: BTreeSet<&str> = loaded::all(&maps, FILE).collect();
    if mapped.len() > 1 {
        let mapped: Vec<_> = mapped.iter().copied().collect();
        let found = format!("this process has loaded several NCCL: {}", mapped.join(", "));
        findings.push(Finding::problem(
            CHECK,
            found,
            "leave one: see LD_PRELOAD, LD_LIBRARY_PATH and what plug-ins bring along",
        ));
    }
    if let Some(preload) = machine.settings.get("LD_PRELOAD").filter(|list| list.contains("nccl")) {
        let found = format!("LD_PRELOAD={preload} comes before the NCCL that was linked");
        findings.push(Finding::note(CHECK, found, "all ranks must have the same one"));
    }
    let folders = machine.settings.get("LD_LIBRARY_PATH").unwrap_or_default().split(':').filter(|one| !one.is_empty());
    let files: BTreeSet<_> = folders
        .map(|folder| format!("{}/{FILE}.2", folder.trim_end_matches('/')))
        .filter(|path| machine.files.exists(path))
        .collect();
    if files.len() > 1 {
        let files: Vec<_> = files.into_iter().collect();
        let found = format!("LD_LIBRARY_PATH leads to several NCCL: {}", files.join(", "));
        findings.push(Finding::warning(
            CHECK,
            found,
            "the first one is taken, which may be another one on other hosts: leave one",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use gpucomm::known_bugs::TABLE;

    use super::super::super::fake::{self, Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;

    #[test]
    fn what_is_running() {
        let files = Fake::default();
        let of = |change: fn(&mut Library)| {
            let mut library = fake::library("NCCL", "2.28.9");
            change(&mut library);
            only(&check(&Machine { libraries: vec![library], ..files.machine(&[]) }), "nccl")
        };
        assert_eq!(of(|_| ()).0, Verdict::Ok);
        let (verdict, text) = of(|library| library.refused = Some("too old".to_owned()));
        assert!(verdict == Verdict::Problem && text.contains("too old"), "{text}");
        let (verdict, text) = of(|library| library.running = Err("lost".to_owned()));
        assert!(verdict == Verdict::Problem && text.contains("lost"), "{text}");
    }

    #[test]
    fn bugs_that_are_gone_around_are_not_told() {
        let files = Fake::default();
        let of = |is: fn(&&KnownBug) -> bool| {
            check(&Machine { bugs: TABLE.iter().filter(is).collect(), libraries: Vec::new(), ..files.machine(&[]) })
        };
        assert_eq!(of(|bug| bug.status != BugStatus::Documented), []);
        let nccl = |bug: &&KnownBug| bug.status == BugStatus::Documented && bug.library == Of::Nccl;
        let first = TABLE.iter().find(nccl).unwrap();
        let (_, text) = only(&of(|bug| bug.status == BugStatus::Documented && bug.library == Of::Nccl), "known-bugs");
        assert!(text.contains(first.name), "{text}");
        // No newer version helps where none is known to be free of it.
        let endless = of(|bug| bug.status == BugStatus::Documented && bug.library == Of::Nccl && bug.last.is_none());
        assert_eq!(only(&endless, "known-bugs").0, Verdict::Note);
    }

    #[test]
    fn one_nccl_is_enough() {
        let line = |path| format!("7f02-7f03 r-xp 00000000 fe:01 13   {path}\n");
        let of = |files: Fake, variables: &[(&str, &str)]| {
            check(&Machine { libraries: Vec::new(), ..files.machine(variables) })
        };
        let one = Fake::default().file("/proc/self/maps", &line("/a/libnccl.so.2").repeat(2));
        let two = Fake::default().file("/proc/self/maps", &(line("/a/libnccl.so.2") + &line("/b/libnccl.so.2.28")));
        let path = [("LD_LIBRARY_PATH", "/a:/b/:/c:")];
        assert_eq!(of(one.clone().file("/a/libnccl.so.2", ""), &path), []);
        let (verdict, text) = only(&of(two, &[]), "several-nccl");
        assert!(verdict == Verdict::Problem && text.contains("/a/libnccl.so.2, /b/libnccl.so.2.28"), "{text}");
        let listed = one.clone().file("/a/libnccl.so.2", "").file("/b/libnccl.so.2", "");
        assert_eq!(only(&of(listed, &path), "several-nccl").0, Verdict::Warning);
        assert_eq!(only(&of(one, &[("LD_PRELOAD", "/x/libnccl.so")]), "several-nccl").0, Verdict::Note);
    }
}
