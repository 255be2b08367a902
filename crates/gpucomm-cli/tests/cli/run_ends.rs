//! `gpucomm run`: how ranks end, and all with them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::harness::finish;
use crate::run::{launcher, shell, sorted, spawn, until};
use crate::slower::slower;

/// Whether a process is there, and has not ended.
pub fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// A directory of a test, which is removed at its end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("gpucomm-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        Self(place)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_code_is_that_of_the_rank_that_failed() {
    for (script, code, says) in [
        ("[ $RANK != 1 ] || exit 3", 3, "exited with status 3"),
        ("[ $RANK != 1 ] || exit 255", 255, "exited with status 255"),
        ("[ $RANK != 1 ] || kill -9 $$", 137, "was killed by signal 9 (SIGKILL)"),
        ("[ $RANK != 1 ] || kill -SEGV $$", 139, "was killed by signal 11 (SIGSEGV)"),
    ] {
        let output = shell(&["-n", "2"], script);
        assert_eq!(output.code, Some(code), "{script}: {}", output.err);
        let [line] = &output.err.lines().collect::<Vec<_>>()[..] else { panic!("{script}: {}", output.err) };
        assert!(line.starts_with("gpucomm: rank 1 (process ") && line.contains(says), "{script}: {line}");
    }
}

#[test]
fn the_first_failure_ends_the_others_asked_or_killed() {
    let place = Place::new("failure");
    // Rank 0 ends when it is asked to, and has time for it; rank 2 does not hear; rank 1 fails when both are there.
    let script = r#"cd "$1"
        case $RANK in
            0) trap 'sleep 0.1; echo bye; exit 0' TERM ;;
            2) trap '' TERM INT HUP ;;
            1) while [ ! -e 0 ] || [ ! -e 2 ]; do sleep 0.02; done; exit 5 ;;
        esac
        : > $RANK
        while :; do sleep 0.05; done"#;
    let start = Instant::now();
    let child = spawn(&["-n", "3", "--grace", "1.5", "--", "sh", "-c", script, "sh", place.text()]);
    let output = finish(child);
    let took = start.elapsed();
    assert_eq!(output.code, Some(5), "{}", output.err);
    assert_eq!(output.out, "[0] bye\n");
    assert!(
        output.err.contains("rank 1 (process ") && output.err.contains("exited with status 5; the others are ended")
    );
    assert!(took >= Duration::from_millis(1500) && took < slower(30.0), "{took:?}");
}

/// The rank that ends first has often failed because of another one, whose error is still to come.
#[test]
fn the_others_have_a_moment_to_say_why() {
    let place = Place::new("moment");
    let script = r#"cd "$1"
        case $RANK in
            0) : > 0; sleep 0.1; echo 'the cause' >&2; exit 4 ;;
            1) while [ ! -e 0 ]; do sleep 0.02; done; exit 3 ;;
        esac"#;
    let output = finish(spawn(&["-n", "2", "--", "sh", "-c", script, "sh", place.text()]));
    assert_eq!(output.code, Some(3), "{}", output.err);
    assert!(output.err.contains("[0] the cause\n"), "{}", output.err);
}

#[test]
fn what_ranks_have_started_ends_with_them_in_sessions_of_their_own_too() {
    for (end, code) in [("exit 0", 0), ("exit 7", 7)] {
        let script = format!(
            "sleep 1000 & echo $!; setsid sleep 1000 & sleep 0.3; pgrep -P $$ | cat; setsid sh -c 'echo $$; trap \"\" TERM; while :; do sleep 1; done' & sleep 0.3; {end}"
        );
        let output = shell(&["-n", "2", "--grace", "0.5"], &script);
        assert_eq!(output.code, Some(code), "{}", output.err);
        let pids: Vec<_> = output.out.lines().map(|line| line[4..].trim()).collect();
        assert!(pids.len() >= 4, "{}", output.out);
        for pid in pids {
            assert!(!lives(pid), "process {pid} is still there");
        }
    }
}

