//! Ranks find each other by the variables of each launcher, and by what a user sets beside them.

use std::net::TcpListener;
use std::time::Duration;

use gpucomm::exchange::TcpPlace;
use gpucomm::{Backend, Communicator, DeviceBuffer, Error, InPlace, Launch, Launcher, ReduceOp, Result, Stream};

use crate::support::{Ended, ROLE, free_port, new_path, said, slower, spawn};

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    match std::env::var(ROLE).as_deref() {
        Ok("compute") => compute().unwrap(),
        Ok("meet") => meet().unwrap(),
        Ok("several") => several().unwrap(),
        Ok("fail") => fail(),
        Ok("on one device") => on_one_device(),
        Ok("restart") => crate::restarts::restart().unwrap(),
        Ok("train") => crate::training::rank(),
        _ => {}
    }
}

/// Sums and gathers, by a communicator that is made in one line.
fn compute() -> Result<()> {
    let launch = Launch::from_env()?;
    // SAFETY: all ranks are started by one test, in this role.
    let comm = unsafe { Communicator::from_launch(&launch)? };
    assert_eq!((comm.rank(), comm.size()), (launch.rank(), launch.size()));
    let stream = Stream::new(comm.device())?;
    let mut sum = DeviceBuffer::from_slice(&stream, &[comm.rank() as u64 + 1; 1001])?;
    comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, &stream)?;
    let all = (comm.size() * (comm.size() + 1) / 2) as u64;
    assert_eq!(sum.to_vec(&stream)?, [all; 1001]);
    // Whoever asks again gets the same, and the same exchange.
    let again = Launch::from_env()?.join()?;
    assert_eq!(again.all_gather(&[launch.rank() as u8])?.concat(), (0..launch.size() as u8).collect::<Vec<_>>());
    println!("device: {}", comm.device().ordinal());
    println!("launcher: {:?}", launch.launcher());
    comm.close_timeout(slower(40.0))
}

/// Communicators of one process, one after the other, and several at a time.
fn several() -> Result<()> {
    let start = || {
        let launch = Launch::from_env()?;
        // SAFETY: all ranks are started by one test, in this role.
        unsafe { Communicator::from_launch(&launch) }
    };
    let sum = |comm: &Communicator| {
        let ranks = comm.all_reduce_scalar(1u32, ReduceOp::Sum, &Stream::new(comm.device())?)?;
        assert_eq!(ranks as usize, comm.size());
        Ok(())
    };
    for _ in 0..6 {
        let comm = start()?;
        sum(&comm)?;
        comm.close_timeout(slower(40.0))?;
    }
    let all = (0..4).map(|_| start()).collect::<Result<Vec<_>>>()?;
    all.iter().try_for_each(sum)
}

/// Only the exchange.
fn meet() -> Result<()> {
    let launch = Launch::from_env()?;
    let (local, of) = launch.find_local()?;
    println!("local: {local} of {of}");
    let told = launch.join()?.broadcast(if launch.rank() == 0 { b"of rank 0" } else { b"" }, 0)?;
    assert_eq!(told, b"of rank 0");
    Ok(())
}

fn fail() {
    let met = Launch::from_env().and_then(|launch| launch.with_timeout(Duration::from_secs(2)).join().map(drop));
    println!("error: {}", met.expect_err("ranks that cannot meet"));
}

/// What a start says of a device that another rank has, too.
fn on_one_device() {
    let launch = Launch::from_env().unwrap();
    // SAFETY: all ranks are started by one test, in this role.
    let error = unsafe { Communicator::from_launch(&launch) }.expect_err("two ranks on one device");
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
    println!("error: {error}");
}

/// Ranks of one host with these variables, each of which may hold `{rank}`.
fn start(role: &str, size: usize, set: &str) -> Vec<Ended> {
    (0..size).map(|rank| spawn(role, &set.replace("{rank}", &rank.to_string()))).collect()
}

fn torchrun(size: usize, port: u16) -> String {
    format!(
        "RANK={{rank}} WORLD_SIZE={size} LOCAL_RANK={{rank}} LOCAL_WORLD_SIZE={size} MASTER_ADDR=localhost MASTER_PORT={port}"
    )
}

fn slurm(size: usize, job: u32) -> String {
    format!(
        "SLURM_PROCID={{rank}} SLURM_NTASKS={size} SLURM_STEP_NUM_TASKS={size} SLURM_LOCALID={{rank}} SLURM_NODEID=0 \
         SLURM_STEP_TASKS_PER_NODE={size} SLURM_JOB_ID={job} SLURM_STEP_ID=0 SLURM_STEP_NODELIST=nowhere"
    )
}

