//! Where the ranks meet, as far as the environment says.

use std::net::IpAddr;
use std::path::PathBuf;

use super::claim::{Claim, usage};
use super::environment::{Environment, number};
use super::nodes;
use crate::error::{Error, Result};
use crate::launchers::Launcher;

/// Where ranks meet whatever has started them: `tcp://host:port`, `server://host:port`,
/// `c10d://host:port` or `file:///directory`.
pub(super) const STORE: &str = "GPUCOMM_STORE";

/// What proves to ranks that they talk to each other.
pub(super) const SECRET: &str = "GPUCOMM_STORE_SECRET";

/// The name of the job, where launchers have none.
pub(super) const JOB: &str = "GPUCOMM_JOB";

/// Ports that nothing else is given by itself: below those that the system hands out.
const PORTS: std::ops::Range<u16> = 16_000..32_000;

/// How many ports are tried where none is named.
const TRIES: u16 = 4;

/// Where ranks meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meeting {
    /// There is one rank.
    Alone,
    /// Rank 0 serves at the first of these ports that is free; who has come to another job there goes on looking.
    Tcp { host: String, ports: Vec<u16>, job: String },
    /// A server that is no rank, such as that of `gpucomm store` or `gpucomm run`.
    Server { host: String, port: u16, job: String },
    /// A store of PyTorch's protocol: one that is there, or of rank 0.
    C10d { host: String, port: u16, prefix: String, is_there: bool },
    /// A directory that all ranks share.
    Directory { path: PathBuf, job: String },
    /// Nothing says where.
    Nowhere(String),
}

impl Meeting {
    pub(super) fn of(environment: &Environment<'_>, claim: &Claim) -> Result<Self> {
        if let Some(store) = environment.exact(STORE) {
            return Self::named(&store, job(environment, claim), claim.size);
        }
        if claim.size == 1 {
            return Ok(Self::Alone);
        }
        if matches!(claim.launcher, Launcher::Torchrun | Launcher::GpucommRun) {
            return Self::of_torchrun(environment, claim);
        }
        let one_host = claim.is_on_one_host();
        let job = job(environment, claim);
        let named = environment.text("MASTER_PORT");
        let has_port = named.is_some();
        let ports = match named {
            Some(port) => vec![self::port("MASTER_PORT", &port)?],
            None if job.is_empty() => {
                return Ok(Self::Nowhere(format!(
                    "expected {STORE}=tcp://host:port, or MASTER_ADDR and MASTER_PORT, got neither"
                )));
            }
            None => ports_of(&job),
        };
        // Rank 0 need not look for itself.
        let host = host(environment, claim, one_host)
            .or_else(|| (has_port && claim.rank == 0).then(|| "localhost".to_owned()));
        Ok(match host {
            Some(host) => Self::Tcp { host, ports, job },
            None => Self::Nowhere(format!(
                "{} does not say on which host rank 0 is: expected {STORE}=tcp://host:port, or MASTER_ADDR",
                claim.launcher
            )),
        })
    }

    /// What the variable for it, or a program, has named, for so many ranks.
    pub(super) fn named(store: &str, job: String, size: usize) -> Result<Self> {
        let expected = "tcp://host:port, server://host:port, c10d://host:port or file:///directory, with a port from 1 on, and an address of IPv6 in brackets";
        let wrong = || Error::argument(super::FROM_ENV, STORE, expected, format_args!("{store:?}"));
        let (kind, at) = store.split_once("://").ok_or_else(wrong)?;
        let address = || {
            let is_host =
                |host: &str| !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
            let (host, port) = at.rsplit_once(':').filter(|(host, _)| is_host(host)).ok_or_else(wrong)?;
            // A single rank takes any port.
            let port = port.parse().ok().filter(|port| *port > 0 || size == 1).ok_or_else(wrong)?;
            Ok((host.to_owned(), port))
        };
        match kind {
            "tcp" => address().map(|(host, port)| Self::Tcp { host, ports: vec![port], job }),
            "server" => address()
                .and_then(|(host, port)| if port > 0 { Ok(Self::Server { host, port, job }) } else { Err(wrong()) }),
            "c10d" => {
                let prefix = prefix(&job);
                address().map(|(host, port)| Self::C10d { host, port, prefix, is_there: false })
            }
            "file" if at.starts_with('/') => Ok(Self::Directory { path: at.into(), job }),
            _ => Err(wrong()),
        }
    }

    fn of_torchrun(environment: &Environment<'_>, claim: &Claim) -> Result<Self> {
        // Rank 0 need not look for itself.
        let own = || (claim.rank == 0).then(|| "localhost".to_owned());
        let host = environment.text("MASTER_ADDR").or_else(own);
        let (Some(host), Some(port)) = (host, environment.text("MASTER_PORT")) else {
            let seen: Vec<_> = ["MASTER_ADDR", "MASTER_PORT"]
                .iter()
                .filter_map(|name| environment.text(name).map(|value| format!("{name}={value}")))
                .collect();
            let got = claim.seen.iter().chain(&seen).map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(usage(format!(
                "torchrun says half of where ranks meet: expected MASTER_ADDR and MASTER_PORT, got {got}"
            )));
        };
        let port = self::port("MASTER_PORT", &port)?;
        let is_there = environment.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
        let prefix = prefix(&job(environment, claim));
        Ok(Self::C10d { host: in_brackets(host), port, prefix, is_there })
    }
}

