//! What it comes to, who reaches whom.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::hello::{Closed, Hello};
use crate::doctor::checks::network::is_of_this_host;
use crate::doctor::finding::Finding;

const CHECK: &str = "reach";

/// How many rows the table has at most.
const ROWS: usize = 50;

/// A way that is closed: from a rank, to a place of another.
type Way<'a> = (usize, &'a Closed);

/// What all ranks have told.
#[derive(Debug)]
pub struct Reach<'a> {
    size: usize,
    hellos: &'a BTreeMap<usize, Hello>,
    /// Ranks that have said what they do not reach.
    heard: BTreeSet<usize>,
    closed: Vec<Way<'a>>,
}

impl<'a> Reach<'a> {
    pub fn of(size: usize, hellos: &'a BTreeMap<usize, Hello>, closed: &'a BTreeMap<usize, Vec<Closed>>) -> Self {
        let ways = closed.iter().flat_map(|(from, all)| all.iter().map(move |one| (*from, one)));
        Self { size, hellos, heard: closed.keys().copied().collect(), closed: ways.collect() }
    }

    pub fn findings(&self, timeout: u64) -> Vec<Finding> {
        let mut findings = Vec::new();
        let missing: Vec<_> = (0..self.size).filter(|rank| !self.hellos.contains_key(rank)).collect();
        if !missing.is_empty() {
            let found = format!("{} of {} did not come in {timeout} s", ranks(&missing), self.size);
            findings.push(Finding::problem(
                CHECK,
                found,
                "see that they are started, and that they reach the address of the exchange",
            ));
        }
        let silent: Vec<_> = self.hellos.keys().copied().filter(|rank| !self.heard.contains(rank)).collect();
        if !silent.is_empty() {
            let found = format!("{} came, and did not say whom they reach", ranks(&silent));
            findings.push(Finding::problem(CHECK, found, "see whether they have died"));
        }
        let nowhere: Vec<_> =
            self.hellos.iter().filter(|(_, hello)| hello.places.is_empty()).map(|(rank, _)| *rank).collect();
        if !nowhere.is_empty() {
            let found = format!("{} can listen at no address", ranks(&nowhere));
            findings.push(Finding::problem(CHECK, found, "see their interfaces: `gpucomm doctor` there"));
        }
        // Who cannot meet fails; where only data goes, it hangs or fails later.
        let first = self.ways(|taken| taken == Some(0));
        let more = self.ways(|taken| taken > Some(0));
        if !first.is_empty() {
            findings.push(Finding::problem(CHECK, self.say(&first, "ranks meet"), self.advice()));
        }
        if !more.is_empty() {
            findings.push(Finding::warning(CHECK, self.say(&more, "data goes"), self.advice()));
        }
        if findings.is_empty() {
            let what = if self.size == 1 {
                "there is one rank".to_owned()
            } else {
                format!("all {} ranks reach each other", self.size)
            };
            findings.push(Finding::ok(CHECK, format!("{what}{}", self.by())));
        }
        findings
    }