fn open_mpi(size: usize, job: u32) -> String {
    format!(
        "OMPI_COMM_WORLD_RANK={{rank}} OMPI_COMM_WORLD_SIZE={size} OMPI_COMM_WORLD_LOCAL_RANK={{rank}} \
         OMPI_COMM_WORLD_LOCAL_SIZE={size} PMIX_NAMESPACE={job}"
    )
}

#[test]
fn one_line_makes_a_communicator_under_each_launcher() {
    let job = fastrand::u32(..);
    let of_pmi = "PMI_RANK={rank} PMI_SIZE=3 MPI_LOCALRANKID={rank} MPI_LOCALNRANKS=3";
    let explicit = format!(
        "GPUCOMM_RANK={{rank}} GPUCOMM_SIZE=3 GPUCOMM_LOCAL_RANK={{rank}} GPUCOMM_STORE=tcp://127.0.0.1:{}",
        free_port()
    );
    for (set, launcher) in [
        (torchrun(3, free_port()), Launcher::Torchrun),
        (slurm(3, job), Launcher::Slurm),
        (open_mpi(3, job), Launcher::OpenMpi),
        (of_pmi.to_owned(), Launcher::Pmi),
        (explicit, Launcher::Explicit),
        (String::new(), Launcher::Alone),
    ] {
        let size = if launcher == Launcher::Alone { 1 } else { 3 };
        for (rank, child) in start("compute", size, &set).into_iter().enumerate() {
            let text = child.succeeds();
            assert_eq!(said(&text, "launcher: "), format!("{launcher:?}"));
            assert_eq!(said(&text, "device: "), rank.to_string(), "{launcher}");
        }
    }
}

#[test]
fn jobs_of_one_directory_do_not_meet() {
    let (outside, inside) = (new_path(), "stores");
    let path = outside.join(inside);
    std::fs::create_dir_all(&path).unwrap();
    let join = |job: &str| {
        let set = [("RANK", "0"), ("SIZE", "1"), ("STORE", &format!("file://{}", path.display())), ("JOB", job)];
        let get = |name: &str| Some(set.iter().find(|set| name == format!("GPUCOMM_{}", set.0))?.1.to_owned());
        Launch::from_vars(get).unwrap().with_timeout(slower(20.0)).join().unwrap()
    };
    let jobs = ["", "gpucomm-exchange", "a/b", "a_b", "a b", "a:b", "ä", "ö", ".", "..", "a.b", &"x".repeat(1000)];
    // A job that met another one would remove what that has said.
    let met = jobs.map(|job| {
        let exchange = join(job);
        exchange.set("job", job.as_bytes()).unwrap();
        exchange
    });
    for (exchange, job) in met.iter().zip(jobs) {
        assert_eq!(exchange.try_get("job").unwrap().as_deref(), Some(job.as_bytes()), "{job}");
    }
    let left: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [inside]);
    drop(met);
    std::fs::remove_dir_all(outside).unwrap();
}

#[test]
fn a_process_may_have_several_communicators() {
    let port = free_port;
    let stores = [
        torchrun(2, port()),
        // Rank 0 comes back at another port while the server of the last round stays at its own.
        slurm(2, fastrand::u32(..)),
        format!(
            "GPUCOMM_RANK={{rank}} GPUCOMM_SIZE=2 GPUCOMM_LOCAL_RANK={{rank}} GPUCOMM_STORE=tcp://127.0.0.1:{}",
            port()
        ),
    ];
    for set in stores {
        start("several", 2, &set).into_iter().for_each(|child| drop(child.succeeds()));
    }
}

#[test]
fn the_name_of_the_host_does_not_matter_where_all_are_on_it() {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let job = fastrand::u32(..);
    let of_nobody = format!("{} MASTER_ADDR=node-of-nobody.invalid", open_mpi(2, job));
    for set in [format!("{} MASTER_ADDR={}", slurm(2, job), name.trim()), of_nobody] {
        start("meet", 2, &set).into_iter().for_each(|child| drop(child.succeeds()));
    }
}

#[test]
fn a_device_for_each_process_is_the_first_that_it_sees() {
    let set = format!("{} GPUCOMM_EMULATOR_DEVICES=1 GPUCOMM_DEVICE=0", slurm(1, fastrand::u32(..)));
    start("compute", 1, &set).into_iter().for_each(|child| assert_eq!(said(&child.succeeds(), "device: "), "0"));
    let set = format!("{} GPUCOMM_DEVICE=2", torchrun(1, free_port()));
    start("compute", 1, &set).into_iter().for_each(|child| assert_eq!(said(&child.succeeds(), "device: "), "2"));
}

