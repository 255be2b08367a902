//! A machine that tests make up.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::files::{Files, Space};
use super::finding::{Finding, Verdict};
use super::interfaces::Interface;
use super::machine::Machine;
use super::settings::Settings;
use crate::gpus::{Gpu, Link};
use crate::libraries::Library;

/// Files, by their paths.
#[derive(Debug, Clone, Default)]
pub struct Fake {
    files: BTreeMap<String, String>,
    space: BTreeMap<String, Space>,
}

impl Fake {
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.to_owned(), text.to_owned());
        self
    }

    pub fn space(mut self, path: &str, total: u64, free: u64) -> Self {
        self.space.insert(path.to_owned(), Space { total, free });
        self
    }

    /// A machine that has these files, and is otherwise in good order.
    pub fn machine(&self, variables: &[(&str, &str)]) -> Machine<'_> {
        Machine {
            is_this: false,
            files: self,
            settings: Settings::read(environment(variables), self),
            interfaces: vec![interface("lo", &["127.0.0.1", "::1"]), interface("eth0", &["10.0.0.2"])],
            is_emulated: false,
            driver: Ok(13000),
            runtime: Ok(13000),
            gpus: Ok(gpus(2)),
            libraries: vec![library("NCCL", "2.28.9")],
            bugs: Vec::new(),
        }
    }
}

impl Files for Fake {
    fn read(&self, path: &str) -> Option<String> {
        self.files.get(path).cloned()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let folder = format!("{}/", folder.trim_end_matches('/'));
        let below = self.files.keys().filter_map(|path| path.strip_prefix(&folder));
        let mut names: Vec<_> = below.map(|path| path.split('/').next().unwrap_or(path).to_owned()).collect();
        names.dedup();
        names
    }

    fn exists(&self, path: &str) -> bool {
        self.files.contains_key(path) || !self.names(path).is_empty()
    }

    fn space(&self, path: &str) -> Option<Space> {
        self.space.get(path).copied()
    }
}

pub fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub fn interface(name: &str, addresses: &[&str]) -> Interface {
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let is_loopback = addresses.iter().any(IpAddr::is_loopback);
    Interface { name: name.to_owned(), is_running: true, is_loopback, addresses }
}

/// So many GPUs that reach each other.
pub fn gpus(number: i32) -> Vec<Gpu> {
    let link = |from, to| (from != to).then(|| Link { to, access: Some(true), ..Link::default() });
    let gpu = |ordinal| Gpu {
        ordinal,
        name: Some("NVIDIA H100".to_owned()),
        pci: Some(format!("0000:{ordinal}B:00.0")),
        compute_mode: Some(0),
        links: (0..number).map(|to| link(ordinal, to)).collect(),
        ..Gpu::default()
    };
    (0..number).map(gpu).collect()
}

/// A library that runs as it was built.
pub fn library(name: &'static str, version: &str) -> Library {
    Library {
        name,
        built: version.to_owned(),
        running: Ok(version.to_owned()),
        refused: None,
        headers: None,
        linked: None,
        origin: None,
        loaded: Some("/usr/lib/libnccl.so.2".to_owned()),
    }
}

/// The one finding of a check: its verdict, and all that it says.
#[track_caller]
pub fn only(findings: &[Finding], check: &str) -> (Verdict, String) {
    let of_check: Vec<_> = findings.iter().filter(|finding| finding.check == check).collect();
    let [finding] = of_check[..] else { panic!("expected one finding of {check}, got {findings:?}") };
    // Who is told that not all is well is told what to do.
    assert_eq!(finding.advice.is_none(), finding.verdict == Verdict::Ok, "{finding:?}");
    (finding.verdict, format!("{} | {}", finding.found, finding.advice.as_deref().unwrap_or_default()))
}
