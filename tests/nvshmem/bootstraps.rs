//! How PEs find each other, as the library itself has it: that takes no GPU. What `ContextOptions`
//! and the emulator rest upon.

use std::ffi::c_int;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpucomm::sys::*;

use super::made;

/// How a child starts: `environment`, or `PE of N ID`, where the id is in hexadecimal, or `own`.
const HOW: &str = "GPUCOMM_TEST_BOOTSTRAP";
const LIMIT: Duration = Duration::from_secs(30);

/// This program, to start in one process.
fn child(how: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    as_child(&mut command, how, environment);
    command
}

fn as_child(command: &mut Command, how: &str, environment: &[(&str, &str)]) {
    command.args(["--exact", "bootstraps::start", "--ignored", "--nocapture"]);
    command.env(HOW, how).envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::null());
}

/// What all that run at the same time print of their starts, sorted; those that are not done in time, nothing.
fn said(commands: Vec<Command>, limit: Duration) -> Vec<String> {
    let children: Vec<Child> = commands.into_iter().map(|mut command| command.spawn().expect("a process")).collect();
    let deadline = Instant::now() + limit;
    let mut lines: Vec<String> = children.into_iter().flat_map(|child| finish(child, deadline)).collect();
    lines.sort();
    lines
}

fn finish(mut child: Child, deadline: Instant) -> Vec<String> {
    while child.try_wait().expect("a child").is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let output = child.wait_with_output().expect("what it prints");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let starts = text.lines().filter_map(|line| line.split_once("start: ").map(|(_, start)| start.to_owned()));
    starts.collect()
}

fn by_environment(environment: &[(&str, &str)]) -> Vec<String> {
    said(vec![child("environment", environment)], LIMIT)
}

/// `mpirun -n 2`; `None` where there is none.
fn by_mpirun(environment: &[(&str, &str)]) -> Option<Vec<String>> {
    let found = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        println!("skipped: there is no mpirun");
        return None;
    }
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]);
    command.arg(std::env::current_exe().expect("the path of this program"));
    as_child(&mut command, "environment", environment);
    Some(said(vec![command], LIMIT))
}

#[test]
#[ignore = "the body of child processes"]
fn start() {
    let Ok(how) = std::env::var(HOW) else { return };
    let parts: Vec<&str> = how.split(' ').collect();
    let code = match parts[..] {
        // SAFETY: no attributes are needed where there are no flags.
        ["environment"] => unsafe { nvshmemx_hostlib_init_attr(0, std::ptr::null_mut()) },
        [pe, n_pes, id] => {
            let number = |text: &str| -> c_int { text.parse().expect("a number") };
            let id = if id == "own" { new_id() } else { from_hex(id) };
            let mut attr = made(gpucommNvshmemAttrInit);
            // SAFETY: all are valid, and the id lives until the start is over.
            unsafe {
                nvshmemx_set_attr_uniqueid_args(number(pe), number(n_pes), &id, &mut attr);
                nvshmemx_hostlib_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &mut attr)
            }
        }
        _ => panic!("{HOW}={how}"),
    };
    // SAFETY: the status may be asked for at any time, and the numbers where it has them.
    let line = unsafe {
        match (code, nvshmemx_init_status()) {
            (code, NVSHMEM_STATUS_NOT_INITIALIZED) => format!("start: code {code}\n"),
            // Without a device, some versions say that they have failed.
            _ => format!("start: {} of {}\n", nvshmem_my_pe(), nvshmem_n_pes()),
        }
    };
    std::io::stdout().write_all(line.as_bytes()).expect("stdout");
    // SAFETY: ends the process. The library's exit handlers, which wait for other PEs, are not what this is about.
    unsafe { libc::_exit(0) }
}

fn new_id() -> nvshmemx_uniqueid_t {
    let mut id = made(gpucommNvshmemUniqueIdInit);
    // SAFETY: a place for one.
    assert_eq!(unsafe { nvshmemx_get_uniqueid(&mut id) }, NVSHMEMX_SUCCESS);
    id
}

fn to_hex(id: &nvshmemx_uniqueid_t) -> String {
    id.internal.iter().map(|&byte| format!("{:02x}", byte as u8)).collect()
}

fn from_hex(hex: &str) -> nvshmemx_uniqueid_t {
    let mut id = made(gpucommNvshmemUniqueIdInit);
    for (i, byte) in id.internal.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal") as _;
    }
    id
}

#[test]
fn an_id_that_is_sent() {
    // This process answers them.
    let id = to_hex(&new_id());
    let commands = (0..3).map(|pe| child(&format!("{pe} 3 {id}"), &[])).collect();
    assert_eq!(said(commands, LIMIT), ["0 of 3", "1 of 3", "2 of 3"]);
}

/// PEs that make an id each, of the same session, never meet: the ids differ. Why
/// `ContextOptions::with_session` sends one.
#[test]
fn a_session_alone_does_not_do() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let environment = [("NVSHMEM_BOOTSTRAP_UID_SESSION_ID", address.as_str())];
    let commands = (0..2).map(|pe| child(&format!("{pe} 2 own"), &environment)).collect();
    assert_eq!(said(commands, Duration::from_secs(5)), ["code 7"], "PE 0 waits");
}

#[test]
fn without_a_launcher_there_is_one_pe() {
    assert_eq!(by_environment(&[]), ["0 of 1"]);
    assert_eq!(by_environment(&[("NVSHMEM_BOOTSTRAP_PMI", "PMI-2")]), ["0 of 1"]);
    // Numbers mean nothing without somebody to talk to.
    assert_eq!(by_environment(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]), ["0 of 1"]);
    // A plug-in by its name, for which the start must give no attributes.
    let plugin = [("NVSHMEM_BOOTSTRAP", "plugin"), ("NVSHMEM_BOOTSTRAP_PLUGIN", "nvshmem_bootstrap_pmi.so.3")];
    assert_eq!(by_environment(&plugin), ["0 of 1"]);
}

#[test]
fn what_there_is_none_of_is_an_error() {
    for environment in [
        &[("NVSHMEM_BOOTSTRAP", "quark")],
        &[("NVSHMEM_BOOTSTRAP", "UID")],
        &[("NVSHMEM_BOOTSTRAP_PMI", "PMI-3")],
        &[("NVSHMEM_BOOTSTRAP", "plugin")],
    ] {
        assert_eq!(by_environment(environment), ["code 7"], "{environment:?}");
    }
}

/// Open MPI is found where the library is told to ask MPI, and not by PMI: each process is alone then.
#[test]
fn under_mpirun() {
    if let Some(said) = by_mpirun(&[("NVSHMEM_BOOTSTRAP", "MPI")]) {
        assert_eq!(said, ["0 of 2", "1 of 2"]);
        assert_eq!(by_mpirun(&[]).expect("it was there"), ["0 of 1", "0 of 1"]);
    }
}
