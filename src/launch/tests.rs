//! What environments of launchers come to, as they were seen, and as they should not be.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::choose::choose;
use super::claim::Claim;
use super::environment::Environment;
use super::handle::{Launch, Shared};
use super::meeting::{Meeting, listens_at};
use crate::error::{Error, Result};
use crate::launchers::Launcher;

fn with<T>(set: &str, read: impl FnOnce(&Environment<'_>) -> T) -> T {
    let set: HashMap<&str, &str> = set.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
    read(&Environment(&|name| set.get(name).map(|value| (*value).to_owned())))
}

fn chosen(set: &str) -> Result<Claim> {
    with(set, choose)
}

fn meeting(set: &str) -> Result<Meeting> {
    with(set, |environment| Meeting::of(environment, &choose(environment)?))
}

/// A task of Slurm 22.05, a rank of Open MPI 4.1, and of torchrun.
const SLURM: &str = "SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_STEP_NUM_TASKS=6 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=4,2 \
                     SLURM_TASKS_PER_NODE=4,2 SLURM_STEP_ID=3 SLURM_JOB_ID=77 SLURM_STEP_NODELIST=gpu[03-04] SLURM_JOB_NODELIST=gpu[02-04]";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=4 \
                        PMIX_NAMESPACE=1068892161 PMIX_RANK=3";
const TORCHRUN: &str = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500";
const AGENT: &str = "TORCHELASTIC_RUN_ID=abc TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_USE_AGENT_STORE=True";

/// As their own documentation has it.
const MVAPICH2: &str = "MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=2 \
                        MPIRUN_RANK=3 MPIRUN_ID=7";
const JSM: &str = "JSM_NAMESPACE_RANK=5 JSM_NAMESPACE_SIZE=12 JSM_NAMESPACE_LOCAL_RANK=5 JSM_NAMESPACE_LOCAL_SIZE=6 \
                   LSB_JOBID=77 PMIX_NAMESPACE=1";
const FLUX: &str = "FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=2 FLUX_JOB_ID=f2";
const KUBEFLOW: &str = "RANK=0 WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=23456 PET_NODE_RANK=0 PET_NNODES=3";
const SAGEMAKER: &str =
    r#"SM_HOSTS=["algo-1","algo-2"] SM_CURRENT_HOST=algo-2 SM_NUM_GPUS=8 TRAINING_JOB_NAME=train-1"#;

#[test]
fn each_launcher_is_understood() {
    for (set, launcher, rank, size, local) in [
        ("", Launcher::Alone, 0, 1, (Some(0), Some(1))),
        ("GPUCOMM_RANK=2 GPUCOMM_SIZE=3", Launcher::Explicit, 2, 3, (None, None)),
        (
            "GPUCOMM_RANK=2 GPUCOMM_SIZE=4 GPUCOMM_LOCAL_RANK=0 GPUCOMM_LOCAL_SIZE=2",
            Launcher::Explicit,
            2,
            4,
            (Some(0), Some(2)),
        ),
        (TORCHRUN, Launcher::Torchrun, 1, 2, (Some(1), Some(2))),
        // Another launcher in a rank of `gpucomm run` gives other numbers.
        (&format!("{TORCHRUN} GPUCOMM_RUN=1/2"), Launcher::GpucommRun, 1, 2, (Some(1), Some(2))),
        (&format!("{TORCHRUN} GPUCOMM_RUN=0/1"), Launcher::Torchrun, 1, 2, (Some(1), Some(2))),
        (SLURM, Launcher::Slurm, 5, 6, (Some(1), Some(2))),
        (OPEN_MPI, Launcher::OpenMpi, 3, 4, (Some(3), Some(4))),
        ("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", Launcher::Pmi, 1, 2, (Some(1), Some(2))),
        // Intel MPI, whose Hydra sets what that of MPICH does, and more.
        (
            "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 I_MPI_MPIRUN=mpirun I_MPI_HYDRA_HOST_FILE=h",
            Launcher::Pmi,
            3,
            4,
            (Some(1), Some(2)),
        ),
        // MVAPICH2 by mpirun_rsh, and MVAPICH 3 by Hydra, which sets PMI's as well.
        (MVAPICH2, Launcher::Mvapich, 3, 4, (Some(1), Some(2))),
        (
            "MVP_COMM_WORLD_RANK=1 MVP_COMM_WORLD_SIZE=2 MVP_COMM_WORLD_LOCAL_RANK=0 MVP_COMM_WORLD_LOCAL_SIZE=1 \
             PMI_RANK=1 PMI_SIZE=2",
            Launcher::Mvapich,
            1,
            2,
            (Some(0), Some(1)),
        ),
        (JSM, Launcher::Jsm, 5, 12, (Some(5), Some(6))),
        // With Spectrum MPI, which is an Open MPI.
        (
            &format!("{JSM} OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=12 OMPI_COMM_WORLD_LOCAL_RANK=5 PMIX_RANK=5"),
            Launcher::OpenMpi,
            5,
            12,
            (Some(5), None),
        ),
        (FLUX, Launcher::Flux, 3, 4, (Some(1), None)),
        (&FLUX.replace("NNODES=2", "NNODES=1"), Launcher::Flux, 3, 4, (Some(1), Some(4))),
        // Open MPI 5, whose launcher is PRRTE.
        (&format!("{OPEN_MPI} PRTE_LAUNCHED=1 PMIX_VERSION=5.0.1"), Launcher::OpenMpi, 3, 4, (Some(3), Some(4))),
        // Kubeflow's PyTorchJob, on the master and on a worker; Ray Train.
        (KUBEFLOW, Launcher::Torchrun, 0, 3, (None, None)),
        (&KUBEFLOW.replace("RANK=0", "RANK=2"), Launcher::Torchrun, 2, 3, (None, None)),
        (&format!("{TORCHRUN} NODE_RANK=0 LOCAL_SIZE=2"), Launcher::Torchrun, 1, 2, (Some(1), Some(2))),
        (SAGEMAKER, Launcher::SageMaker, 1, 2, (Some(0), Some(1))),
        (r#"SM_HOSTS=["algo-1"] SM_CURRENT_HOST=algo-1"#, Launcher::SageMaker, 0, 1, (Some(0), Some(1))),
        // What SageMaker has started starts others.
        (&format!("{SAGEMAKER} {TORCHRUN}"), Launcher::Torchrun, 1, 2, (Some(1), Some(2))),
        (&format!("{SAGEMAKER} {OPEN_MPI}"), Launcher::OpenMpi, 3, 4, (Some(3), Some(4))),
        ("PET_NODE_RANK=0 PET_NNODES=1", Launcher::Alone, 0, 1, (Some(0), Some(1))),
        (
            "PALS_RANKID=1 PMI_RANK=1 PMI_SIZE=2 PALS_LOCAL_RANKID=0 PALS_LOCAL_SIZE=1",
            Launcher::Pals,
            1,
            2,
            (Some(0), Some(1)),
        ),
        // Blank is as good as not set.
        ("GPUCOMM_RANK= RANK= WORLD_SIZE=", Launcher::Alone, 0, 1, (Some(0), Some(1))),
        // A shell of an allocation is no task, and a rank by hand without the others is none of them.
        ("SLURM_NTASKS=4 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=a", Launcher::Alone, 0, 1, (Some(0), Some(1))),
        ("SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_JOB_ID=7", Launcher::Alone, 0, 1, (Some(0), Some(1))),
        ("MASTER_ADDR=a MASTER_PORT=1", Launcher::Alone, 0, 1, (Some(0), Some(1))),
    ] {
        let claim = chosen(set).unwrap();
        assert_eq!((claim.launcher, claim.rank, claim.size), (launcher, rank, size), "{set}");
        assert_eq!((claim.local_rank, claim.local_size), local, "{set}");
    }
}

#[test]
fn who_has_started_the_process_itself_counts() {
    let elsewhere = "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=0";
    for (outer, inner, launcher) in [
        // One agent on each node of a step; mpirun in a batch job, whose daemons are a step; mpiexec, likewise.
        (elsewhere, &format!("{TORCHRUN} {AGENT}")[..], Launcher::Torchrun),
        (elsewhere, OPEN_MPI, Launcher::OpenMpi),
        (elsewhere, "PMI_RANK=5 PMI_SIZE=8", Launcher::Pmi),
        (OPEN_MPI, &format!("{TORCHRUN} {AGENT}"), Launcher::Torchrun),
        (SLURM, "GPUCOMM_RANK=0 GPUCOMM_SIZE=2", Launcher::Explicit),
        // srun --mpi=pmi2 says it twice, and Slurm says more.
        (SLURM, "PMI_RANK=5 PMI_SIZE=6", Launcher::Slurm),
        // The shell of a step of one task, and an image that has them set, say nothing.
        ("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0", TORCHRUN, Launcher::Torchrun),
        ("RANK=0 WORLD_SIZE=1", OPEN_MPI, Launcher::OpenMpi),
        ("RANK=5 WORLD_SIZE=6", SLURM, Launcher::Torchrun),
        // What scripts set, and a plug-in of Slurm, says half of it beside who says all.
        ("WORLD_SIZE=6", SLURM, Launcher::Slurm),
        ("PALS_RANKID=5", SLURM, Launcher::Slurm),
        // One that is as Slurm has it by chance is still that of Open MPI.
        ("SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_ID=0", OPEN_MPI, Launcher::OpenMpi),
    ] {
        assert_eq!(chosen(&format!("{outer} {inner}")).unwrap().launcher, launcher, "{outer} {inner}");
    }
    for name in Launcher::ALL {
        let set =
            format!("{SLURM} {OPEN_MPI} {TORCHRUN} GPUCOMM_RANK=0 GPUCOMM_SIZE=1 PMI_RANK=0 PMI_SIZE=1 PALS_RANKID=0");
        let set = format!("{set} {MVAPICH2} {JSM} {FLUX} {SAGEMAKER}");
        assert_eq!(chosen(&format!("{set} GPUCOMM_LAUNCHER={}", name.name())).unwrap().launcher, name);
    }
}

#[test]
fn what_is_half_or_cannot_be_is_listed() {
    for (set, holds) in [
        ("RANK=1", &["torchrun", "half", "RANK and WORLD_SIZE", "got RANK=1"][..]),
        ("WORLD_SIZE=4 MASTER_ADDR=a", &["half", "got WORLD_SIZE=4"]),
        ("GPUCOMM_LOCAL_SIZE=x", &["the program", "half", "GPUCOMM_RANK and GPUCOMM_SIZE", "got GPUCOMM_LOCAL_SIZE=x"]),
        ("LOCAL_RANK=1", &["half", "got LOCAL_RANK=1"]),
        ("GPUCOMM_SIZE=1", &["the program", "GPUCOMM_RANK and GPUCOMM_SIZE"]),
        ("OMPI_COMM_WORLD_RANK=1", &["Open MPI", "OMPI_COMM_WORLD_SIZE"]),
        ("RANK=4 WORLD_SIZE=4", &["rank 4 is none of 4", "RANK=4, WORLD_SIZE=4"]),
        ("RANK=0 WORLD_SIZE=0", &["rank 0 is none of 0"]),
        ("RANK=0 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", &["local rank 2 is none of 2"]),
        ("RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=5", &["5 ranks on a host are not some of 4"]),
        ("RANK=one WORLD_SIZE=4", &["RANK", "a number", "\"one\""]),
        ("RANK=-1 WORLD_SIZE=4", &["a number", "\"-1\""]),
        ("SLURM_PROCID=0 SLURM_NTASKS=4", &["batch", "SLURM_NTASKS=4", "srun"]),
        (
            "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=1 SLURM_STEP_TASKS_PER_NODE=many",
            &["SLURM_STEP_TASKS_PER_NODE", "many"],
        ),
        ("GPUCOMM_LAUNCHER=lsf", &["GPUCOMM_LAUNCHER", "explicit, torchrun", "\"lsf\""]),
        ("GPUCOMM_LAUNCHER=slurm RANK=0 WORLD_SIZE=1", &["Slurm says nothing"]),
        ("MV2_COMM_WORLD_RANK=1", &["MVAPICH", "half", "MVP_COMM_WORLD_RANK"]),
        ("FLUX_TASK_RANK=1", &["Flux", "half", "FLUX_JOB_SIZE"]),
        ("JSM_NAMESPACE_SIZE=1", &["JSM", "half"]),
        ("SM_CURRENT_HOST=algo-1", &["SageMaker", "half", "SM_HOSTS"]),
        (r#"SM_HOSTS=["a"] SM_CURRENT_HOST=b"#, &["SM_HOSTS", "SM_CURRENT_HOST=b"]),
        ("SM_HOSTS=a,b SM_CURRENT_HOST=b", &["SM_HOSTS", r#"["algo-1","algo-2"]"#, "a,b"]),
        // Ranks that nobody explains.
        ("PMIX_RANK=0 PMIX_NAMESPACE=job", &["PMIX_RANK=0", "PmixPlace", "GPUCOMM_RANK", "GPUCOMM_LAUNCHER=alone"]),
        ("PMI_ID=3", &["PMI_ID=3", "GPUCOMM_SIZE", "GPUCOMM_LAUNCHER=alone"]),
        ("ALPS_APP_PE=2", &["ALPS_APP_PE=2", "aprun"]),
        ("HOROVOD_RANK=1", &["HOROVOD_RANK=1"]),
        ("PET_NODE_RANK=0 PET_NNODES=2 PET_MASTER_ADDR=a", &["PET_NODE_RANK=0", "torchrun"]),
        ("NODE_RANK=1", &["NODE_RANK=1", "torchrun or gpucomm run"]),
    ] {
        let error = chosen(set).expect_err(set).to_string();
        assert!(holds.iter().all(|text| error.contains(text)), "{set}: {error}");
    }
    for (one, other) in [(TORCHRUN, OPEN_MPI), (TORCHRUN, SLURM), (OPEN_MPI, "PMI_RANK=0 PMI_SIZE=2")] {
        let error = chosen(&format!("{one} {other}")).expect_err("a contradiction");
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("contradict") && error.contains("GPUCOMM_LAUNCHER"), "{error}");
        let all = one.split_whitespace().next().into_iter().chain(other.split_whitespace().next());
        assert!(all.into_iter().all(|said| error.contains(said)), "{error}");
    }
}

#[test]
fn ranks_know_where_they_meet() {
    assert_eq!(meeting("").unwrap(), Meeting::Alone);
    let c10d = |host: &str, port, prefix: &str, is_there| {
        let (host, prefix) = (host.to_owned(), prefix.to_owned());
        Meeting::C10d { host, port, prefix, is_there }
    };
    assert_eq!(meeting(TORCHRUN).unwrap(), c10d("10.0.0.1", 29500, "gpucomm//", false));
    assert_eq!(
        meeting(&format!("{TORCHRUN} {AGENT}")).unwrap(),
        c10d("10.0.0.1", 29500, "gpucomm/torchrun-abc/", true)
    );
    assert_eq!(
        meeting("RANK=0 WORLD_SIZE=2 MASTER_ADDR=fd00::1 MASTER_PORT=7").unwrap(),
        c10d("[fd00::1]", 7, "gpucomm//", false)
    );
    let Meeting::Tcp { host, ports, job } = meeting(SLURM).unwrap() else { panic!("not over TCP") };
    assert_eq!((host.as_str(), job.as_str()), ("gpu03", "slurm-77.3"));
    let mut others = ports.clone();
    others.dedup();
    assert!(others.len() == 4 && ports.iter().all(|port| (16_000..32_000).contains(port)), "{ports:?}");
    // Another step has other ports, and another job.
    let Meeting::Tcp { ports: of_next, .. } = meeting(&SLURM.replace("STEP_ID=3", "STEP_ID=4")).unwrap() else {
        panic!()
    };
    assert_ne!(ports, of_next);
    // On one host, its name elsewhere does not matter.
    let named = format!("{OPEN_MPI} MASTER_ADDR=node-7 MASTER_PORT=29500");
    for (set, ports) in [(OPEN_MPI, None), (&named[..], Some(vec![29500]))] {
        let Meeting::Tcp { host, ports: of, .. } = meeting(set).unwrap() else { panic!("not over TCP") };
        assert_eq!((host.as_str(), ports.as_ref().is_none_or(|ports| *ports == of)), ("127.0.0.1", true));
    }
    // Ranks of several hosts, in a Slurm allocation and without.
    let spread = OPEN_MPI.replace("LOCAL_SIZE=4", "LOCAL_SIZE=2").replace("LOCAL_RANK=3", "LOCAL_RANK=1");
    let Meeting::Tcp { host, .. } = meeting(&format!("{spread} SLURM_JOB_NODELIST=n[7-8]")).unwrap() else { panic!() };
    assert_eq!(host, "n7");
    let Meeting::Tcp { host, ports, .. } = meeting(&format!("{spread} MASTER_ADDR=a MASTER_PORT=7")).unwrap() else {
        panic!()
    };
    assert_eq!((host.as_str(), ports.as_slice()), ("a", &[7][..]));
    assert!(matches!(meeting(&spread).unwrap(), Meeting::Nowhere(reason) if reason.contains("MASTER_ADDR")));
    assert!(
        matches!(meeting("GPUCOMM_RANK=0 GPUCOMM_SIZE=2").unwrap(), Meeting::Nowhere(reason) if reason.contains("GPUCOMM_STORE"))
    );
}

#[test]
fn rank_0_listens_where_it_is_looked_for_and_nowhere_else() {
    for host in ["localhost", "127.0.0.1", "127.0.1.1", "[::1]"] {
        assert_eq!(listens_at(host, true), [host]);
        // Other ranks may be on other hosts.
        assert_eq!(listens_at(host, false), ["[::]", "0.0.0.0"]);
    }
    for host in ["node-7", "10.0.0.1", "[fd00::1]", "localhost.cluster"] {
        assert_eq!(listens_at(host, true), ["[::]", "0.0.0.0"]);
    }
}

/// Rank 0 needs no name of its own host, where a port is named; the others do.
#[test]
fn rank_0_starts_without_an_address() {
    for set in ["RANK=0 WORLD_SIZE=2 MASTER_PORT=7", "PMI_RANK=0 PMI_SIZE=2 PMI_JOBID=1 MASTER_PORT=7"] {
        match meeting(set).unwrap() {
            Meeting::Tcp { host, ports, .. } => assert_eq!((&*host, &*ports), ("localhost", &[7][..])),
            Meeting::C10d { host, port, .. } => assert_eq!((&*host, port), ("localhost", 7)),
            other => panic!("{other:?}"),
        }
    }
    let error = meeting("RANK=1 WORLD_SIZE=2 MASTER_PORT=7").unwrap_err().to_string();
    assert!(error.contains("MASTER_ADDR"), "{error}");
    assert!(matches!(meeting("PMI_RANK=1 PMI_SIZE=2 PMI_JOBID=1 MASTER_PORT=7").unwrap(), Meeting::Nowhere(_)));
    // Nothing names a port, and all ranks fail alike.
    assert!(matches!(meeting("PMI_RANK=0 PMI_SIZE=2 PMI_JOBID=1").unwrap(), Meeting::Nowhere(_)));
    let Meeting::Tcp { host, job, .. } = meeting(SAGEMAKER).unwrap() else { panic!("not over TCP") };
    assert_eq!((&*host, &*job), ("algo-1", "sagemaker-train-1"));
}

#[test]
fn a_store_that_is_named_is_taken() {
    let named = |store: &str| meeting(&format!("{SLURM} GPUCOMM_STORE={store}"));
    assert!(matches!(named("tcp://a:7").unwrap(), Meeting::Tcp { host, ports, .. } if host == "a" && ports == [7]));
    assert!(matches!(named("tcp://[::1]:7").unwrap(), Meeting::Tcp { host, .. } if host == "[::1]"));
    assert!(
        matches!(named("server://a:7").unwrap(), Meeting::Server { host, port: 7, job } if host == "a" && job == "slurm-77.3")
    );
    assert!(
        matches!(named("c10d://a:7").unwrap(), Meeting::C10d { host, port: 7, is_there: false, .. } if host == "a")
    );
    assert!(
        matches!(named("file:///shared/x").unwrap(), Meeting::Directory { path, .. } if path.ends_with("shared/x"))
    );
    let prefixes: std::collections::BTreeSet<_> = ["", "a", "a/b", "a%2fb", "a/", "a%"]
        .map(|job| match Meeting::named("c10d://a:7", job.to_owned(), 2) {
            Ok(Meeting::C10d { prefix, .. }) => prefix,
            other => panic!("{other:?}"),
        })
        .into();
    assert_eq!(prefixes.len(), 6);
    // The keys of no job are some of another one's.
    assert!(prefixes.iter().all(|one| prefixes.iter().all(|other| one == other || !one.starts_with(other.as_str()))));
    for nonsense in [
        "a:7",
        "tcp://a",
        "tcp://:7",
        "tcp://a:port",
        "tcp://a:70000",
        "tcp://a:0",
        "c10d://a:0",
        "server://a",
        "server://a:0",
        "tcp://a:1:2",
        "tcp://::1:2",
        "file://x",
        "http://a:7",
        "c10d://",
    ] {
        let error = named(nonsense).expect_err(nonsense).to_string();
        assert!(error.contains("GPUCOMM_STORE") && error.contains("tcp://host:port"), "{error}");
    }
    for port in ["0", "x", "65536"] {
        assert!(meeting(&format!("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT={port}")).is_err());
    }
    let half = meeting("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a").expect_err("half").to_string();
    assert!(half.contains("MASTER_PORT") && half.contains("MASTER_ADDR=a"), "{half}");
}

#[test]
fn what_is_not_utf8_is_refused_and_not_shown() {
    let with = |set: &'static str, value: &'static [u8]| {
        let of_rank =
            ["RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=7"].map(|set| set.split_once('=').unwrap());
        Shared::read_bytes(|name| {
            let other = of_rank.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value));
            if name == set { Some(OsStr::from_bytes(value).to_owned()) } else { other }
        })
    };
    for name in ["GPUCOMM_STORE", "GPUCOMM_STORE_SECRET", "GPUCOMM_JOB", "TORCHELASTIC_RUN_ID", "RANK"] {
        let error = with(name, b"hush\xff").expect_err("no text").to_string();
        assert!(error.contains(name) && error.contains("UTF-8") && !error.contains("hush"), "{error}");
    }
    assert!(with("GPUCOMM_JOB", "h\u{fffd}ü".as_bytes()).is_ok());
    // A path is no text.
    assert!(with("GPUCOMM_DUMP", b"\xff").is_ok());
}

#[test]
fn a_secret_is_shown_to_nobody() {
    let read = |set: &str| with(set, Shared::read);
    let over_c10d = read(&format!("{TORCHRUN} GPUCOMM_STORE_SECRET=hush")).expect_err("c10d has none").to_string();
    assert!(over_c10d.contains("GPUCOMM_STORE_SECRET") && !over_c10d.contains("hush"), "{over_c10d}");
    if cfg!(feature = "secret") {
        let shared = read("GPUCOMM_RANK=0 GPUCOMM_SIZE=2 GPUCOMM_STORE=tcp://a:1 GPUCOMM_STORE_SECRET=hush").unwrap();
        assert!(shared.secret.is_some() && !format!("{shared:?}").contains("hush"), "{shared:?}");
    }
}

#[test]
fn where_no_server_listens_it_is_said_what_to_start() {
    let launch = Launch::new(0, 2, "server://127.0.0.1:9").unwrap().with_timeout(std::time::Duration::from_millis(100));
    let error = launch.join().expect_err("nobody listens").to_string();
    let says = "start it there: gpucomm store --listen 127.0.0.1:9";
    assert!(error.contains("the rendezvous store at 127.0.0.1:9 has not come") && error.contains(says), "{error}");
    assert_eq!(launch.master_address().as_deref(), Some("127.0.0.1:9"));
}

#[test]
fn jobs_have_names() {
    let job = |set: &str| with(set, Shared::read).map(|shared| shared.job).unwrap();
    assert_eq!(job(SLURM), "slurm-77.3");
    assert_eq!(job(&format!("{SLURM} GPUCOMM_JOB=ours")), "ours");
    assert_eq!(job("GPUCOMM_RANK=0 GPUCOMM_SIZE=2 GPUCOMM_STORE=server://a:1"), "");
}