    /// Closed ways by what NCCL makes of their interface.
    fn ways(&self, is: impl Fn(Option<usize>) -> bool) -> Vec<Way<'a>> {
        self.closed.iter().filter(|(_, one)| is(one.place.taken)).copied().collect()
    }

    fn say(&self, ways: &[Way<'_>], what: &str) -> String {
        let (from, one) = ways[0];
        let mut text = format!(
            "rank {from}{} does not reach rank {}{} by {}, over which {what}: {}, {}",
            self.at(from),
            one.to,
            self.at(one.to),
            one.place.interface,
            one.place.address.ip(),
            one.why
        );
        if ways.len() > 1 {
            text += &format!("; and {} more", ways.len() - 1);
        }
        text
    }

    /// The host of a rank, where there are several.
    fn at(&self, rank: usize) -> String {
        let host = self.hellos.get(&rank).filter(|_| self.hosts() > 1);
        host.map(|hello| format!(" ({})", hello.host)).unwrap_or_default()
    }

    fn hosts(&self) -> usize {
        self.hellos.values().map(|hello| &hello.host).collect::<BTreeSet<_>>().len()
    }

    /// The interfaces that ranks meet at.
    fn by(&self) -> String {
        let taken = self.hellos.values().flat_map(|hello| &hello.places).filter(|place| place.taken == Some(0));
        let names: BTreeSet<_> = taken.map(|place| place.interface.as_str()).collect();
        if names.is_empty() { String::new() } else { format!(" by {}", Vec::from_iter(names).join(", ")) }
    }

    /// Interfaces that all ranks have, and by which every way is open.
    fn open(&self) -> Vec<&'a str> {
        let has = |hello: &'a Hello| {
            let places = hello
                .places
                .iter()
                .filter(|place| self.hosts() < 2 || !is_of_this_host(&place.interface, place.address.ip()));
            places.map(|place| place.interface.as_str()).collect::<BTreeSet<_>>()
        };
        let common = self.hellos.values().map(has).reduce(|a, b| &a & &b).unwrap_or_default();
        let is_closed = |name: &&str| self.closed.iter().any(|(_, one)| one.place.interface == **name);
        common.into_iter().filter(|name| !is_closed(name)).collect()
    }

    fn advice(&self) -> String {
        match &self.open()[..] {
            [] => "see firewalls, routes and networks between these hosts: no interface leads from each rank to each"
                .to_owned(),
            names => format!("NCCL_SOCKET_IFNAME=\"={}\" on all ranks: by that, all reach each other", names.join(",")),
        }
    }

    /// The table of who does not reach whom.
    pub fn table(&self) -> Vec<String> {
        if self.closed.is_empty() {
            return Vec::new();
        }
        let mut lines = vec!["Who does not reach whom; NCCL leaves out the interfaces in parentheses".to_owned()];
        for (from, one) in self.closed.iter().take(ROWS) {
            let interface = match one.place.taken {
                Some(_) => one.place.interface.clone(),
                None => format!("({})", one.place.interface),
            };
            let ways = format!("rank {from}{} to rank {}{}", self.at(*from), one.to, self.at(one.to));
            lines.push(format!("  {ways:<40}  {interface:<12}  {:<24}  {}", one.place.address.ip(), one.why));
        }
        if self.closed.len() > ROWS {
            lines.push(format!("  and {} more", self.closed.len() - ROWS));
        }
        lines
    }

    pub fn json(&self) -> Value {
        let closed = self.closed.iter().map(|(from, one)| {
            json!({
                "from": from,
                "to": one.to,
                "interface": one.place.interface,
                "address": one.place.address.ip().to_string(),
                "used": one.place.taken.is_some(),
                "why": one.why,
            })
        });
        json!({
            "size": self.size,
            "missing": (0..self.size).filter(|rank| !self.heard.contains(rank)).collect::<Vec<_>>(),
            "hosts": self.hellos.iter().map(|(rank, hello)| (rank.to_string(), hello.host.clone().into())).collect::<serde_json::Map<_, _>>(),
            "open": self.open(),
            "closed": closed.collect::<Vec<_>>(),
        })
    }
}

