//! `gpucomm run`: signals reach the ranks.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};

use libc::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

use crate::harness::finish;
use crate::run::{launcher, sorted, spawn, until};

fn send(pid: u32, signal: i32) {
    // SAFETY: a signal for a child that is not waited for yet.
    assert_eq!(unsafe { libc::kill(i32::try_from(pid).unwrap(), signal) }, 0);
}

/// Ranks that say what comes to them, until `TERM`.
struct Ranks {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Ranks {
    fn start(options: &[&str], traps: &str) -> Self {
        // Shells tell of children that signals have ended.
        let script = format!("exec 2>/dev/null; {traps}; echo up $$; while :; do sleep 0.05; done");
        let mut child = spawn(&[options, &["-n", "2", "--", "sh", "-c", &script]].concat());
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// What both say next.
    fn say(&mut self) -> [String; 2] {
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            self.out.read_line(line).unwrap();
            line.truncate(line.trim_end().len());
        }
        lines.sort();
        lines
    }

    fn pids(&mut self) -> [u32; 2] {
        self.say().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }
}

#[test]
fn signals_are_passed_on() {
    let traps = "for s in INT HUP QUIT USR1 USR2; do trap \"echo $s\" $s; done; trap 'echo TERM; exit 0' TERM";
    let mut ranks = Ranks::start(&[], traps);
    ranks.pids();
    for (signal, name) in
        [(SIGUSR1, "USR1"), (SIGUSR2, "USR2"), (SIGHUP, "HUP"), (SIGQUIT, "QUIT"), (SIGINT, "INT"), (SIGTERM, "TERM")]
    {
        send(ranks.child.id(), signal);
        assert_eq!(ranks.say(), [format!("[0] {name}"), format!("[1] {name}")]);
    }
    // All have ended well, as they were asked to.
    let output = finish(ranks.child);
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""));
}

#[test]
fn who_is_told_to_end_is_not_started_again_and_not_told_twice() {
    let mut ranks =
        Ranks::start(&["--max-restarts", "5"], "[ $RANK = 0 ] || trap 'echo once; sleep 0.5; echo done; exit 0' TERM");
    ranks.pids();
    send(ranks.child.id(), SIGTERM);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut ranks.out, &mut rest).unwrap();
    let output = finish(ranks.child);
    assert_eq!(output.code, Some(143), "{}", output.err);
    assert_eq!(sorted(&rest), ["[1] done", "[1] once"]);
    assert!(
        output.err.ends_with("was killed by signal 15 (SIGTERM) after signal 15 (SIGTERM) was passed on\n"),
        "{}",
        output.err
    );
}

#[test]
fn a_second_interrupt_kills() {
    let mut ranks = Ranks::start(&["--grace", "1000"], "trap 'echo INT' INT; trap '' TERM");
    ranks.pids();
    send(ranks.child.id(), SIGINT);
    assert_eq!(ranks.say(), ["[0] INT", "[1] INT"]);
    send(ranks.child.id(), SIGINT);
    let output = finish(ranks.child);
    assert_eq!(output.code, Some(130), "{}", output.err);
    assert_eq!(output.err, "gpucomm: a second SIGINT: all ranks are killed\n");
}

#[test]
fn ranks_stop_and_go_on_with_the_launcher() {
    let state = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().chars().next().unwrap()
    };
    let mut ranks = Ranks::start(&[], "trap 'exit 0' TERM");
    let pids = ranks.pids();
    let all = [ranks.child.id(), pids[0], pids[1]];
    send(all[0], SIGTSTP);
    // A shell that is starting a process is not stopped itself, but waits for that, which is.
    until("all are stopped", || all.iter().all(|pid| matches!(state(*pid), 'T' | 'D')));
    send(all[0], SIGCONT);
    until("all go on", || all.iter().all(|pid| state(*pid) != 'T'));
    send(all[0], SIGTERM);
    assert_eq!(finish(ranks.child).code, Some(0));
}

#[test]
fn what_is_ignored_stays_ignored() {
    use std::os::unix::process::CommandExt;

    let mut command = launcher(&["-n", "1", "--", "sh", "-c", "kill -HUP $PPID; kill -HUP $$; echo still here"]);
    let ignore = || {
        // SAFETY: between fork and exec, the only thread has a signal ignored, as nohup does.
        unsafe { libc::signal(SIGHUP, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: `ignore` makes a system call alone.
    unsafe { command.pre_exec(ignore) };
    let output = finish(command.spawn().unwrap());
    assert_eq!((output.code, output.out.as_str()), (Some(0), "[0] still here\n"), "{}", output.err);
}
