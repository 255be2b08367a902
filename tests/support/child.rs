//! Child processes: what they print, and how they end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A child process and what it prints.
#[derive(Debug)]
pub struct Child {
    pub what: String,
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
    #[allow(dead_code, reason = "some tests look at all children at once")]
    #[track_caller]
    pub fn assert_success(&self) {
        assert!(self.status.success(), "{}: {}\n{}", self.what, self.status, self.text);
    }
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

impl Child {
    /// Waits until the child prints a line that holds `marker`.
    #[allow(dead_code, reason = "some tests wait for the end only")]
    #[track_caller]
    pub fn wait_for(&mut self, marker: &str, within: Duration) {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.keep(&line);
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

    /// How the process has ended, if it has. Does not wait.
    #[allow(dead_code, reason = "some tests wait for one child at a time")]
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("the state of a child")
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
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.kill();
                self.collect();
                return Err(std::mem::take(&mut self.text));
            }
            // The pipes close with the process, unless a grandchild keeps one open.
            match self.lines.recv_timeout(left.min(Duration::from_millis(100))) {
                Ok(line) => self.keep(&line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.collect();
        Ok(Finished { what: self.what.clone(), status, text: std::mem::take(&mut self.text) })
    }

    fn collect(&mut self) {
        // The pipes close with the process; a grandchild that keeps one open must not keep the test.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(2)) {
            self.keep(&line);
        }
    }

    fn keep(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