/// Comes before the keys of a job in a store that others may use too. No key of another job begins with it.
fn prefix(job: &str) -> String {
    format!("gpucomm/{}/", job.replace('%', "%25").replace('/', "%2f"))
}

fn port(name: &'static str, value: &str) -> Result<u16> {
    let port = number(name, value)?;
    let wrong = || Error::argument(super::FROM_ENV, name, "a port, 1 to 65535", format_args!("{value:?}"));
    u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(wrong)
}

/// What distinguishes this job from others that may meet at the same place. Not what distinguishes a run from one before it: that is what
/// generations are for.
pub(super) fn job(environment: &Environment<'_>, claim: &Claim) -> String {
    if let Some(job) = environment.exact(JOB) {
        return job;
    }
    let parts: &[&[&'static str]] = match claim.launcher {
        Launcher::Explicit | Launcher::Alone => &[],
        Launcher::Torchrun | Launcher::GpucommRun => &[&["TORCHELASTIC_RUN_ID"]],
        Launcher::Slurm => {
            &[&["SLURM_JOB_ID", "SLURM_JOBID"], &["SLURM_STEP_ID", "SLURM_STEPID"], &["SLURM_RESTART_COUNT"]]
        }
        // The first follows from host and process, which containers may have in common; the second is drawn.
        Launcher::OpenMpi => {
            &[&["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"], &["OMPI_MCA_orte_precondition_transports"]]
        }
        Launcher::Mvapich => &[&["MPIRUN_ID", "PMI_JOBID"]],
        Launcher::Jsm => &[&["LSB_JOBID"], &["PMIX_NAMESPACE"]],
        Launcher::Flux => &[&["FLUX_JOB_ID"]],
        Launcher::SageMaker => &[&["TRAINING_JOB_NAME"]],
        Launcher::Pals => &[&["PALS_APID"]],
        Launcher::Pmi => &[&["PMI_JOBID"]],
    };
    let part = |names: &&[&'static str]| names.iter().find_map(|name| environment.exact(name));
    let parts: Vec<String> = parts.iter().filter_map(part).collect();
    match (parts.is_empty(), claim.launcher) {
        (false, launcher) => format!("{}-{}", launcher.name(), parts.join(".")),
        // On one host, who has started them all is the same for all.
        (true, Launcher::Pmi | Launcher::Pals | Launcher::Mvapich | Launcher::Jsm | Launcher::Flux)
            if claim.is_on_one_host() =>
        {
            // Numbers of processes are those of a container.
            let container = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
            format!("{}-{}-{}", claim.launcher.name(), std::os::unix::process::parent_id(), container.display())
        }
        (true, _) => String::new(),
    }
}

/// The ports of a job that names none: always the same, and for another job most likely others.
fn ports_of(job: &str) -> Vec<u16> {
    let count = u64::from(PORTS.end - PORTS.start);
    // FNV-1a, so that all ranks come to the same, whatever built them.
    let hash = job
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let port = |attempt| u16::try_from((hash >> 8).wrapping_add(u64::from(attempt) * 4001) % count).unwrap_or(0);
    (0..TRIES).map(|attempt| PORTS.start + port(attempt)).collect()
}

/// The host of rank 0, as who comes there names it.
fn host(environment: &Environment<'_>, claim: &Claim, one_host: bool) -> Option<String> {
    // Whatever names it has elsewhere.
    if one_host {
        return Some("127.0.0.1".to_owned());
    }
    if let Some(host) = environment.text("MASTER_ADDR") {
        return Some(in_brackets(host));
    }
    if claim.launcher == Launcher::SageMaker {
        return environment.text("SM_HOSTS").and_then(|hosts| nodes::of_sagemaker(&hosts)?.into_iter().next());
    }
    // MPI's launchers put rank 0 on the first node of what Slurm has allocated to them.
    let lists: &[&str] = match claim.launcher {
        Launcher::Slurm => &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"],
        Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmi => &["SLURM_JOB_NODELIST", "SLURM_NODELIST"],
        _ => &[],
    };
    lists.iter().find_map(|name| environment.text(name)).and_then(|list| nodes::first_of(&list))
}

/// An IPv6 address as it stands before a port.
fn in_brackets(host: String) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host }
}

/// The addresses at which rank 0 may listen, in their order. If all ranks are on one host, and look for rank 0 at a loopback
/// address, that is `host`. Otherwise it listens everywhere: an operator may give rank 0 the name `localhost`, and the other
/// ranks the name of its host, whose address may be another one there.
pub(super) fn listens_at(host: &str, on_one_host: bool) -> Vec<String> {
    let is_loopback =
        host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if on_one_host && is_loopback { vec![host.to_owned()] } else { vec!["[::]".to_owned(), "0.0.0.0".to_owned()] }
}
