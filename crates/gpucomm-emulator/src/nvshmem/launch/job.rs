//! The job that a launcher has started: which of its processes this is, as plug-ins of the library would learn it.

use super::bootstrap::{Bootstrap, Read};
use crate::meet::process;
use crate::nvshmem::basics::entry::{Outcome, refused};
use crate::sys::{NVSHMEMX_ERROR_INTERNAL, NVSHMEMX_ERROR_NOT_SUPPORTED};

/// Where launchers say how many processes there are, which PMIx is asked for.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];

/// A process of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) me: i32,
    pub(crate) size: i32,
    /// What all of them call it; `None` where there is no launcher.
    pub(crate) name: Option<String>,
}

impl Job {
    /// Not started by anything that `bootstrap` knows.
    const ALONE: Self = Self { me: 0, size: 1, name: None };

    pub(crate) fn of(bootstrap: Bootstrap, read: Read<'_>) -> Outcome<Self> {
        let not_here = |text: &str| Err(refused(NVSHMEMX_ERROR_NOT_SUPPORTED, text));
        match bootstrap {
            Bootstrap::Pmi | Bootstrap::Pmi2 => Ok(Self::of_pmi(read).unwrap_or(Self::ALONE)),
            Bootstrap::Pmix => match Self::of_pmix(read) {
                Some(job) => job,
                None => Err(refused(NVSHMEMX_ERROR_INTERNAL, "no PMIx: PMIX_NAMESPACE and PMIX_RANK are not set")),
            },
            Bootstrap::Mpi => match Self::of_open_mpi(read).or_else(|| Self::of_pmi(read)) {
                Some(job) => Ok(job),
                None => Self::of_pmix(read).unwrap_or(Ok(Self::ALONE)),
            },
            Bootstrap::Shmem => not_here("the emulator knows no OpenSHMEM, expected another bootstrap"),
            Bootstrap::Plugin if read("NVSHMEM_BOOTSTRAP_PLUGIN").is_none() => Err(refused(
                NVSHMEMX_ERROR_INTERNAL,
                "NVSHMEM_BOOTSTRAP=plugin, and NVSHMEM_BOOTSTRAP_PLUGIN is not set",
            )),
            Bootstrap::Plugin => not_here("the emulator loads no plug-ins, expected another bootstrap"),
            Bootstrap::UniqueId => not_here("a unique id is no launcher"),
        }
    }

    /// With a process manager to talk to. Where it says nothing of numbers, there is one process.
    fn of_pmi(read: Read<'_>) -> Option<Self> {
        read("PMI_FD").or_else(|| read("PMI_PORT"))?;
        let number = |name, otherwise| read(name).map_or(otherwise, |text| number(&text));
        Some(Self { me: number("PMI_RANK", 0), size: number("PMI_SIZE", 1), name: Some(name(read)) })
    }

    fn of_open_mpi(read: Read<'_>) -> Option<Self> {
        let (me, size) = (read("OMPI_COMM_WORLD_RANK")?, read("OMPI_COMM_WORLD_SIZE")?);
        Some(Self { me: number(&me), size: number(&size), name: Some(name(read)) })
    }

    fn of_pmix(read: Read<'_>) -> Option<Outcome<Self>> {
        let (_, me) = (read("PMIX_NAMESPACE")?, read("PMIX_RANK")?);
        let Some(size) = SIZES.iter().find_map(|name| read(name)) else {
            let text =
                format!("the emulator cannot ask PMIx how many PEs there are, expected one of {}", SIZES.join(", "));
            return Some(Err(refused(NVSHMEMX_ERROR_NOT_SUPPORTED, text)));
        };
        Some(Ok(Self { me: number(&me), size: number(&size), name: Some(name(read)) }))
    }
}

/// As C reads it, near enough.
fn number(text: &str) -> i32 {
    text.trim().parse().unwrap_or(0)
}

