//! Signals that ask a program to end: each test starts this program again, to have them sent to a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use gpucomm::signals::Termination;
use gpucomm::{Clique, Device, DeviceBuffer, Error, Stream};
use libc::{SIGINT, SIGKILL, SIGSEGV, SIGTERM, SIGUSR1};

#[path = "support/slower.rs"]
mod slower;

use slower::slower;

const ROLE: &str = "GPUCOMM_TEST_ROLE";

/// More than what counts as once.
const LATER: Duration = Duration::from_millis(1200);

/// This program in the role of somebody, who has said `up`.
struct Other {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env("GPUCOMM_EMULATOR_QUIET", "1").stdout(Stdio::piped());
        let reset = || {
            // SAFETY: between fork and exec, the only thread says that a signal does what it does by default.
            unsafe { libc::signal(SIGINT, libc::SIG_DFL) };
            Ok(())
        };
        // SAFETY: `reset` makes a system call alone.
        unsafe { command.pre_exec(reset) };
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut other = Self { child, out };
        other.hear("up");
        other
    }

    /// Waits for a line.
    fn hear(&mut self, what: &str) {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "it has ended without {what:?}");
        }
    }

    fn send(&self, signal: i32) {
        // SAFETY: a signal for a child that is not waited for yet.
        unsafe { libc::kill(i32::try_from(self.child.id()).unwrap(), signal) };
    }

    fn end(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > slower(30.0) {
                self.child.kill().unwrap();
                panic!("it does not end");
            }
            sleep(Duration::from_millis(5));
        };
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        (status, text)
    }
}

/// What the other process does.
#[test]
#[ignore = "started by the other tests"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.as_str() {
        "looks" => {
            let termination = Termination::on(&[SIGTERM, SIGINT]).unwrap();
            assert!(!termination.wait_timeout(Duration::from_millis(30)) && termination.elapsed().is_none());
            println!("up");
            assert!(termination.clone().wait_timeout(slower(20.0)));
            // What comes right behind it changes nothing.
            sleep(Duration::from_millis(500));
            println!("signal {}", termination.signal().unwrap());
            assert!(termination.elapsed().unwrap() >= Duration::from_millis(500));
        }
        "does not look" => {
            let _termination = Termination::on(&[SIGTERM, SIGUSR1]).unwrap();
            println!("up");
            sleep(slower(20.0));
        }
        "has let go" => {
            drop(Termination::new().unwrap());
            println!("up");
            sleep(slower(20.0));
        }
        "goes on" => {
            let termination = Termination::on(&[SIGUSR1]).unwrap();
            println!("up");
            for _ in 0..2 {
                assert!(termination.wait_timeout(slower(20.0)));
                termination.forget();
                assert!(!termination.is_requested());
                println!("once");
            }
        }
        "hangs" => hangs(true),
        "is done" => hangs(false),
        _ => panic!("{role}"),
    }
}

/// Rank 0 waits for a message of rank 1, which comes after a time if at all.
fn hangs(forever: bool) {
    let clique = Clique::init_all(&Device::all().unwrap()[..2]).unwrap();
    let termination = Termination::new().unwrap();
    let grace = termination.abort_after(Duration::from_millis(300), clique.ranks()).unwrap();
    std::thread::scope(|scope| {
        let rank = clique.rank(0);
        let waits = scope.spawn(move || -> gpucomm::Result<()> {
            let stream = Stream::new(rank.device())?;
            let mut x = DeviceBuffer::<f32>::zeroed(&stream, 3)?;
            rank.recv(&mut x, 1, &stream)?;
            stream.synchronize()
        });
        println!("up");
        assert!(termination.wait_timeout(slower(20.0)));
        if !forever {
            // It is not late any more.
            drop(grace);
            sleep(Duration::from_millis(600));
            let other = clique.rank(1);
            let stream = Stream::new(other.device()).unwrap();
            let x = DeviceBuffer::from_slice(&stream, &[1f32; 3]).unwrap();
            other.send(&x, 0, &stream).unwrap();
            stream.synchronize().unwrap();
            waits.join().unwrap().unwrap();
            println!("done");
            return;
        }
        match waits.join().unwrap() {
            Err(Error::Aborted { reason, .. }) => println!("aborted: {reason}"),
            other => panic!("{other:?}"),
        }
        assert!(termination.elapsed().unwrap() >= Duration::from_millis(300));
    });
    if forever {
        assert!(clique.ranks().iter().all(|rank| !rank.is_active()));
    }
}

#[test]
fn who_looks_ends_by_itself() {
    let other = Other::start("looks");
    other.send(SIGTERM);
    sleep(Duration::from_millis(50));
    // As from a launcher that has got it too; and another one.
    other.send(SIGTERM);
    other.send(SIGINT);
    let (status, text) = other.end();
    assert!(status.success(), "{status}: {text}");
    assert!(text.contains(&format!("signal {SIGTERM}")), "{text}");
}

#[test]
fn a_second_one_ends_who_does_not_look() {
    let other = Other::start("does not look");
    other.send(SIGTERM);
    sleep(LATER);
    // Another signal is a first one.
    other.send(SIGUSR1);
    sleep(Duration::from_millis(100));
    other.send(SIGTERM);
    let (status, text) = other.end();
    assert_eq!(status.signal(), Some(SIGTERM), "{status}: {text}");
}

#[test]
fn without_a_handle_the_first_one_ends_the_process() {
    let other = Other::start("has let go");
    other.send(SIGTERM);
    let (status, text) = other.end();
    assert_eq!(status.signal(), Some(SIGTERM), "{status}: {text}");
}

#[test]
fn what_is_forgotten_may_come_again() {
    let mut other = Other::start("goes on");
    other.send(SIGUSR1);
    other.hear("once");
    sleep(LATER);
    other.send(SIGUSR1);
    other.hear("once");
    let (status, text) = other.end();
    assert!(status.success(), "{status}: {text}");
}

#[test]
fn a_rank_that_hangs_gets_through() {
    if Device::count().unwrap_or(0) < 2 {
        return;
    }
    let other = Other::start("hangs");
    other.send(SIGTERM);
    let (status, text) = other.end();
    assert!(status.success(), "{status}: {text}");
    assert!(text.contains("aborted: SIGTERM came, and 300ms have passed since"), "{text}");
}

#[test]
fn what_ends_in_time_is_not_aborted() {
    if Device::count().unwrap_or(0) < 2 {
        return;
    }
    let other = Other::start("is done");
    other.send(SIGTERM);
    let (status, text) = other.end();
    assert!(status.success() && text.contains("done"), "{status}: {text}");
}

#[test]
fn signals_that_ask_nobody_to_end_are_refused() {
    for (signals, got) in [(&[SIGKILL][..], "SIGKILL"), (&[SIGTERM, SIGSEGV], "SIGSEGV"), (&[-1], "-1"), (&[], "none")]
    {
        match Termination::on(signals) {
            Err(error @ Error::InvalidArgument { what: "signals", .. }) => {
                let text = error.to_string();
                assert!(text.contains("Termination::on") && text.contains("SIGTERM") && text.contains(got), "{text}");
            }
            other => panic!("{signals:?}: {other:?}"),
        }
    }
}
