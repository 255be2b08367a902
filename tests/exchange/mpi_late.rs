//! A rank of MPI that comes when the others have given up waits no longer than it was told to.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use gpucomm::exchange::MpiPlace;
use mpi::topology::Communicator as _;

const LATE: &str = "GPUCOMM_TEST_LATE";
const PATIENCE: Duration = Duration::from_millis(700);

#[test]
fn who_is_late_has_a_deadline_too() {
    if let Ok(late) = env::var(LATE) {
        rank(late.parse().unwrap());
    }
    for late in [0, 2] {
        let mut command = Command::new("mpirun");
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", "3"]).arg(env::current_exe().unwrap());
        command.args(["--exact", "mpi_late::who_is_late_has_a_deadline_too", "--nocapture"]);
        let mut job = command.env(LATE, late.to_string()).stdout(Stdio::piped()).spawn().unwrap();
        let begin = Instant::now();
        while job.try_wait().unwrap().is_none() && begin.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = job.kill();
        let said = String::from_utf8(job.wait_with_output().unwrap().stdout).unwrap();
        for rank in 0..3 {
            assert!(said.contains(&format!("rank {rank} has waited")), "late: {late}; {said}");
        }
    }
}

fn rank(late: i32) -> ! {
    let begin = Instant::now();
    let universe = mpi::initialize().unwrap();
    let rank = universe.world().rank();
    if rank == late {
        thread::sleep(3 * PATIENCE);
    }
    let joined = MpiPlace::new_timeout(&universe.world(), PATIENCE).and_then(MpiPlace::join);
    assert!(matches!(joined, Err(gpucomm::Error::Timeout { .. })), "{joined:?}");
    println!("rank {rank} has waited");
    // All end together, as nobody ends MPI.
    thread::sleep((12 * PATIENCE).saturating_sub(begin.elapsed()));
    process::exit(0);
}
