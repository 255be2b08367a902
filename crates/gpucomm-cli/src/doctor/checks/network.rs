//! Interfaces of the network, and which of them NCCL takes.

use std::net::IpAddr;

use super::super::finding::Finding;
use super::super::interfaces::Interface;
use super::super::machine::Machine;
use super::names::List;

const CHECK: &str = "network";
const NAMES: &str = "NCCL_SOCKET_IFNAME";
const FAMILY: &str = "NCCL_SOCKET_FAMILY";

/// What containers and virtual machines of one host speak over: nobody else is reached by it.
const VIRTUAL: [&str; 7] = ["docker", "lo", "virbr", "veth", "br-", "cni", "podman"];

pub fn check(machine: &Machine) -> Vec<Finding> {
    vec![network(machine)]
}

/// The interfaces that NCCL takes, each with the address that it takes of it: the first one is where ranks meet.
pub fn picked(machine: &Machine) -> Vec<(String, IpAddr)> {
    let of = |list: &str| {
        let list = List::parse(list);
        let is_taken = |one: &&Interface| one.is_running && list.takes(&one.name, None);
        let taken = machine.interfaces.iter().filter(is_taken);
        taken.filter_map(|one| Some((one.name.clone(), address(machine, one)?))).collect::<Vec<_>>()
    };
    match names(machine) {
        Some(list) => of(list),
        // What NCCL looks for in turn where nobody has named any.
        None => ["ib", "^docker,lo,virbr", "docker", "lo", "virbr"]
            .into_iter()
            .map(of)
            .find(|taken| !taken.is_empty())
            .unwrap_or_default(),
    }
}

/// What the variable says; a single character is nothing to NCCL.
fn names<'a>(machine: &'a Machine) -> Option<&'a str> {
    machine.settings.get(NAMES).filter(|list| list.len() > 1)
}

/// The first address of an interface that NCCL may use.
fn address(machine: &Machine, interface: &Interface) -> Option<IpAddr> {
    let family = machine.settings.get(FAMILY);
    interface.addresses.iter().copied().find(|address| match (family, address) {
        (Some("AF_INET"), IpAddr::V6(_)) | (Some("AF_INET6"), IpAddr::V4(_)) => false,
        (_, IpAddr::V6(six)) => !six.is_loopback(),
        _ => true,
    })
}

/// Whether only this host is reached by it.
pub fn is_of_this_host(name: &str, address: IpAddr) -> bool {
    address.is_loopback() || VIRTUAL.iter().any(|prefix| name.starts_with(prefix))
}

fn network(machine: &Machine) -> Finding {
    let settings = &machine.settings;
    let text = |taken: &[(String, IpAddr)]| {
        taken.iter().map(|(name, address)| format!("{name} ({address})")).collect::<Vec<_>>().join(", ")
    };
    let picked = picked(machine);
    let why: Vec<_> = [NAMES, FAMILY]
        .into_iter()
        .filter(|name| settings.get(name).is_some())
        .map(|name| settings.says(name))
        .collect();
    let why = if why.is_empty() { String::new() } else { format!(", by {}", why.join(" and ")) };
    let Some((name, address)) = picked.first() else {
        let there: Vec<_> = machine
            .interfaces
            .iter()
            .map(|one| {
                let state = if one.is_running { "" } else { " (down)" };
                format!("{}{state}", one.name)
            })
            .collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        let found = format!("NCCL finds no interface to meet at{why}; there is: {there}");
        let advice = match names(machine) {
            Some(_) => format!("name one that is up and has an address in {NAMES}, or unset it"),
            None => "bring an interface up that has an address".to_owned(),
        };
        return Finding::problem(CHECK, found, advice);
    };
    let found = format!("NCCL takes {}{why}", text(&picked));
    if is_of_this_host(name, *address) {
        return Finding::warning(
            CHECK,
            format!("{found}; ranks meet at {name}, by which no other host is reached"),
            format!("for ranks on several hosts, name the interface between them in {NAMES}"),
        );
    }
    let is_local = match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    if is_local {
        let found = format!("{found}; the address of {name} means something on one link only");
        return Finding::warning(CHECK, found, "give the interface an address of the network, or name another one");
    }
    if picked.len() > 1 && names(machine).is_none() {
        let advice = format!(
            "ranks meet at {name}, and data goes over all; where not all lead to all hosts, name those that do in {NAMES}"
        );
        return Finding::note(CHECK, found, advice);
    }
    Finding::ok(CHECK, found)
}

#[cfg(test)]
mod tests {
    use super::super::super::fake::{Fake, interface, only};
    use super::super::super::finding::Verdict;
    use super::*;

    fn with(interfaces: &[Interface], variables: &[(&str, &str)]) -> (Vec<String>, Verdict, String) {
        let files = Fake::default();
        let machine = Machine { interfaces: interfaces.to_vec(), ..files.machine(variables) };
        let names = picked(&machine).into_iter().map(|(name, _)| name).collect();
        let (verdict, text) = only(&check(&machine), CHECK);
        (names, verdict, text)
    }

    fn host() -> Vec<Interface> {
        vec![
            interface("lo", &["127.0.0.1", "::1"]),
            interface("docker0", &["172.17.0.1"]),
            interface("eth0", &["10.0.0.2", "fd00::2"]),
        ]
    }

    #[test]
    fn what_nccl_takes_by_itself() {
        let (names, verdict, text) = with(&host(), &[]);
        assert_eq!((names, verdict), (vec!["eth0".to_owned()], Verdict::Ok), "{text}");
        let mut more = host();
        more.push(interface("eth1", &["10.1.0.2"]));
        assert_eq!(with(&more, &[]).1, Verdict::Note);
        more.push(interface("ib0", &["10.2.0.2"]));
        assert_eq!(with(&more, &[]).0, ["ib0"]);
        more[4].is_running = false;
        assert_eq!(with(&more, &[]).0, ["eth0", "eth1"]);
        let (names, verdict, text) = with(&host()[..2], &[]);
        assert_eq!((names, verdict), (vec!["docker0".to_owned()], Verdict::Warning), "{text}");
        assert_eq!(with(&host()[..1], &[]).1, Verdict::Warning);
        assert_eq!(with(&[], &[]).1, Verdict::Problem);
    }

    #[test]
    fn what_the_environment_names() {
        assert_eq!(with(&host(), &[(NAMES, "=docker0")]).1, Verdict::Warning);
        assert_eq!(with(&host(), &[(NAMES, "^lo,docker")]).0, ["eth0"]);
        let (names, verdict, text) = with(&host(), &[(NAMES, "ens3")]);
        assert!(names.is_empty() && verdict == Verdict::Problem && text.contains("NCCL_SOCKET_IFNAME=ens3"), "{text}");
        // One character counts as nothing.
        assert_eq!(with(&host(), &[(NAMES, "e")]).0, ["eth0"]);
    }

    #[test]
    fn families() {
        assert!(with(&host(), &[(FAMILY, "AF_INET6")]).2.contains("eth0 (fd00::2)"));
        let (_, verdict, text) = with(&host()[..2], &[(FAMILY, "AF_INET6")]);
        assert!(verdict == Verdict::Problem && text.contains("AF_INET6"), "{text}");
        let local = [interface("eth0", &["169.254.3.4"])];
        assert_eq!(with(&local, &[]).1, Verdict::Warning);
    }
}
