//! PEs that `mpirun` of Open MPI starts.

use std::process::{Command, Stdio};

use super::child::start;
use super::parent::{End, Meeting, each_size, name_of, run_as, skip, wait_for};
use super::seat::Seat;
use super::slower::slower;

/// Runs `body` as each PE of each of these numbers, all of which `mpirun` has started, with more in the environment; `check` looks at how it has ended, with
/// what all have printed, and the number of them. Where there is no `mpirun`, it is skipped.
pub fn under_mpirun<F: Fn(&Seat)>(sizes: &[usize], environment: &[(&str, &str)], body: F, check: impl Fn(&End, usize)) {
    if let Some(seat) = Seat::of_this_process() {
        return body(&seat);
    }
    let test = name_of::<F>();
    let found = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return skip(test, "there is no mpirun");
    }
    each_size(test, sizes, |size| {
        let meeting = Meeting::new();
        let mut command = Command::new("mpirun");
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", &size.to_string()]);
        command.arg(std::env::current_exe().expect("the path of this program"));
        // Where it has its own files: of two at once, the first that ends removes a directory that both have.
        command.env("OMPI_MCA_orte_tmpdir_base", &meeting.0);
        run_as(&mut command, test, &meeting);
        command.envs(environment.iter().copied());
        let job = vec![start(format!("{test}: mpirun -n {size}"), command)];
        check(&wait_for(job, slower(90.0), |_| false)[0], size);
    });
}