#[test]
fn two_ranks_on_one_device_are_told_what_to_set() {
    for (set, by) in
        [("GPUCOMM_DEVICE=1", "device 1"), ("CUDA_VISIBLE_DEVICES=1", "device 0 with CUDA_VISIBLE_DEVICES=1")]
    {
        for child in start("on one device", 2, &format!("{} {set}", torchrun(2, free_port()))) {
            let text = child.succeeds();
            let error = said(&text, "error: ");
            assert!(error.contains("ranks 0 and 1 have one device") && error.contains(by), "{error}");
            assert!(error.contains("NCCL_MULTI_RANK_GPU_ENABLE=1"), "{error}");
        }
    }
    if gpucomm::backend() == Backend::Emulator {
        let set = "GPUCOMM_DEVICE=1 NCCL_MULTI_RANK_GPU_ENABLE=1 GPUCOMM_EMULATOR_NCCL=2.30.3";
        let all = start("compute", 2, &format!("{} {set}", torchrun(2, free_port())));
        all.into_iter().for_each(|child| assert_eq!(said(&child.succeeds(), "device: "), "1"));
    }
}

#[test]
fn ranks_meet_where_the_user_says() {
    let path = new_path();
    let stores = [
        format!("tcp://127.0.0.1:{}", free_port()),
        format!("c10d://127.0.0.1:{}", free_port()),
        format!("file://{}", path.display()),
    ];
    for store in stores {
        // Nothing says who shares a host: they find out.
        let set = format!("GPUCOMM_RANK={{rank}} GPUCOMM_SIZE=3 GPUCOMM_STORE={store}");
        for (rank, child) in start("meet", 3, &set).into_iter().enumerate() {
            assert_eq!(said(&child.succeeds(), "local: "), format!("{rank} of 3"), "{store}");
        }
    }
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn others_may_be_at_the_port_of_a_job() {
    // The ports of this job are those of its number: who it is is found by starting it alone.
    let job = fastrand::u32(..);
    let set = slurm(2, job);
    let alone = spawn("fail", &set.replace("{rank}", "1")).succeeds();
    let ports = said(said(&alone, "error: "), "at ports [").split([',', ']']).take(2);
    let ports: Vec<u16> = ports.map(|port| port.trim().parse().unwrap()).collect();
    // One is served by another job, at one nobody answers.
    let _other = TcpPlace::new(format!("127.0.0.1:{}", ports[0])).with_job("another").serve(2).unwrap();
    let _silent = TcpListener::bind(("127.0.0.1", ports[1])).unwrap();
    start("meet", 2, &set).into_iter().for_each(|child| drop(child.succeeds()));
}

#[test]
fn who_cannot_meet_is_told_why() {
    let port = free_port();
    for (set, holds) in [
        (torchrun(2, port).replace("{rank}", "0"), "rank 1"),
        (torchrun(2, port).replace("{rank}", "1"), "127.0.0.1"),
        (open_mpi(4, 7).replace("{rank}", "0").replace("LOCAL_SIZE=4", "LOCAL_SIZE=2"), "MASTER_ADDR"),
        ("RANK=1".to_owned(), "WORLD_SIZE"),
        (format!("{} {}", torchrun(4, port), open_mpi(2, 7)).replace("{rank}", "1"), "contradict"),
    ] {
        let error = spawn("fail", &set).succeeds();
        let error = said(&error, "error: ");
        let localhost = holds == "127.0.0.1" && error.contains("localhost");
        assert!(error.contains(holds) || localhost, "{set}: {error}");
    }
}

#[test]
fn a_launch_of_the_program_itself() {
    let wrong = |launch: Result<Launch>| assert!(matches!(launch, Err(Error::InvalidArgument { .. })), "{launch:?}");
    wrong(Launch::new(2, 2, "tcp://a:1"));
    wrong(Launch::new(0, 2, "a:1"));
    wrong(Launch::new(0, 2, "tcp://a:1").and_then(|launch| launch.with_local(2, 2)));
    wrong(Launch::new(0, 2, "tcp://a:1").and_then(|launch| launch.with_local(0, 3)));
    let store = format!("tcp://127.0.0.1:{}", free_port());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let store = &store;
            scope.spawn(move || {
                let launch =
                    Launch::new(rank, 2, store).unwrap().with_local(rank, 2).unwrap().with_timeout(slower(40.0));
                let exchange = launch.join().unwrap();
                assert_eq!(exchange.all_gather(&[rank as u8]).unwrap(), [[0], [1]]);
                // The others may still be at it.
                exchange.barrier().unwrap();
                assert!(matches!(launch.with_local(rank, 2), Err(Error::InvalidUsage { .. })));
            });
        }
    });
}
