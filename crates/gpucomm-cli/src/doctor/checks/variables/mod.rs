//! Variables of NCCL: names that it does not know, and values that it reads otherwise than they were meant.

mod names;
mod values;

use super::super::finding::Finding;
use super::super::machine::Machine;
use super::super::settings::CONF_FILE;
use names::{Known, look_up};
use values::wrong;

const CHECK: &str = "variables";
const PREFIX: &str = "NCCL_";

pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = files(machine);
    let settings = &machine.settings;
    let mut set = Vec::new();
    for (name, setting) in settings.iter() {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            findings.extend(small(name));
            continue;
        };
        // What images say of the NCCL that they have sets nothing.
        if !matches!(rest, "VERSION" | "HOME" | "ROOT" | "LIB" | "PATH") {
            set.push(settings.says(name));
        }
        findings.extend(unknown(&settings.says(name), rest));
        if !setting.value.is_empty() {
            findings.extend(odd(machine, name, &setting.value));
        }
    }
    let is_well = findings.is_empty();
    if settings.get("NCCL_DEBUG").is_none() {
        let advice = "NCCL_DEBUG=WARN has NCCL say why it fails";
        findings.push(Finding::note(CHECK, "NCCL_DEBUG is not set: NCCL says nothing", advice));
    }
    if is_well && !set.is_empty() {
        findings.push(Finding::ok(CHECK, format!("set are {}", set.join(", "))));
    }
    findings
}

/// The files that set variables.
fn files(machine: &Machine) -> Vec<Finding> {
    const CHECK: &str = "nccl-conf";
    let settings = &machine.settings;
    let mut findings = Vec::new();
    if let Some(path) = &settings.missing {
        let found = format!("{CONF_FILE}={path} is not to be read, and NCCL goes on without it");
        findings.push(Finding::warning(CHECK, found, "name a file that is there on every host, or unset it"));
    }
    for (path, line) in &settings.odd {
        let found = format!("{path} has a line of which NCCL makes nothing: `{line}`");
        findings.push(Finding::warning(CHECK, found, "lines are NAME=VALUE, without spaces around the name"));
    }
    if !settings.files.is_empty() {
        let found = format!("NCCL reads {}", settings.files.join(", then "));
        findings.push(Finding::note(
            CHECK,
            found,
            "what it says must hold for all hosts; the environment comes before it",
        ));
    }
    findings
}

/// Names in small letters are not seen.
fn small(name: &str) -> Option<Finding> {
    let large = name.to_ascii_uppercase();
    let is_meant = large.strip_prefix(PREFIX).is_some_and(|rest| look_up(rest) == Known::Yes);
    is_meant.then(|| Finding::warning(CHECK, format!("{name} is nothing to NCCL"), format!("set {large}")))
}

fn unknown(says: &str, rest: &str) -> Option<Finding> {
    match look_up(rest) {
        Known::Yes => None,
        Known::Torch => {
            let found = format!("{says} is not of NCCL, but an old name of PyTorch's");
            Some(Finding::note(CHECK, found, format!("set TORCH_{PREFIX}{rest} instead")))
        }
        Known::No(Some(near)) => {
            let found = format!("{says}: NCCL has no variable of this name");
            Some(Finding::warning(CHECK, found, format!("{PREFIX}{near} is the nearest that it has")))
        }
        Known::No(None) => {
            let found = format!("{says}: a variable that is not known here");
            Some(Finding::note(CHECK, found, "see that it is spelt right, and that this NCCL has it"))
        }
    }
}

fn odd(machine: &Machine, name: &str, value: &str) -> Option<Finding> {
    let wrong = wrong(name, value, |path| machine.files.exists(path))?;
    let found = format!("{} {}", machine.settings.says(name), wrong.why);
    let advice = format!("expected {}", wrong.expected);
    Some(if wrong.is_fatal { Finding::problem(CHECK, found, advice) } else { Finding::warning(CHECK, found, advice) })
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{Fake, only};
    use super::super::super::finding::Verdict;
    use super::*;

    /// With a variable without which there is one finding more.
    fn of(files: &Fake, variables: &[(&str, &str)]) -> Vec<Finding> {
        check(&files.machine(&[variables, &[("NCCL_DEBUG", "WARN")]].concat()))
    }

    #[test]
    fn names_and_values() {
        for (variable, verdict, says) in [
            (("NCCL_SOCKET_IFNAM", "eth0"), Verdict::Warning, "NCCL_SOCKET_IFNAME is the nearest"),
            (("NCCL_NO_SUCH_THING_AT_ALL", "1"), Verdict::Note, "not known here"),
            (("NCCL_ASYNC_ERROR_HANDLING", "1"), Verdict::Note, "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
            (("nccl_debug", "INFO"), Verdict::Warning, "set NCCL_DEBUG"),
            (("NCCL_P2P_DISABLE", "yes"), Verdict::Warning, "NCCL_P2P_DISABLE=yes is read as 0"),
            (("NCCL_ALGO", "rings"), Verdict::Problem, "expected some of tree, ring"),
            (("NCCL_IB_HCA", "mlx5"), Verdict::Ok, "set are NCCL_DEBUG=WARN, NCCL_IB_HCA=mlx5"),
        ] {
            let (got, text) = only(&of(&Fake::default(), &[variable]), CHECK);
            assert!(got == verdict && text.contains(says), "{variable:?}: {text}");
        }
        let (verdict, text) = only(&check(&Fake::default().machine(&[("NCCL_VERSION", "2.28.9")])), CHECK);
        assert!(verdict == Verdict::Note && text.contains("NCCL_DEBUG=WARN"), "{text}");
    }

    #[test]
    fn what_comes_from_files_is_said_to() {
        let files = Fake::default().file("/etc/nccl.conf", "NCCL_P2P_DISABLE=yes\n");
        let findings = of(&files, &[]);
        assert!(only(&findings, CHECK).1.contains("NCCL_P2P_DISABLE=yes (from /etc/nccl.conf)"), "{findings:?}");
        assert_eq!(only(&findings, "nccl-conf").0, Verdict::Note);
        let missing = of(&Fake::default(), &[(CONF_FILE, "/nowhere")]);
        assert_eq!(only(&missing, "nccl-conf").0, Verdict::Warning);
        let odd = of(&Fake::default().file("/etc/nccl.conf", "NCCL_ALGO = Ring\n"), &[]);
        assert!(odd.iter().any(|finding| finding.found.contains("`NCCL_ALGO = Ring`")), "{odd:?}");
    }
}
