//! Ranks as processes: the test program starts itself again with a role.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Device, UniqueId};

/// In the environment of a rank.
pub const ROLE: &str = "GPUCOMM_TEST_ROLE";
const RANK: &str = "GPUCOMM_TEST_RANK";
const SIZE: &str = "GPUCOMM_TEST_SIZE";
const ID: &str = "GPUCOMM_TEST_ID";

/// What a child process was started as.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    pub rank: usize,
    pub size: usize,
    pub id: UniqueId,
}

impl Role {
    /// The role of this process, if it is a child and its role is called `name`.
    pub fn of_this_process(name: &str) -> Option<Self> {
        let role = std::env::var(ROLE).ok()?;
        if role != name {
            return None;
        }
        let number = |key: &str| -> usize { std::env::var(key).expect(key).parse().expect(key) };
        let hex = std::env::var(ID).expect(ID);
        let bytes: Vec<u8> =
            (0..128).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("an id in hex")).collect();
        let id = UniqueId::from_bytes(bytes.try_into().expect("128 bytes"));
        Some(Self { rank: number(RANK), size: number(SIZE), id })
    }

    /// The one that this process sees, or that of its rank where it sees several.
    pub fn device(&self) -> gpucomm::Result<Device> {
        Device::new(if Device::count()? == 1 { 0 } else { self.rank })
    }

    /// The communicator of this rank.
    #[allow(dead_code, reason = "some tests have options")]
    pub fn join(&self) -> gpucomm::Result<Communicator> {
        self.join_with(&InitOptions::default())
    }

    /// The communicator of this rank, with options, which are the same on all.
    pub fn join_with(&self, options: &InitOptions) -> gpucomm::Result<Communicator> {
        // SAFETY: all processes of one test run the same role and issue the same operations in the same order, except in
        // tests of ranks that die or stay away, where no rank issues an operation that another contradicts.
        unsafe { Communicator::init_rank_with(self.device()?, self.size, &self.id, self.rank, options) }
    }
}

/// A child process and what it prints.
#[derive(Debug)]
pub struct Child {
    what: String,
    process: std::process::Child,
    lines: Receiver<String>,
    text: String,
}

/// How a child process ended.
#[derive(Debug)]
pub struct Finished {
    pub what: String,
    pub status: ExitStatus,
    pub text: String,
}

impl Finished {
    #[track_caller]
    pub fn assert_success(&self) {
        assert!(self.status.success(), "{}: {}\n{}", self.what, self.status, self.text);
    }
}

/// Starts the hidden test `test` (its full path) of this program as one rank, in the role `role`.
pub fn spawn(test: &str, role: &str, (rank, size): (usize, usize), id: &UniqueId, env: &[(&str, &str)]) -> Child {
    let hex: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(RANK, rank.to_string()).env(SIZE, size.to_string()).env(ID, hex);
    command.envs(super::environment());
    command.envs(env.iter().copied());
    start(format!("{role}, rank {rank} of {size}"), command)
}

/// Starts a command, and reads what it prints.
pub fn start(what: String, mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("start this program again");
    let (sender, lines) = channel();
    let outputs: [Box<dyn Read + Send>; 2] = [
        Box::new(process.stdout.take().expect("a pipe for stdout")),
        Box::new(process.stderr.take().expect("a pipe for stderr")),
    ];
    for output in outputs {
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(|line| line.ok()) {
                let _ = sender.send(line);
            }
        });
    }
    Child { what, process, lines, text: String::new() }
}

/// Starts all ranks of a role.
pub fn spawn_all(test: &str, role: &str, size: usize, env: &[(&str, &str)]) -> Vec<Child> {
    let id = UniqueId::new().expect("a unique id");
    (0..size).map(|rank| spawn(test, role, (rank, size), &id, env)).collect()
}

/// Waits for all; panics if one fails.
pub fn all_succeed(children: Vec<Child>, within: Duration) {
    let deadline = Instant::now() + within;
    let mut children: Vec<Child> = children;
    let ends: Vec<Finished> =
        children.drain(..).map(|child| child.finish(deadline.saturating_duration_since(Instant::now()))).collect();
    for end in &ends {
        end.assert_success();
    }
}

impl Child {
    /// Waits until the child prints a line that holds `marker`.
    #[track_caller]
    pub fn wait_for(&mut self, marker: &str, within: Duration) {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.text.push_str(&line);
                    self.text.push('\n');
                    if line.contains(marker) {
                        return;
                    }
                }
                Err(error) => {
                    self.kill();
                    panic!("{}: no {marker:?} within {within:?} ({error}); it printed:\n{}", self.what, self.text);
                }
            }
        }
    }

    /// Ends the process at once, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Waits for the end of the process; one that takes longer than `within` is killed, and fails the test.
    #[track_caller]
    pub fn finish(self, within: Duration) -> Finished {
        let what = self.what.clone();
        self.end(within).unwrap_or_else(|text| panic!("{what}: not done within {within:?}; it printed:\n{text}"))
    }

    /// Waits for the end of the process; one that takes longer than `within` is killed, and what it printed is the error.
    pub fn end(mut self, within: Duration) -> Result<Finished, String> {
        let deadline = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.process.try_wait().expect("the state of a child") {
                break status;
            }
            if Instant::now() >= deadline {
                self.kill();
                self.collect();
                return Err(std::mem::take(&mut self.text));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.collect();
        Ok(Finished { what: self.what.clone(), status, text: std::mem::take(&mut self.text) })
    }

    fn collect(&mut self) {
        // The pipes close with the process; a grandchild that keeps one open must not keep the test.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(2)) {
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
