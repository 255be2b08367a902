//! What one launcher says of this process.

use super::environment::Environment;
use super::nodes;
use crate::error::{Error, Result};
use crate::launchers::Launcher;

/// Slurm says how many tasks each node has, and in whose list this node is the how-manieth.
const TASKS_PER_NODE: [&str; 2] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];

/// Set for the tasks of a step, and not for the script of a batch job, whose number is 0, of as many as were asked for.
pub(super) const STEP: &[&str] = &["SLURM_STEP_ID", "SLURM_STEPID"];

/// What a launcher has said of this process.
#[derive(Debug)]
pub(super) enum Said {
    Nothing,
    Whole(Claim),
    /// Not who it is: why that is not enough, and what was seen.
    Half(Error),
}

/// Who this process is, as a launcher has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) launcher: Launcher,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) local_rank: Option<usize>,
    pub(super) local_size: Option<usize>,
    /// Which variables said so, as `NAME=value`.
    pub(super) seen: Vec<String>,
}

impl Claim {
    /// The only rank of a program that nobody has started.
    pub(super) const fn alone() -> Self {
        let launcher = Launcher::Alone;
        Self { launcher, rank: 0, size: 1, local_rank: Some(0), local_size: Some(1), seen: Vec::new() }
    }

    /// What `launcher` says.
    ///
    /// # Errors
    /// Where it says what cannot be: all of it is listed.
    pub(super) fn read(environment: &Environment<'_>, launcher: Launcher) -> Result<Said> {
        let Some(names) = launcher.names() else { return Ok(Said::Nothing) };
        if launcher == Launcher::Slurm && environment.first(STEP).is_none() {
            return Ok(Said::Nothing);
        }
        let all = [names.rank, names.size, names.local_rank, names.local_size];
        let mut seen: Vec<String> = all
            .iter()
            .filter_map(|names| environment.first(names))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        // The other names are those of other launchers, too. MVAPICH has changed its names.
        let count = if launcher == Launcher::Mvapich { 2 } else { 1 };
        let mut own = all.iter().flat_map(|names| names.iter().take(count));
        if own.all(|name| environment.text(name).is_none()) {
            return Ok(Said::Nothing);
        }
        let (Some(rank), Some(size)) = (environment.number(names.rank)?, environment.number(names.size)?) else {
            let expected = format!("expected both {} and {}", names.rank[0], names.size[0]);
            let reason = format!("{launcher} says half of who this is: {expected}, got {}", list(&seen));
            return Ok(Said::Half(usage(reason)));
        };
        let local_rank = environment.number(names.local_rank)?;
        let mut local_size = environment.number(names.local_size)?;
        match launcher {
            Launcher::Slurm => local_size = slurm_local_size(environment, &mut seen)?,
            Launcher::Flux if environment.number(&["FLUX_JOB_NNODES"])? == Some(1) => local_size = Some(size),
            _ => {}
        }
        let claim = Self { launcher, rank, size, local_rank, local_size, seen };
        claim.check().map_err(|wrong| usage(format!("{launcher}: {wrong}: {}", list(&claim.seen))))?;
        Ok(Said::Whole(claim))
    }

    /// What SageMaker says: the process of this host is one of those of all hosts, in their order.
    ///
    /// # Errors
    /// Returns the same as [`Claim::read`].
    pub(super) fn of_sagemaker(environment: &Environment<'_>) -> Result<Said> {
        const HOSTS: &str = "SM_HOSTS";
        const THIS: &str = "SM_CURRENT_HOST";
        let (hosts, this) = (environment.text(HOSTS), environment.text(THIS));
        let seen: Vec<String> = [(HOSTS, &hosts), (THIS, &this)]
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)))
            .collect();
        let (hosts, this) = match (hosts, this) {
            (None, None) => return Ok(Said::Nothing),
            (Some(hosts), Some(this)) => (hosts, this),
            _ => {
                let reason = format!(
                    "SageMaker says half of who this is: expected both {HOSTS} and {THIS}, got {}",
                    list(&seen)
                );
                return Ok(Said::Half(usage(reason)));
            }
        };
        let all = nodes::of_sagemaker(&hosts);
        let rank = all.as_ref().and_then(|all| all.iter().position(|host| *host == this));
        let (Some(all), Some(rank)) = (all, rank) else {
            let expected = format!(r#"a list such as ["algo-1","algo-2"] that has {THIS}={this}"#);
            return Err(Error::argument(super::FROM_ENV, HOSTS, expected, hosts));
        };
        let launcher = Launcher::SageMaker;
        Ok(Said::Whole(Self { launcher, rank, size: all.len(), local_rank: Some(0), local_size: Some(1), seen }))
    }

    /// Whether this can be.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self { rank, size, local_rank, local_size, .. } = *self;
        if rank >= size {
            return Err(format!("rank {rank} is none of {size}"));
        }
        if let Some(local) = local_rank
            && local >= local_size.unwrap_or(size)
        {
            return Err(format!("local rank {local} is none of {} on a host", local_size.unwrap_or(size)));
        }
        if let Some(local) = local_size
            && !(1..=size).contains(&local)
        {
            return Err(format!("{local} ranks on a host are not some of {size}"));
        }
        Ok(())
    }

    /// Whether all ranks are known to be on one host.
    pub(super) fn is_on_one_host(&self) -> bool {
        self.local_size == Some(self.size)
    }

    /// Whether another launcher says the same.
    pub(super) const fn agrees(&self, other: &Self) -> bool {
        self.rank == other.rank && self.size == other.size
    }

    /// In words: `torchrun says rank 1 of 4 (RANK=1, WORLD_SIZE=4)`.
    pub(super) fn words(&self) -> String {
        format!("{} says rank {} of {} ({})", self.launcher, self.rank, self.size, list(&self.seen))
    }
}

fn slurm_local_size(environment: &Environment<'_>, seen: &mut Vec<String>) -> Result<Option<usize>> {
    let Some((name, tasks)) = environment.first(&TASKS_PER_NODE) else { return Ok(None) };
    let node = environment.number(&["SLURM_NODEID"])?.unwrap_or(0);
    seen.push(format!("{name}={tasks}"));
    nodes::tasks_of(&tasks, node).map(Some).ok_or_else(|| {
        Error::argument(
            super::FROM_ENV,
            name,
            format_args!("tasks of node {node}, such as 4(x2),3"),
            format_args!("{tasks:?}"),
        )
    })
}

/// What cannot be made sense of.
pub(super) fn usage(reason: String) -> Error {
    Error::InvalidUsage { operation: super::FROM_ENV, reason }
}

fn list(seen: &[String]) -> String {
    seen.join(", ")
}