/// What all processes of a job have in common, and no other job.
fn name(read: Read<'_>) -> String {
    if let Some(name) = read("PMIX_NAMESPACE") {
        return format!("PMIx {name}");
    }
    if let Some(name) = read("PMI_JOBID") {
        return format!("PMI {name}");
    }
    if let (Some(job), Some(step)) = (read("SLURM_JOB_ID"), read("SLURM_STEP_ID")) {
        return format!("Slurm {job} {step}");
    }
    let parent = std::os::unix::process::parent_id();
    format!("parent {parent} {}", process::born(parent).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bootstrap: Bootstrap, pairs: &[(&str, &str)]) -> Result<Job, i32> {
        let read = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Job::of(bootstrap, &read).map_err(|failed| failed.0)
    }

    fn job(me: i32, size: i32, name: &str) -> Result<Job, i32> {
        Ok(Job { me, size, name: Some(name.to_owned()) })
    }

    #[test]
    fn without_a_launcher_there_is_one_pe_or_none() {
        for bootstrap in [Bootstrap::Pmi, Bootstrap::Pmi2, Bootstrap::Mpi] {
            assert_eq!(of(bootstrap, &[]), Ok(Job::ALONE));
        }
        assert_eq!(of(Bootstrap::Pmix, &[]), Err(NVSHMEMX_ERROR_INTERNAL));
        assert_eq!(of(Bootstrap::Plugin, &[]), Err(NVSHMEMX_ERROR_INTERNAL));
        let plugin = [("NVSHMEM_BOOTSTRAP_PLUGIN", "mine.so")];
        assert_eq!(of(Bootstrap::Plugin, &plugin), Err(NVSHMEMX_ERROR_NOT_SUPPORTED));
        assert_eq!(of(Bootstrap::Shmem, &[]), Err(NVSHMEMX_ERROR_NOT_SUPPORTED));
    }

    /// PMI takes numbers only where there is somebody to talk to.
    #[test]
    fn pmi_needs_a_manager() {
        let numbers = [("PMI_RANK", "2"), ("PMI_SIZE", "5"), ("PMI_JOBID", "7.1")];
        assert_eq!(of(Bootstrap::Pmi, &numbers), Ok(Job::ALONE));
        let managed = [numbers.as_slice(), &[("PMI_FD", "9")]].concat();
        for bootstrap in [Bootstrap::Pmi, Bootstrap::Pmi2, Bootstrap::Mpi] {
            assert_eq!(of(bootstrap, &managed), job(2, 5, "PMI 7.1"));
        }
        assert_eq!(of(Bootstrap::Pmi, &[("PMI_FD", "9"), ("PMI_JOBID", "x")]), job(0, 1, "PMI x"));
    }

    #[test]
    fn open_mpi_is_found_by_mpi_and_not_by_pmi() {
        let mpirun = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("PMIX_NAMESPACE", "246"),
            ("PMIX_RANK", "1"),
        ];
        assert_eq!(of(Bootstrap::Mpi, &mpirun), job(1, 3, "PMIx 246"));
        assert_eq!(of(Bootstrap::Pmix, &mpirun), job(1, 3, "PMIx 246"));
        assert_eq!(of(Bootstrap::Pmi, &mpirun), Ok(Job::ALONE));
        assert_eq!(of(Bootstrap::Pmix, &mpirun[2..]), Err(NVSHMEMX_ERROR_NOT_SUPPORTED));
    }

    #[test]
    fn slurm_names_the_step() {
        let srun =
            [("PMI_FD", "3"), ("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("SLURM_JOB_ID", "88"), ("SLURM_STEP_ID", "4")];
        assert_eq!(of(Bootstrap::Pmi2, &srun), job(0, 2, "Slurm 88 4"));
        let pmix = [
            ("PMIX_NAMESPACE", "slurm.88.4"),
            ("PMIX_RANK", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_NTASKS", "8"),
        ];
        assert_eq!(of(Bootstrap::Pmix, &pmix), job(1, 2, "PMIx slurm.88.4"));
        assert_eq!(of(Bootstrap::Mpi, &pmix), job(1, 2, "PMIx slurm.88.4"));
    }
}