/// Ranks, as the subject of a sentence.
pub fn ranks(all: &[usize]) -> String {
    let names: Vec<_> = all.iter().take(8).map(usize::to_string).collect();
    match all {
        [one] => format!("rank {one}"),
        all if all.len() > names.len() => format!("{} ranks ({} and more)", all.len(), names.join(", ")),
        _ => format!("ranks {} and {}", names[..names.len() - 1].join(", "), names[names.len() - 1]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::hello::Place;
    use super::*;
    use crate::doctor::fake::only;
    use crate::doctor::finding::Verdict;

    /// A rank on a host of its own, with eth0, which NCCL takes first, eth1, and docker0, which it leaves out.
    fn hello(rank: usize) -> Hello {
        let place = |interface: &str, net, taken| Place {
            interface: interface.to_owned(),
            address: format!("10.{net}.0.{rank}:99").parse().unwrap(),
            taken,
        };
        let places = vec![place("eth0", 0, Some(0)), place("eth1", 1, Some(1)), place("docker0", 2, None)];
        Hello { host: format!("node{rank}"), id: 0, nonce: 0, places }
    }

    fn closed(to: usize, place: usize) -> Closed {
        Closed { to, place: hello(to).places[place].clone(), why: "connection refused".to_owned() }
    }

    /// Three ranks, of which rank 0 finds these closed.
    fn of(came: &[usize], heard: &[usize], closed: &[Closed]) -> (Vec<Finding>, Vec<String>, Value) {
        let hellos = came.iter().map(|&rank| (rank, hello(rank))).collect();
        let all = heard.iter().map(|&rank| (rank, if rank == 0 { closed.to_vec() } else { Vec::new() })).collect();
        let reach = Reach::of(3, &hellos, &all);
        (reach.findings(30), reach.table(), reach.json())
    }

    const ALL: [usize; 3] = [0, 1, 2];

    #[test]
    fn all_is_open() {
        let (findings, table, json) = of(&ALL, &ALL, &[]);
        assert_eq!(only(&findings, CHECK), (Verdict::Ok, "all 3 ranks reach each other by eth0 | ".to_owned()));
        assert!(table.is_empty());
        assert_eq!((&json["missing"], &json["open"]), (&json!([]), &json!(["eth0", "eth1"])));
    }

    #[test]
    fn where_ranks_meet_and_where_data_goes() {
        let (findings, table, json) = of(&ALL, &ALL, &[closed(2, 0)]);
        let (verdict, text) = only(&findings, CHECK);
        assert!(
            verdict == Verdict::Problem && text.contains("rank 0 (node0) does not reach rank 2 (node2) by eth0"),
            "{text}"
        );
        assert!(
            text.contains("NCCL_SOCKET_IFNAME=\"=eth1\"") && text.contains("10.0.0.2, connection refused"),
            "{text}"
        );
        assert!(table[1].contains("rank 0 (node0) to rank 2 (node2)") && table[1].contains("eth0"), "{table:?}");
        assert_eq!(json["closed"][0]["to"], 2);
        assert_eq!(only(&of(&ALL, &ALL, &[closed(2, 1)]).0, CHECK).0, Verdict::Warning);
        // What NCCL leaves out is in the table alone.
        let (findings, table, _) = of(&ALL, &ALL, &[closed(2, 2)]);
        assert!(only(&findings, CHECK).0 == Verdict::Ok && table[1].contains("(docker0)"), "{table:?}");
        let (findings, ..) = of(&ALL, &ALL, &[closed(1, 0), closed(1, 1), closed(2, 0)]);
        assert!(findings[0].advice.as_ref().unwrap().contains("firewalls"), "{findings:?}");
        assert!(findings[0].found.ends_with("and 1 more"), "{findings:?}");
    }

    #[test]
    fn who_is_missing() {
        let (findings, _, json) = of(&[0, 2], &[0, 2], &[]);
        let (verdict, text) = only(&findings, CHECK);
        assert!(verdict == Verdict::Problem && text.contains("rank 1 of 3 did not come in 30 s"), "{text}");
        assert_eq!(json["missing"], json!([1]));
        assert!(only(&of(&ALL, &[0, 1], &[]).0, CHECK).1.contains("rank 2 came"));
        assert_eq!(ranks(&[1, 2, 5]), "ranks 1, 2 and 5");
        assert_eq!(ranks(&(0..20).collect::<Vec<_>>()), "20 ranks (0, 1, 2, 3, 4, 5, 6, 7 and more)");
    }
}
