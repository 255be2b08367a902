//! PEs that a launcher has started, and that share no unique id: which of the processes this is, and where they meet.
//!
//! Where PEs meet is a file named after the job, in which PE 0 writes the id of their segment.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::meet::segment::{Id, Plan};
use crate::meet::{register, segment};
use crate::nvshmem::basics::{Outcome, refused};
use crate::report;
use crate::settings::settings;
use crate::sys::{NVSHMEMX_ERROR_INTERNAL, NVSHMEMX_ERROR_NOT_SUPPORTED, NVSHMEMX_INIT_WITH_UNIQUEID};

/// A flag: a communicator of MPI.
const WITH_MPI_COMM: u32 = 2;
/// A flag: OpenSHMEM, which has started.
const WITH_SHMEM: u32 = 4;

/// A variable of the environment.
pub(crate) type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Ways to find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bootstrap {
    UniqueId,
    Mpi,
    Shmem,
    Plugin,
    Pmi,
    Pmi2,
    Pmix,
}

impl Bootstrap {
    /// Of several flags one counts, and the environment where there is none of these.
    pub(crate) fn of(flags: u32, read: Read<'_>) -> Outcome<Self> {
        if flags & WITH_MPI_COMM != 0 {
            return Ok(Self::Mpi);
        }
        if flags & WITH_SHMEM != 0 {
            return Ok(Self::Shmem);
        }
        if flags & NVSHMEMX_INIT_WITH_UNIQUEID != 0 {
            return Ok(Self::UniqueId);
        }
        let internal = |text: String| refused(NVSHMEMX_ERROR_INTERNAL, text);
        let name = read("NVSHMEM_BOOTSTRAP").unwrap_or_else(|| "PMI".to_owned());
        match name.to_ascii_uppercase().as_str() {
            "MPI" => return Ok(Self::Mpi),
            "SHMEM" => return Ok(Self::Shmem),
            "PLUGIN" => return Ok(Self::Plugin),
            "PMI" => {}
            _ => {
                let expected = "expected PMI, MPI, SHMEM or plugin, or a unique id and its flag";
                return Err(internal(format!("NVSHMEM_BOOTSTRAP is {name:?}, {expected}")));
            }
        }
        let name = read("NVSHMEM_BOOTSTRAP_PMI").unwrap_or_else(|| "PMI".to_owned());
        match name.to_ascii_uppercase().as_str() {
            "PMI" => Ok(Self::Pmi),
            "PMI-2" | "PMI2" => Ok(Self::Pmi2),
            "PMIX" => Ok(Self::Pmix),
            _ => Err(internal(format!("NVSHMEM_BOOTSTRAP_PMI is {name:?}, expected PMI, PMI-2 or PMIX"))),
        }
    }
}

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
    format!("parent {parent} {}", segment::process_born(parent).unwrap_or(0))
}

/// How often a PE looks whether PE 0 has come.
const LOOK: Duration = Duration::from_millis(1);

/// What PE 0 has written. Gone when this is: by then all have come, or will not.
#[derive(Debug)]
pub(crate) struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Says, as PE 0 of the job of that name, where the others come to.
pub(crate) fn open_place<P: Plan>(name: &str) -> Outcome<(Id, Written)> {
    let failed = |what: String| refused(NVSHMEMX_ERROR_INTERNAL, format!("no place for {name} to meet: {what}"));
    let id = register::create::<P>().map_err(|trouble| failed(format!("{trouble:?}")))?;
    let (path, own) = (path(name), path(&format!("{name} of {}", std::process::id())));
    let write = || -> io::Result<()> {
        let _ = fs::remove_file(&own);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own)?;
        file.write_all(&id.words().map(u64::to_le_bytes).concat())?;
        // All at once: nobody reads a part of it. What a job of that name has left behind goes.
        fs::rename(&own, &path)
    };
    write().map_err(|error| failed(format!("{}: {error}", path.display())))?;
    Ok((id, Written(path)))
}

/// Comes, as another PE, to where PE 0 has said. As in the library, that is waited for for ever.
pub(crate) fn come_to_place<P: Plan>(name: &str, me: i32) -> Id {
    let (path, begin) = (path(name), Instant::now());
    let mut patience = settings().deadlock;
    loop {
        // An id of a job that has ended leads nowhere.
        if let Some(id) = read(&path).filter(|id| register::open::<P>(*id).is_ok()) {
            return id;
        }
        if patience.is_some_and(|patience| begin.elapsed() > patience) {
            report::line(format!("PE {me} waits for PE 0 of {name}, which has not come"));
            patience = None;
        }
        std::thread::sleep(LOOK);
    }
}

