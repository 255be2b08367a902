//! The process that starts the ranks, passes messages between them, and notices when one dies.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::Message;
use crate::failure::{Failure, Result};
use crate::output;
use crate::perf::Outcome;
use crate::perf::progress::Progress;

/// From the moment all children are ready to the moment they start: time enough to tell them all.
const LEAD: Duration = Duration::from_micros(500);

/// How long to wait, when one child failed, for news that explain it better.
const GRACE: Duration = Duration::from_millis(300);

/// Starts so many children, each with `extra` arguments, and serves them until all are done.
pub fn run(ranks: usize, extra: &[String]) -> Result<Outcome> {
    let mut family = Family::start(ranks, extra)?;
    let result = family.serve();
    family.end(result.is_err());
    result
}

struct Family {
    children: Vec<Child>,
    /// What each is waiting with.
    waiting: Vec<Option<Message>>,
    done: Vec<Option<bool>>,
    news: Receiver<(usize, Option<Message>)>,
    progress: Progress,
    reports: Vec<Value>,
}

impl Family {
    fn start(ranks: usize, extra: &[String]) -> Result<Self> {
        let cannot = |error| Failure::run(format!("cannot start a process for each rank: {error}"));
        let program = std::env::current_exe().map_err(cannot)?;
        let args: Vec<OsString> = std::env::args_os().skip(1).collect();
        let (tell, news) = channel();
        let mut family = Self {
            children: Vec::with_capacity(ranks),
            waiting: vec![None; ranks],
            done: vec![None; ranks],
            news,
            progress: Progress::new(),
            reports: Vec::new(),
        };
        for rank in 0..ranks {
            // Right after the word `perf`, since the last arguments may be anything.
            let (verb, rest) = args.split_at(1.min(args.len()));
            let spawned = Command::new(&program)
                .args(verb)
                .args(["--child", &rank.to_string()])
                .args(extra)
                .args(rest)
                // `gpucomm info` names them; what the children say on stderr is what goes wrong.
                .env("GPUCOMM_KNOWN_BUGS_QUIET", "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let mut child = match spawned {
                Ok(child) => child,
                Err(error) => {
                    family.end(true);
                    return Err(cannot(error));
                }
            };
            let said = child.stdout.take();
            let tell = tell.clone();
            std::thread::spawn(move || {
                let lines = said.into_iter().flat_map(|said| BufReader::new(said).lines());
                for message in lines.map_while(|line| line.ok().and_then(|line| Message::parse(&line))) {
                    if tell.send((rank, Some(message))).is_err() {
                        return;
                    }
                }
                // Nothing more will come; if nobody listens any more, that is fine.
                let _ = tell.send((rank, None));
            });
            family.children.push(child);
        }
        Ok(family)
    }

    fn serve(&mut self) -> Result<Outcome> {
        // A child gives up by itself when its own waits last too long; this is for one that cannot even do that.
        let patience = gpucomm::default_timeout().saturating_mul(2);
        while self.done.iter().any(Option::is_none) {
            let Ok((rank, message)) = self.news.recv_timeout(patience) else {
                let silent: Vec<_> = self.silent().map(|rank| rank.to_string()).collect();
                return Err(Failure::run(format!("nothing was heard of rank {} for {patience:?}", silent.join(", "))));
            };
            if let Err(failure) = self.hear(rank, message) {
                return Err(self.explain(failure));
            }
        }
        Ok((self.done.iter().all(|good| *good == Some(true)), std::mem::take(&mut self.reports)))
    }

    /// The ranks that others are waiting for.
    fn silent(&self) -> impl Iterator<Item = usize> {
        (0..self.waiting.len()).filter(|&rank| self.waiting[rank].is_none() && self.done[rank].is_none())
    }

    fn hear(&mut self, rank: usize, message: Option<Message>) -> Result<()> {
        match message {
            None if self.done[rank].is_some() => Ok(()),
            None => Err(self.death(rank)),
            Some(Message::Line(text)) => output::line(&text),
            Some(Message::Progress(text)) => {
                self.progress.show(&text);
                Ok(())
            }
            Some(Message::Report(report)) => {
                self.reports.push(report);
                Ok(())
            }
            Some(Message::Done(good)) => {
                self.done[rank] = Some(good);
                Ok(())
            }
            Some(Message::Fail(true, text)) => Err(Failure::Usage(text)),
            Some(Message::Fail(false, text)) => Err(Failure::run(format!("rank {rank}: {text}"))),
            Some(message @ (Message::Gather(_) | Message::Start)) => {
                self.waiting[rank] = Some(message);
                if self.waiting.iter().all(Option::is_some) { self.answer() } else { Ok(()) }
            }
        }
    }

    /// All children wait for the same thing: gives it to them.
    fn answer(&mut self) -> Result<()> {
        let asked: Vec<Message> = self.waiting.iter_mut().filter_map(Option::take).collect();
        let values: Option<Vec<Value>> = asked
            .iter()
            .map(|message| match message {
                Message::Gather(value) => Some(value.clone()),
                _ => None,
            })
            .collect();
        let reply = match values {
            Some(values) => Value::Array(values),
            None if asked.iter().all(|message| *message == Message::Start) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Value::from(u64::try_from((now + LEAD).as_nanos()).unwrap_or(u64::MAX))
            }
            None => return Err(Failure::run("the ranks got out of step")),
        };
        let reply = format!("{reply}\n");
        for child in &mut self.children {
            // One that cannot be reached any more will be noticed as dead, with a better reason.
            if let Some(pipe) = &mut child.stdin {
                let _ = pipe.write_all(reply.as_bytes()).and_then(|()| pipe.flush());
            }
        }
        Ok(())
    }

    /// Looks whether what comes in now tells more: when a rank dies, its peers fail too, and may say so first.
    fn explain(&mut self, first: Failure) -> Failure {
        if !matches!(first, Failure::Run(_) | Failure::Aborted(_)) {
            return first;
        }
        let until = Instant::now() + GRACE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.news.recv_timeout(left) {
                Ok((rank, None)) if self.done[rank].is_none() && !self.ended_by_itself(rank) => {
                    return self.death(rank);
                }
                Ok(_) => {}
                Err(_) => return first,
            }
        }
    }

    fn ended_by_itself(&mut self, rank: usize) -> bool {
        self.children[rank].wait().is_ok_and(|status| status.code() == Some(1))
    }

    fn death(&mut self, rank: usize) -> Failure {
        let child = &mut self.children[rank];
        let how = match child.wait() {
            Ok(status) => ending(status),
            Err(error) => format!("is gone: {error}"),
        };
        Failure::run(format!("rank {rank} (process {}) {how} before it was done", child.id()))
    }

    /// Waits for the children; those of a failed run are killed first, since they may hang.
    fn end(&mut self, failed: bool) {
        self.progress.show("");
        for child in &mut self.children {
            if failed {
                // It may have ended by itself.
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("exited with status {code}"),
        (None, None) => "ended".to_owned(),
    }
}
