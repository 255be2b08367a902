//! Under launchers that others use.

use std::process::Command;

use crate::child::Finished;
use crate::launchers::{rank, run};
use crate::skip::skip;

fn all_have_the_sum(finished: &Finished) {
    for rank in 0..4 {
        assert!(finished.text.contains(&format!("rank {rank} of 4 has the sum")), "{}", finished.text);
    }
}

#[test]
fn mpirun_of_open_mpi() {
    let version = Command::new("mpirun").arg("--version").output();
    if !version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("Open MPI")) {
        return skip("Open MPI's mpirun was not tried", "it is not installed");
    }
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", "4"]).args(rank());
    let finished = run(command, "meet", 60.0);
    finished.assert_success();
    all_have_the_sum(&finished);
}

/// `None` where there can be no cluster.
fn slurm(role: &str) -> Option<Finished> {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/slurm"));
    command.args(["--", "srun", "--mpi=pmix", "-n", "4", "--overcommit"]).args(rank());
    let finished = run(command, role, 90.0);
    if finished.status.code() == Some(77) {
        skip("Slurm's srun was not tried", finished.text.trim());
        return None;
    }
    Some(finished)
}

#[test]
fn srun_of_slurm() {
    let Some(finished) = slurm("meet") else { return };
    finished.assert_success();
    all_have_the_sum(&finished);
}

/// Slurm would end the whole step for a rank that dies and has not left PMIx.
#[test]
fn slurm_lets_survivors_go_on() {
    let Some(finished) = slurm("dies after all have met") else { return };
    assert_eq!(finished.status.code(), Some(137), "{}", finished.text);
    for rank in [0, 2, 3] {
        assert!(finished.text.contains(&format!("rank {rank} goes on")), "{}", finished.text);
    }
}