fn read(path: &PathBuf) -> Option<Id> {
    let bytes: [u8; 32] = fs::read(path).ok()?.try_into().ok()?;
    Some(Id::from_words(std::array::from_fn(|word| {
        u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * word + byte]))
    })))
}

/// A name may hold anything.
fn path(name: &str) -> PathBuf {
    let hash = |seed: u64| {
        name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(5))
    };
    // SAFETY: asks a number of this process, and cannot fail.
    let user = unsafe { libc::getuid() };
    std::env::temp_dir().join(format!("gpucomm-job-{user}-{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(1)))
}

#[cfg(test)]
mod bootstrap_tests {
    use super::*;

    fn of(flags: u32, pairs: &[(&str, &str)]) -> Option<Bootstrap> {
        let read = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Bootstrap::of(flags, &read).ok()
    }

    #[test]
    fn flags_come_before_the_environment() {
        let mpi = [("NVSHMEM_BOOTSTRAP", "MPI")];
        assert_eq!(of(8, &mpi), Some(Bootstrap::UniqueId));
        assert_eq!(of(2 | 4 | 8, &[]), Some(Bootstrap::Mpi));
        assert_eq!(of(4 | 8, &[]), Some(Bootstrap::Shmem));
        // Flags of something else.
        assert_eq!((of(1, &mpi), of(16, &mpi)), (Some(Bootstrap::Mpi), Some(Bootstrap::Mpi)));
    }

    #[test]
    fn the_environment_says_it_in_letters_of_any_case() {
        let bootstrap = |name| of(0, &[("NVSHMEM_BOOTSTRAP", name), ("NVSHMEM_BOOTSTRAP_PMI", "pmix")]);
        assert_eq!((bootstrap("mpi"), bootstrap("Plugin")), (Some(Bootstrap::Mpi), Some(Bootstrap::Plugin)));
        assert_eq!((bootstrap("shmem"), bootstrap("pmi")), (Some(Bootstrap::Shmem), Some(Bootstrap::Pmix)));
        assert_eq!((bootstrap("UID"), bootstrap(""), bootstrap("PMIX")), (None, None, None));
        let pmi = |name| of(0, &[("NVSHMEM_BOOTSTRAP_PMI", name)]);
        assert_eq!((of(0, &[]), pmi("PMI")), (Some(Bootstrap::Pmi), Some(Bootstrap::Pmi)));
        assert_eq!((pmi("PMI-2"), pmi("pmi2")), (Some(Bootstrap::Pmi2), Some(Bootstrap::Pmi2)));
        assert_eq!((pmi("PMI-3"), pmi("")), (None, None));
    }
}

#[cfg(test)]
mod job_tests {
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

#[cfg(test)]
mod place_tests {
    use super::*;
    use crate::meet::segment::bare::Bare;

    fn name(what: &str) -> String {
        format!("{what} of test process {}", std::process::id())
    }

    #[test]
    fn who_comes_first_waits_for_what_pe_0_says() {
        let name = name("waits");
        let comes = std::thread::spawn({
            let name = name.clone();
            move || come_to_place::<Bare>(&name, 1)
        });
        std::thread::sleep(20 * LOOK);
        assert!(!comes.is_finished());
        let (id, written) = open_place::<Bare>(&name).expect("a place");
        assert_eq!(comes.join().expect("no panic"), id);
        drop(written);
        assert!(!path(&name).exists());
    }

    /// What a job of that name has left behind leads nowhere, whatever it is.
    #[test]
    fn what_was_left_behind_is_passed_over() {
        let name = name("left");
        let (id, _) = open_place::<Bare>(&name).expect("a place");
        let [words @ .., _] = id.words();
        // As of a process of that number that was born at another time, and has ended.
        let gone = [words[0], words[1] & !0xffff_ffff | u64::from(u32::MAX), words[2] ^ 2, 7];
        for left in [gone.map(u64::to_le_bytes).concat(), b"half".to_vec(), Vec::new()] {
            fs::write(path(&name), left).expect("what is left");
            let comes = std::thread::spawn({
                let name = name.clone();
                move || come_to_place::<Bare>(&name, 1)
            });
            std::thread::sleep(20 * LOOK);
            assert!(!comes.is_finished());
            let (id, _written) = open_place::<Bare>(&name).expect("a place");
            assert_eq!(comes.join().expect("no panic"), id);
        }
    }

    #[test]
    fn jobs_of_other_names_have_other_places() {
        assert_ne!(path("a"), path("b"));
        assert_ne!(path("job 1, start 0"), path("job 1, start 1"));
    }
}
