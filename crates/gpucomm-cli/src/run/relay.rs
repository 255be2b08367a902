//! A thread that passes on what ranks write.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::lines::Lines;
use super::sink::Sink;
use crate::failure::{Failure, Result};

/// How long to sleep before looking whether all processes are gone.
const LOOK: Duration = Duration::from_millis(100);

/// One stream of one rank.
pub struct Stream {
    pipe: File,
    who: usize,
    prefix: Vec<u8>,
    lines: Lines,
}

impl Stream {
    /// `kind` keeps the streams of a rank apart: 0 or 1.
    pub fn new(rank: usize, kind: usize, pipe: impl Into<OwnedFd>) -> Self {
        let prefix = format!("[{rank}] ").into_bytes();
        Self { pipe: File::from(pipe.into()), who: 2 * rank + kind, prefix, lines: Lines::default() }
    }

    /// Reads what is there and shows it; false when nothing more comes.
    fn pass(&mut self, buffer: &mut [u8], sink: &Sink) -> io::Result<bool> {
        match self.pipe.read(buffer) {
            Ok(read) if read > 0 => {
                sink.write(|block| {
                    self.lines.push(&buffer[..read], |text| block.put(self.who, &self.prefix, text));
                })?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            _ => {
                self.end(sink)?;
                Ok(false)
            }
        }
    }

    fn end(&mut self, sink: &Sink) -> io::Result<()> {
        let rest = self.lines.end();
        sink.write(|block| block.end(self.who, &self.prefix, &rest))
    }
}

pub struct Relay {
    thread: JoinHandle<io::Result<()>>,
    over: Arc<AtomicBool>,
}

impl Relay {
    /// Passes on what comes in `streams` to `sink`. Where that is slow, so are the ranks: at most a pipe and a line of each are kept.
    pub fn start(streams: Vec<Stream>, sink: Sink) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = thread::Builder::new().name("gpucomm-output".into()).spawn(move || relay(streams, &sink, &seen));
        let thread = thread.map_err(|error| Failure::run(format!("no thread for the output of ranks: {error}")))?;
        Ok(Self { thread, over })
    }

    /// Says that whoever could write is gone: what is in the pipes now is all.
    pub fn over(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Why something was not written, if it is finished; not where whoever reads has gone.
    pub fn lost(self) -> Option<io::Error> {
        let done = self.thread.is_finished().then(|| self.thread.join())?;
        done.ok()?.err().filter(|error| error.kind() != ErrorKind::BrokenPipe)
    }
}

fn relay(mut streams: Vec<Stream>, sink: &Sink, over: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    while !streams.is_empty() {
        let last = over.load(Ordering::Acquire);
        let ready = ready(&streams, if last { Duration::ZERO } else { LOOK });
        if last && !ready.contains(&true) {
            // Somebody who is none of ours holds the other end.
            break;
        }
        let mut at = 0;
        let mut done = Ok(());
        streams.retain_mut(|stream| {
            at += 1;
            !ready[at - 1]
                || stream.pass(&mut buffer, sink).unwrap_or_else(|error| {
                    done = Err(error);
                    false
                })
        });
        // Our output is closed, or has no room. This closes the pipes of the ranks, so that their writes fail as well.
        done?;
    }
    streams.iter_mut().try_for_each(|stream| stream.end(sink))
}

/// Which of the streams have something, or an end; waits for the first for so long.
fn ready(streams: &[Stream], wait: Duration) -> Vec<bool> {
    let asked = |stream: &Stream| libc::pollfd { fd: stream.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut all: Vec<_> = streams.iter().map(asked).collect();
    // SAFETY: `all` has so many entries, whose descriptors are open.
    let found = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, wait.as_millis() as i32) };
    all.iter().map(|entry| found > 0 && entry.revents != 0).collect()
}
