//! Which of several launchers has started this very process.

use super::claim::{Claim, STEP, Said, usage};
use super::environment::Environment;
use crate::error::{Error, Result};
use crate::launchers::Launcher;

/// Names the launcher that counts, whatever others say.
const LAUNCHER: &str = "GPUCOMM_LAUNCHER";

/// Set by the agent of `torchrun` for what it has started, and by `gpucomm run`; not by who sets `RANK` by hand.
const RUN_ID: &str = "TORCHELASTIC_RUN_ID";

/// Set by `gpucomm run` to the rank and the number of ranks, such as `1/4`. A launcher that runs in such a rank gives its own
/// processes other numbers.
const RUN: &str = "GPUCOMM_RUN";

/// Those that start processes within what another one has started: what they say is nearer to a process than what a step of Slurm says,
/// which all that runs in it inherits.
const INNER: [Launcher; 6] =
    [Launcher::OpenMpi, Launcher::Mvapich, Launcher::Jsm, Launcher::Flux, Launcher::Pals, Launcher::Pmi];

/// Variables by which launchers number their processes, or the hosts of a job, and which do not say how many there are.
const RANKS: [(&str, &str); 7] = [
    ("PMIX_RANK", "PMIx has the rest: build with the feature `pmix` and start from PmixPlace"),
    ("PMI_ID", "PMI has the rest"),
    ("ALPS_APP_PE", "it numbers the processes of aprun"),
    ("MPIRUN_RANK", "it numbers the processes of mpirun_rsh"),
    ("HOROVOD_RANK", "it numbers the processes of Horovod"),
    ("PET_NODE_RANK", "it numbers hosts: start the program there by torchrun, which reads it"),
    ("NODE_RANK", "it numbers hosts: start the program there by torchrun or gpucomm run"),
];

/// Who this process is. What was said on purpose comes first, then `torchrun`, then the launchers of MPI, then Slurm.
///
/// # Errors
/// Where a launcher says half of it and none says all, and where two contradict each other of which neither has started the other.
pub(super) fn choose(environment: &Environment<'_>) -> Result<Claim> {
    // What is set by half may be a script's, beside a launcher that says all.
    let mut halves = Vec::new();
    let read = |launcher, halves: &mut Vec<Error>| -> Result<Option<Claim>> {
        let said = match launcher {
            Launcher::SageMaker => Claim::of_sagemaker(environment)?,
            _ => Claim::read(environment, launcher)?,
        };
        Ok(match said {
            Said::Nothing => None,
            Said::Whole(claim) => Some(claim),
            Said::Half(error) => {
                halves.push(error);
                None
            }
        })
    };
    if let Some(named) = named(environment)? {
        if named == Launcher::Alone {
            return Ok(Claim::alone());
        }
        let missing = || usage(format!("{LAUNCHER}={}: {named} says nothing of this process", named.name()));
        return read(named, &mut halves)?.ok_or_else(|| halves.pop().unwrap_or_else(missing));
    }
    if let Some(explicit) = read(Launcher::Explicit, &mut halves)? {
        return Ok(explicit);
    }
    // Said on purpose.
    if let Some(half) = halves.pop() {
        return Err(half);
    }
    let mut torchrun = read(Launcher::Torchrun, &mut halves)?;
    if let Some(claim) = &mut torchrun
        && environment.text(RUN).is_some_and(|text| text == format!("{}/{}", claim.rank, claim.size))
    {
        claim.launcher = Launcher::GpucommRun;
    }
    if let Some(claim) = &torchrun
        && environment.text(RUN_ID).is_some()
    {
        return Ok(claim.clone());
    }
    let mut inner: Vec<Claim> = Vec::new();
    for launcher in INNER {
        inner.extend(read(launcher, &mut halves)?);
    }
    let slurm = read(Launcher::Slurm, &mut halves)?;
    let nearest = match (inner.first(), slurm) {
        // `srun` sets the variables of PMI as well, and says more; those of Open MPI it does not, so that who agrees there does so by chance.
        (Some(inner), Some(slurm))
            if matches!(inner.launcher, Launcher::Pals | Launcher::Pmi) && slurm.agrees(inner) =>
        {
            Some(slurm)
        }
        (Some(inner), _) => Some(inner.clone()),
        (None, slurm) => slurm,
    };
    let claims: Vec<&Claim> = torchrun.iter().chain(&inner).chain(&nearest).collect();
    // One process alone is what a shell is, in which another launcher may be used.
    if let Some(first) = claims.iter().find(|claim| claim.size > 1)
        && let Some(other) = claims.iter().find(|claim| claim.size > 1 && !claim.agrees(first))
    {
        return Err(usage(format!(
            "launchers contradict each other: {}; {}. Unset the variables of one, or set {LAUNCHER} to {} or {}",
            first.words(),
            other.words(),
            first.launcher.name(),
            other.launcher.name()
        )));
    }
    let many = |claim: &&Claim| claim.size > 1;
    let sagemaker = read(Launcher::SageMaker, &mut halves)?;
    // SageMaker has started what has started this process, if another one says anything.
    let others = torchrun.as_ref().or(nearest.as_ref());
    let chosen = torchrun.as_ref().filter(many).or(nearest.as_ref().filter(many)).or(others).or(sagemaker.as_ref());
    match (chosen, halves.into_iter().next()) {
        (Some(claim), None) => Ok(claim.clone()),
        (Some(claim), _) if claim.size > 1 => Ok(claim.clone()),
        (_, Some(half)) => Err(half),
        (None, None) => nobody(environment),
    }
}

fn named(environment: &Environment<'_>) -> Result<Option<Launcher>> {
    let Some(name) = environment.text(LAUNCHER) else { return Ok(None) };
    let found = Launcher::ALL.into_iter().find(|launcher| launcher.name() == name);
    found.map(Some).ok_or_else(|| {
        let all: Vec<_> = Launcher::ALL.iter().map(|launcher| launcher.name()).collect();
        Error::argument(super::FROM_ENV, LAUNCHER, format_args!("one of {}", all.join(", ")), format_args!("{name:?}"))
    })
}

/// A program that runs by itself; not the script of a batch job of many tasks, where the others would be missing.
fn nobody(environment: &Environment<'_>) -> Result<Claim> {
    let tasks = environment.number(&["SLURM_NTASKS"])?.filter(|&tasks| tasks > 1);
    if let (Some(tasks), Some(rank), None) = (tasks, environment.text("SLURM_PROCID"), environment.first(STEP)) {
        return Err(usage(format!(
            "the script of a batch job of {tasks} tasks is none of them (SLURM_PROCID={rank}, SLURM_NTASKS={tasks}, and no SLURM_STEP_ID): expected to be started by srun or mpirun; or set {LAUNCHER}=alone"
        )));
    }
    for (name, meaning) in RANKS {
        let Some(rank) = environment.text(name) else { continue };
        // A number of hosts of 1 leaves nothing to say.
        if name == "PET_NODE_RANK" && environment.number(&["PET_NNODES"])? == Some(1) {
            continue;
        }
        return Err(usage(format!(
            "{name}={rank} says that this process is one of several, and no launcher says of how many ({meaning}): set              GPUCOMM_RANK, GPUCOMM_SIZE and GPUCOMM_STORE; or {LAUNCHER}=alone, if it is the only one"
        )));
    }
    Ok(Claim::alone())
}
