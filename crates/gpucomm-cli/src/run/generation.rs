//! One start of all ranks, from the first to the end of the last.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use libc::{SIGCHLD, SIGINT, SIGTSTP, c_int};
use signal_hook::low_level::emulate_default_handler;

use super::ending::Ending;
use super::keeper::Keeper;
use super::output::Output;
use super::rank::{self, Death, Rank};
use super::relay::Stream;
use super::signals::{ends, named, send};
use super::store::Store;
use super::variables::World;
use crate::failure::{Failure, Result};
use crate::options::RunOptions;

/// How long the main thread sleeps when nothing happens; a signal wakes it.
const LOOK: Duration = Duration::from_secs(1);

/// The same while ranks end.
const ENDING: Duration = Duration::from_millis(20);

/// After this time the launcher says that ranks of other nodes still use its store.
const LINGERS: Duration = Duration::from_secs(5);

/// How a start has ended.
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    Good,
    /// `over`: they are not to be started again.
    Failed {
        code: u8,
        over: bool,
    },
}

/// What is there from start to start.
pub struct Crew<'a> {
    pub options: &'a RunOptions,
    pub keeper: Keeper,
    /// Children that are none of ours: the keeper, and what was there before, of the program that has become this one.
    pub spared: BTreeSet<i32>,
    pub events: Receiver<c_int>,
    pub output: Output,
    pub store: Store,
}

/// What is known of a start.
#[derive(Default)]
struct State {
    ranks: Vec<Rank>,
    first: Option<Death>,
    ending: Option<Ending>,
    /// The last signal that asks to end which has been passed on, and when.
    passed_on: Option<(c_int, Instant)>,
    interrupts: u32,
}

impl State {
    /// The signal that ranks may be ending for: ranks that take one for something else, and go on, fail for another reason later.
    fn asked(&self, grace: Duration) -> Option<c_int> {
        self.passed_on.filter(|(_, when)| when.elapsed() <= grace).map(|(signal, _)| signal)
    }
}

/// What to say of a program that is not where shells look for it, but in the current directory.
fn is_here(program: &str) -> &'static str {
    let is_here = !program.contains('/') && std::path::Path::new(".").join(program).is_file();
    if is_here { ": it is in the current directory, where nothing looks for it: put ./ before it" } else { "" }
}

