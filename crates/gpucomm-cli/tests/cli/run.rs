//! `gpucomm run`: what ranks find, and what becomes of what they write.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Output, command, finish};
use crate::slower::slower;

/// The launcher.
pub fn launcher(args: &[&str]) -> Command {
    with_default_signals(command(&[&["run"], args].concat()))
}

/// A program whose signals do what they do by default. A shell that runs the tests in the background
/// may ignore them.
pub fn with_default_signals(mut command: Command) -> Command {
    let reset = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP] {
            // SAFETY: between fork and exec, the only thread says that a signal does what it does by default.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: `reset` makes system calls alone.
    unsafe { command.pre_exec(reset) };
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn spawn(args: &[&str]) -> Child {
    launcher(args).spawn().expect("the launcher")
}

/// Runs `script` in a shell, once for each rank.
pub fn shell(options: &[&str], script: &str) -> Output {
    finish(spawn(&[options, &["--", "sh", "-c", script]].concat()))
}

/// Lines in an order of their own: ranks run side by side.
pub fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Waits until `done`, which `what` says.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < slower(30.0), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_program_of_the_current_directory_is_told_of() {
    let directory = std::env::temp_dir().join(format!("gpucomm-here-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("only-here"), "").unwrap();
    let output = finish(launcher(&["-n", "1", "only-here"]).current_dir(&directory).spawn().unwrap());
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(output.code, Some(127), "{}", output.err);
    assert!(
        output.err.contains("in the current directory") && output.err.contains("put ./ before it"),
        "{}",
        output.err
    );
}

#[test]
fn ranks_are_counted_by_node_as_torchrun_does() {
    for option in ["--nproc-per-node", "--nproc_per_node"] {
        let output = shell(&[option, "2"], "echo $WORLD_SIZE");
        assert_eq!((output.code, sorted(&output.out)), (Some(0), vec!["[0] 2", "[1] 2"]), "{}", output.err);
    }
}

/// They set the same variables, so a rank has to ask for more.
#[test]
fn who_has_started_ranks_is_named() {
    let output = finish(spawn(&["-n", "2", "--", env!("CARGO_BIN_EXE_gpucomm"), "doctor"]));
    // Rank 0 prints for all.
    assert!(output.out.contains("gpucomm run says rank 0 of 2"), "{}", output.out);
    assert!(!output.out.contains("torchrun"), "{}", output.out);
}

#[test]
fn each_line_has_its_rank() {
    let output = shell(&["-n", "3"], "echo out; echo; echo err $RANK >&2; printf 'last of %s' $RANK");
    assert_eq!(output.code, Some(0), "{}", output.err);
    assert_eq!(
        sorted(&output.out),
        ["[0] ", "[0] last of 0", "[0] out", "[1] ", "[1] last of 1", "[1] out", "[2] ", "[2] last of 2", "[2] out"]
    );
    assert_eq!(sorted(&output.err), ["[0] err 0", "[1] err 1", "[2] err 2"]);
    assert!(output.out.ends_with('\n'));
    let output = shell(&["-n", "2", "--no-prefix"], "printf x");
    assert_eq!((output.code, output.out.as_str()), (Some(0), "xx"));
}

#[test]
fn ranks_have_torchruns_variables_and_no_other_launchers() {
    const SCRIPT: &str = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $ROLE_RANK $NODE_RANK $MASTER_ADDR \
        $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_USE_AGENT_STORE $OURS $0 \
        ${OMPI_COMM_WORLD_RANK-none} ${PMI_SIZE-none} ${SLURM_PROCID-none} $SLURM_JOB_ID $MASTER_PORT $TORCHELASTIC_RUN_ID";
    let mut command = launcher(&["-n", "2", "--env", "OURS=a=b", "--", "sh", "-c", SCRIPT, "arg"]);
    command.env("OMPI_COMM_WORLD_RANK", "7").env("PMI_SIZE", "9").env("SLURM_PROCID", "5").env("SLURM_JOB_ID", "123");
    let output = finish(command.spawn().unwrap());
    assert_eq!(output.code, Some(0), "{}", output.err);
    let mut places = BTreeSet::new();
    for (rank, line) in sorted(&output.out).into_iter().enumerate() {
        let want = format!("[{rank}] {rank} 2 {rank} 2 0 {rank} 0 127.0.0.1 0 0 False a=b arg none none none 123 ");
        let place = line.strip_prefix(&want).unwrap_or_else(|| panic!("{line}"));
        places.insert(place.to_owned());
    }
    // A port, and an id, that are those of all ranks.
    let [place] = &places.iter().collect::<Vec<_>>()[..] else { panic!("{places:?}") };
    let (port, id) = place.split_once(' ').unwrap();
    assert!(port.parse::<u16>().unwrap() > 0 && id.len() == 32, "{place}");
}

#[test]
fn a_node_of_several_has_its_own_ranks() {
    let options = ["-n", "4", "--nodes", "2", "--node-rank", "1", "--master", "[::1]:29501"];
    let output =
        shell(&options, "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT");
    assert_eq!(output.code, Some(0), "{}", output.err);
    assert_eq!(sorted(&output.out), ["[2] 2 4 0 2 1 ::1 29501", "[3] 3 4 1 2 1 ::1 29501"]);
}

#[cfg(gpucomm_emulator)]
#[test]
fn there_are_as_many_ranks_as_devices() {
    let mut command = launcher(&["--", "sh", "-c", "echo $WORLD_SIZE ${GPUCOMM_EMULATOR_QUIET-unset}"]);
    command.env("GPUCOMM_EMULATOR_DEVICES", "3").env_remove("GPUCOMM_EMULATOR_QUIET");
    let output = finish(command.spawn().unwrap());
    // Whether a rank is quiet about the emulator is for the user to say, not for the launcher.
    assert_eq!(sorted(&output.out), ["[0] 3 unset", "[1] 3 unset", "[2] 3 unset"], "{}", output.err);
}

#[test]
fn rank_0_reads_our_input() {
    let mut child = launcher(&["-n", "2", "--", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo").unwrap();
    let output = finish(child);
    assert_eq!((output.code, output.out.as_str()), (Some(0), "[0] one\n[0] two\n"), "{}", output.err);
}

#[test]
fn lines_are_whole_and_nothing_is_lost() {
    const SCRIPT: &str =
        "i=0; while [ $i -lt 2000 ]; do echo line $i of $RANK and some more text to make it longer; i=$((i+1)); done";
    for mixed in [false, true] {
        // Both streams in one file, or output alone.
        let script = if mixed { format!("if [ $RANK = 1 ]; then exec 1>&2; fi; {SCRIPT}") } else { SCRIPT.to_owned() };
        let mut command = launcher(&["-n", "3", "--", "sh", "-c", &script]);
        let (mut reader, writer) = std::io::pipe().unwrap();
        if mixed {
            command.stderr(writer.try_clone().unwrap());
        }
        let child = command.stdout(writer).spawn().unwrap();
        drop(command);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(finish(child).code, Some(0));
        for rank in 0..3 {
            let prefix = format!("[{rank}] ");
            let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
            assert_eq!(lines.len(), 2000, "rank {rank}");
            for (i, line) in lines.iter().enumerate() {
                assert_eq!(*line, format!("line {i} of {rank} and some more text to make it longer"));
            }
        }
        assert_eq!(text.lines().count(), 6000);
    }
}

#[test]
fn a_megabyte_without_a_newline_and_bytes_that_are_no_text() {
    const SCRIPT: &str = r"case $RANK in
        0) head -c 1048576 /dev/zero | tr '\0' x ;;
        1) i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); done ;;
        2) printf '\377\000\376\n\001' ;;
    esac";
    let mut child = spawn(&["-n", "3", "--", "sh", "-c", SCRIPT]);
    let mut bytes = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(finish(child).code, Some(0));
    let of = |rank: u8| {
        let prefix = [b'[', b'0' + rank, b']', b' '];
        let lines = bytes.split(|byte| *byte == b'\n').filter_map(move |line| line.strip_prefix(&prefix));
        lines.collect::<Vec<_>>()
    };
    let long = of(0).concat();
    assert!(long.len() == 1 << 20 && long.iter().all(|byte| *byte == b'x'), "{} bytes", long.len());
    let numbers: Vec<_> = (0..300).map(|i| i.to_string()).collect();
    assert_eq!(of(1), numbers.iter().map(String::as_bytes).collect::<Vec<_>>());
    assert_eq!(of(2), [b"\xff\x00\xfe" as &[u8], b"\x01"]);
}

#[test]
fn who_closes_its_output_goes_on() {
    let output = shell(&["-n", "2"], "exec 1>&-; sleep 0.2; echo still here >&2; exec 2>&-; sleep 0.2");
    assert_eq!((output.code, output.out.as_str()), (Some(0), ""));
    assert_eq!(sorted(&output.err), ["[0] still here", "[1] still here"]);
}

#[test]
fn where_nobody_reads_nothing_piles_up_and_where_the_reader_is_gone_ranks_are_told() {
    let mut child = spawn(&["-n", "2", "--", "yes", "a line that comes again and again"]);
    std::thread::sleep(Duration::from_millis(700));
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
    let peak: usize = peak.trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 200 << 10, "{peak} KiB");
    let mut some = [0; 4096];
    child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    assert!(some.starts_with(b"[") && child.try_wait().unwrap().is_none());
    drop(child.stdout.take());
    let output = finish(child);
    // As without the launcher: by SIGPIPE.
    assert_eq!(output.code, Some(128 + libc::SIGPIPE), "{}", output.err);
    assert!(output.err.contains("was killed by signal 13 (SIGPIPE)"), "{}", output.err);
}

#[test]
fn output_that_cannot_be_written_is_told() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device without room");
    let mut launcher = launcher(&["-n", "1", "--", "sh", "-c", "echo a line"]);
    let output = finish(launcher.stdout(full).spawn().expect("the launcher"));
    assert_eq!(output.code, Some(1), "{}", output.err);
    let says = "gpucomm: the output of the ranks could not be written: No space left on device";
    assert!(output.err.contains(says), "{}", output.err);
}