#[test]
fn a_launcher_that_is_killed_takes_all_with_it() {
    // Each rank has a child, which knows nothing of the launcher; neither cares for signals.
    let script = "trap '' TERM HUP INT; sleep 1000 & echo $$ $!; wait; wait; sleep 1000";
    let mut child = spawn(&["-n", "3", "--", "sh", "-c", script]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut pids = Vec::new();
    for _ in 0..3 {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        pids.extend(line.split_whitespace().skip(1).map(str::to_owned));
    }
    assert_eq!(pids.len(), 6);
    assert!(pids.iter().all(|pid| lives(pid)));
    child.kill().unwrap();
    child.wait().unwrap();
    until("all are gone", || !pids.iter().any(|pid| lives(pid)));
}

#[test]
fn the_others_go_on() {
    let script = "[ $RANK = 1 ] && exit 4
        sleep 0.5
        [ $RANK = 2 ] && kill -ABRT $$
        echo done";
    let output = shell(&["-n", "3", "--keep-going"], script);
    assert_eq!((output.code, output.out.trim()), (Some(4), "[0] done"), "{}", output.err);
    assert!(output.err.contains("status 4; the others go on") && output.err.contains("rank 2"), "{}", output.err);
    // One or the other.
    let output = shell(&["-n", "2", "--keep-going", "--max-restarts", "1"], "true");
    assert_eq!(output.code, Some(2), "{}", output.err);
}

#[test]
fn all_start_again_with_new_variables() {
    let script = "echo $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT $TORCHELASTIC_RUN_ID
        [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0
        [ $RANK = 1 ] && exit 4
        while :; do sleep 0.05; done";
    let output = shell(&["-n", "2", "--max-restarts", "3"], script);
    assert_eq!(output.code, Some(0), "{}", output.err);
    let mut lines: Vec<_> = sorted(&output.out).into_iter().map(|line| line[4..].to_owned()).collect();
    lines.sort();
    // Rank 0 may be ended before it has said anything, but not in the last start.
    lines.dedup();
    let fields: Vec<Vec<_>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    assert_eq!(fields.iter().map(|fields| fields[0]).collect::<Vec<_>>(), ["0", "1", "2"], "{lines:?}");
    assert!(fields.iter().all(|fields| fields[1] == "3" && fields[3] == fields_of(&lines[0])[3]), "{lines:?}");
    assert!(fields[0][2] != fields[1][2] && fields[1][2] != fields[2][2], "{lines:?}");
    assert!(output.err.contains("status 4; all ranks are started again (1 of 3)"), "{}", output.err);
    assert!(output.err.contains("status 4; all ranks are started again (2 of 3)"), "{}", output.err);

    let output = shell(&["-n", "2", "--max-restarts", "1"], "echo; [ $RANK = 0 ] || exit 6");
    assert_eq!(output.code, Some(6), "{}", output.err);
    assert_eq!(output.out.matches("[1]").count(), 2, "{}", output.out);
    assert_eq!(output.err.lines().count(), 2, "{}", output.err);
}

fn fields_of(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn what_cannot_be_started() {
    for (args, code, says) in [
        (
            &["-n", "2", "--max-restarts", "2", "--", "/no/such/program"][..],
            127,
            "rank 0 cannot be started: /no/such/program: ",
        ),
        (&["-n", "2", "no-such-program-at-all", "--lr", "1"], 127, "no-such-program-at-all"),
        (&["-n", "2", "--", "/etc/passwd"], 126, "/etc/passwd"),
        (&["-n", "0", "--", "true"], 2, "from 1"),
        (&["-n", "many", "--", "true"], 2, "many"),
        (&["-n", "2"], 2, "PROGRAM"),
        (&["-n", "2", "--frobnicate", "--", "true"], 2, "--frobnicate"),
        (&["-n", "2", "--grace", "-1", "--", "true"], 2, "-1"),
        (&["-n", "2", "--env", "X", "--", "true"], 2, "NAME=VALUE"),
        (&["-n", "2", "--env", "RANK=1", "--", "true"], 2, "for each rank"),
        (&["-n", "3", "--nodes", "2", "--print", "srun", "--", "true"], 2, "equally many"),
        (&["-n", "2", "--nodes", "2", "--", "true"], 2, "--print srun"),
        (&["-n", "2", "--print", "qsub", "--", "true"], 2, "qsub"),
        (&["-n", "2", "--print", "srun", "--max-restarts", "1", "--", "true"], 2, "--max-restarts"),
        (&["-n", "2", "--nodes", "2", "--node-rank", "2", "--master", "a:1", "--", "true"], 2, "no node 2"),
        (&["-n", "2", "--nodes", "2", "--node-rank", "1", "--", "true"], 2, "--master"),
    ] {
        let output = finish(launcher(args).spawn().unwrap());
        assert_eq!(output.code, Some(code), "{args:?}: {}", output.err);
        assert_eq!(output.err.lines().count(), 1, "{args:?}: {}", output.err);
        assert!(output.err.starts_with("gpucomm: ") && output.err.contains(says), "{args:?}: {}", output.err);
        assert_eq!(output.out, "", "{args:?}");
    }
}