impl Crew<'_> {
    /// Starts all ranks and waits for their end. `more`: how often they may be started again.
    pub fn run(&mut self, world: &World, more: usize) -> Result<Outcome> {
        let mut state = State::default();
        if let Some(code) = self.start(world, &mut state)? {
            state.ending = Some(Ending::begin(Duration::ZERO, true));
            self.wait(&mut state, more)?;
            return Ok(Outcome::Failed { code, over: true });
        }
        self.wait(&mut state, more)?;
        let over = state.asked(self.options.grace).is_some();
        let lost = self.output.lost();
        if let Some(error) = &lost {
            self.output.note(format!("the output of the ranks could not be written: {error}"));
        }
        Ok(match state.first {
            Some(death) => Outcome::Failed { code: death.code(), over },
            None if state.interrupts > 1 => Outcome::Failed { code: 130, over },
            None if lost.is_some() => Outcome::Failed { code: 1, over: true },
            None => Outcome::Good,
        })
    }

    /// Starts the ranks; where one cannot be, says so, and with which code to end.
    fn start(&mut self, world: &World, state: &mut State) -> Result<Option<u8>> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut code = None;
        for local in 0..world.local {
            let rank = world.rank(local);
            match rank::start(world, local, self.options, &self.store) {
                Ok(mut child) => {
                    let pid = child.id().cast_signed();
                    self.keeper.add(pid);
                    out.extend(child.stdout.take().map(|pipe| Stream::new(rank, 0, pipe)));
                    err.extend(child.stderr.take().map(|pipe| Stream::new(rank, 1, pipe)));
                    state.ranks.push(Rank { rank, pid, status: None });
                }
                Err(error) => {
                    let program = self.options.command[0].to_string_lossy();
                    let here = if error.kind() == ErrorKind::NotFound { is_here(&program) } else { "" };
                    let text = format!("rank {rank} cannot be started: {program}: {error}{here}");
                    let text = Failure::run(text).one_line();
                    self.output.note(text);
                    code = Some(match error.kind() {
                        ErrorKind::NotFound => 127,
                        ErrorKind::PermissionDenied => 126,
                        _ => 1,
                    });
                    break;
                }
            }
        }
        if self.output.prefix {
            self.output.relay(out, err)?;
        }
        Ok(code)
    }

    /// Until all ranks have ended, with all that they have started, and all that they have written is written.
    fn wait(&mut self, state: &mut State, more: usize) -> Result<()> {
        loop {
            self.reap(state, more);
            if state.ending.is_none() && !state.ranks.iter().any(Rank::lives) {
                state.ending = Some(Ending::begin(self.options.grace, true));
            }
            let mut pause = LOOK;
            if let Some(ending) = &mut state.ending {
                match ending.step(&state.ranks, &self.spared) {
                    Ok(true) => break,
                    Ok(false) => pause = ENDING,
                    Err(left) => {
                        self.output.note(format!("processes {left:?} were killed, and are not gone"));
                        break;
                    }
                }
            }
            self.listen(state, pause);
        }
        state.ranks.iter().for_each(|rank| self.keeper.forget(rank.pid));
        // Whoever reads may take a time, as a pager does; a signal ends that.
        while !self.output.is_relayed() {
            if let Some(signal) = self.asked_to_end(Duration::from_millis(2)) {
                state.passed_on = Some((signal, Instant::now()));
                break;
            }
        }
        Ok(())
    }

    /// Takes note of all that have ended.
    fn reap(&mut self, state: &mut State, more: usize) {
        let mut failed: Vec<Death> = Vec::new();
        loop {
            let mut status = 0;
            // SAFETY: it writes a status to the variable.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid <= 0 {
                break;
            }
            if let Some(rank) = state.ranks.iter_mut().find(|rank| rank.pid == pid) {
                rank.status = Some(ExitStatus::from_raw(status));
                if let Some(death) = rank.failure() {
                    self.store.rank_ended(rank.rank, &death.how());
                    failed.push(death);
                }
                // SAFETY: the signal 0 tells whether anybody is in the group, and does nothing.
                if unsafe { libc::kill(-pid, 0) } != 0 {
                    self.keeper.forget(pid);
                }
            }
        }
        if state.interrupts > 1 || state.ending.is_some() {
            return;
        }
        if state.first.is_some() {
            failed.iter().for_each(|death| self.output.note(death.words()));
            return;
        }
        let Some(first) = failed.iter().find(|death| death.by_signal()).or(failed.first()).copied() else { return };
        state.first = Some(first);
        let asked = state.asked(self.options.grace);
        let keeps_going = self.options.keep_going && asked.is_none();
        if !keeps_going {
            state.ending = Some(Ending::begin(self.options.grace, asked.is_some()));
        }
        let max = self.options.max_restarts;
        let words = first.words();
        let others = state.ranks.iter().any(Rank::lives);
        self.output.note(match asked {
            Some(signal) => format!("{words} after {} was passed on", named(signal)),
            None if more > 0 => format!("{words}; all ranks are started again ({} of {max})", max - more + 1),
            None if others && keeps_going => format!("{words}; the others go on"),
            None if others => format!("{words}; the others are ended"),
            None => words,
        });
    }

    fn listen(&mut self, state: &mut State, pause: Duration) {
        let mut next = self.events.recv_timeout(pause).ok();
        while let Some(signal) = next {
            self.hear(state, signal);
            next = self.events.try_recv().ok();
        }
    }

    /// Passes a signal on, to the process groups of the ranks.
    fn hear(&mut self, state: &mut State, signal: c_int) {
        if signal == SIGCHLD {
            return;
        }
        if ends(signal) {
            state.passed_on = Some((signal, Instant::now()));
        }
        if signal == SIGINT {
            state.interrupts += 1;
            if state.interrupts > 1 {
                if state.interrupts == 2 {
                    self.output.note("a second SIGINT: all ranks are killed".to_owned());
                }
                state.ending.get_or_insert_with(|| Ending::begin(Duration::ZERO, true)).hurry();
                return;
            }
        }
        for rank in state.ranks.iter().filter(|rank| rank.lives()) {
            send(-rank.pid, signal);
        }
        if signal == SIGTSTP {
            // As what the signal does by default; whoever continues this process continues the ranks.
            let _ = emulate_default_handler(signal);
        }
    }

    /// A signal that asks to end, if one comes within `pause`.
    fn asked_to_end(&self, pause: Duration) -> Option<c_int> {
        let until = Instant::now() + pause;
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(signal) if ends(signal) => return Some(signal),
                Ok(SIGTSTP) => _ = emulate_default_handler(SIGTSTP),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits until no rank of another node uses the store, but no longer than `limit`. A signal
    /// ends the wait.
    pub fn stay(&self, limit: Option<Duration>) {
        let begin = Instant::now();
        let mut said = false;
        while self.store.is_in_use() && limit.is_none_or(|limit| begin.elapsed() < limit) {
            if !said && begin.elapsed() > LINGERS {
                said = true;
                self.output
                    .note("the ranks of this node have ended; their store stays for those of the others".to_owned());
            }
            if self.asked_to_end(ENDING).is_some() {
                break;
            }
        }
    }

    /// The end of the program: what we had to say is said, unless nobody listens and a signal says not to wait for that.
    pub fn leave(mut self) {
        while !self.output.is_said() && self.asked_to_end(Duration::from_millis(2)).is_none() {}
        self.keeper.end();
    }
}
