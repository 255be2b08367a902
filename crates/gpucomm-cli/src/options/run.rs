//! Options of `gpucomm run`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{natural, positive};
use crate::failure::{Failure, Result};

/// What prints a line, or a manifest, in place of starting ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    Srun,
    Mpirun,
    Torchrun,
    K8s,
}

/// What the user wrote.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// How many ranks there are, on all nodes together [default: as many as there are devices here, times --nodes]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = ranks, allow_negative_numbers = true)]
    ranks: Option<usize>,
    /// How many ranks there are on each node, as torchrun has it
    #[arg(long, alias = "nproc_per_node", value_name = "N", value_parser = positive, conflicts_with = "ranks")]
    #[arg(allow_negative_numbers = true)]
    nproc_per_node: Option<usize>,
    /// Start all ranks again, up to N times, when one fails
    #[arg(long, value_name = "N", default_value = "0", value_parser = natural)]
    max_restarts: usize,
    /// Leave the others alone when a rank fails, for those that go on without it; the run ends with its code when all have ended
    #[arg(long, conflicts_with_all = ["max_restarts", "print"])]
    keep_going: bool,
    /// How long ranks have between SIGTERM and SIGKILL when another one has failed
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    grace: Duration,
    /// Leave what ranks print as it is, without `[RANK] ` before each line
    #[arg(long)]
    no_prefix: bool,
    /// Set a variable for all ranks; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    /// Start nothing: print the line for srun, mpirun or torchrun, or the manifest for Kubernetes
    #[arg(long, value_name = "ENGINE")]
    print: Option<Engine>,
    /// Nodes that the ranks are on, equally many on each
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    nodes: usize,
    /// Which of the nodes this one is: each has a `gpucomm run` of its own
    #[arg(long, value_name = "NODE", value_parser = natural, requires = "master", conflicts_with = "print")]
    node_rank: Option<usize>,
    /// Where rank 0 serves
    #[arg(long, value_name = "HOST:PORT", value_parser = place, requires = "node_rank")]
    master: Option<Place>,
    /// Where the store listens at which the ranks of all nodes meet, on node 0 [default: the port
    /// of --master, plus 1]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), requires = "master")]
    store_port: Option<u16>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub host: String,
    pub port: u16,
}

/// Options of `gpucomm run`, checked as far as that can be done without looking at the machine.
#[derive(Debug)]
pub struct RunOptions {
    pub ranks: Option<usize>,
    pub max_restarts: usize,
    pub keep_going: bool,
    pub grace: Duration,
    pub prefix: bool,
    pub env: Vec<(OsString, OsString)>,
    pub print: Option<Engine>,
    pub nodes: usize,
    pub node_rank: usize,
    pub master: Option<Place>,
    pub store_port: Option<u16>,
    /// The program, and its arguments.
    pub command: Vec<OsString>,
}

/// What each rank has its own of, or what ranks agree by: not for `--env`.
const OURS: [&str; 7] =
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "TORCHELASTIC_USE_AGENT_STORE"];

impl RunArgs {
    pub fn checked(self) -> Result<RunOptions> {
        let nodes = self.nodes;
        let all = |local: usize| {
            local.checked_mul(nodes).ok_or_else(|| Failure::usage("--nproc-per-node times --nodes is too large"))
        };
        let ranks = self.nproc_per_node.map(all).transpose()?.or(self.ranks);
        if let Some(ranks) = ranks.filter(|ranks| ranks % nodes != 0) {
            return Err(Failure::usage(format!(
                "{ranks} ranks (-n) are not equally many on each of {nodes} nodes (--nodes)"
            )));
        }
        if let Some(node) = self.node_rank.filter(|node| *node >= nodes) {
            return Err(Failure::usage(format!("there is no node {node} (--node-rank): nodes are 0 to {}", nodes - 1)));
        }
        if nodes > 1 && self.print.is_none() && self.node_rank.is_none() {
            return Err(Failure::usage(
                "gpucomm run starts ranks on this machine: --print srun, mpirun, torchrun or k8s says what starts them on several; \
                 or start it on each, with --node-rank and --master",
            ));
        }
        let alone = self.print.is_none() && nodes == 1 || self.print == Some(Engine::Torchrun);
        if self.max_restarts > 0 && !alone {
            return Err(Failure::usage(
                "--max-restarts is for ranks of this machine, and for torchrun: nothing else starts all again",
            ));
        }
        let env = self.env.iter().map(|text| variable(text)).collect::<Result<_>>()?;
        Ok(RunOptions {
            ranks,
            max_restarts: self.max_restarts,
            keep_going: self.keep_going,
            grace: self.grace,
            prefix: !self.no_prefix,
            env,
            print: self.print,
            nodes,
            node_rank: self.node_rank.unwrap_or(0),
            master: self.master,
            store_port: self.store_port,
            command: self.program,
        })
    }
}

fn variable(text: &OsStr) -> Result<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=').filter(|&at| at > 0);
    let Some(at) = at else {
        return Err(Failure::usage(format!("--env {}: expected NAME=VALUE", text.to_string_lossy())));
    };
    let (name, value) = (OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..]));
    if OURS.iter().any(|ours| name == *ours) {
        return Err(Failure::usage(format!("--env {}: gpucomm run sets that for each rank", text.to_string_lossy())));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn ranks(text: &str) -> Result<usize, String> {
    // What `-np 4` comes to.
    if text == "p" {
        return Err("mpirun's `-np N` is `-n N` here".to_owned());
    }
    positive(text)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= 1e6);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "expected seconds, such as 10 or 0.5".to_owned())
}

fn place(text: &str) -> Result<Place, String> {
    let split =
        text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok().filter(|port| *port > 0)?)));
    match split {
        Some((host, port)) if !host.is_empty() => {
            // An IPv6 address is in brackets here, and without them in MASTER_ADDR.
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            Ok(Place { host: host.to_owned(), port })
        }
        _ => Err("expected HOST:PORT, such as node1:29500 or [::1]:29500".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, place, seconds, variable};

    #[test]
    fn places_and_times() {
        let at = |host: &str, port| Ok(Place { host: host.to_owned(), port });
        assert_eq!(place("node1:29500"), at("node1", 29500));
        assert_eq!(place("[fe80::1]:1"), at("fe80::1", 1));
        for text in ["", "node1", "node1:", ":1", "node1:0", "node1:65536"] {
            assert!(place(text).is_err(), "{text:?}");
        }
        assert_eq!(seconds("0.5").unwrap().as_millis(), 500);
        for text in ["", "-1", "nan", "inf", "1e30", "5 s"] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn variables() {
        let of = |text: &str| variable(text.as_ref()).map_err(|failure| failure.one_line());
        assert_eq!(of("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(of("A="), Ok(("A".into(), "".into())));
        for (text, says) in [("A", "NAME=VALUE"), ("=b", "NAME=VALUE"), ("RANK=3", "for each rank")] {
            assert!(of(text).unwrap_err().contains(says), "{text}");
        }
    }
}
