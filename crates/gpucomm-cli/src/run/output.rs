//! What is printed during a run: lines of ranks, and our own. Neither keeps the main thread.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use super::relay::{Relay, Stream};
use super::sink::Sink;
use crate::failure::{Failure, Result};

pub struct Output {
    out: Sink,
    err: Sink,
    relays: Vec<Relay>,
    /// Whether lines of ranks come here, to get their prefix.
    pub prefix: bool,
    tell: Option<Sender<String>>,
    notes: JoinHandle<()>,
}

impl Output {
    pub fn new(prefix: bool) -> Result<Self> {
        let (out, err) = Sink::both();
        let (tell, told): (_, Receiver<String>) = channel();
        let to = err.clone();
        let notes = thread::Builder::new().name("gpucomm-notes".into());
        let notes = notes.spawn(move || told.iter().for_each(|text| to.note(&text)));
        let notes = notes.map_err(|error| Failure::run(format!("no thread for messages: {error}")))?;
        Ok(Self { out, err, relays: Vec::new(), prefix, tell: Some(tell), notes })
    }

    /// Passes on what comes in these streams of ranks.
    pub fn relay(&mut self, out: Vec<Stream>, err: Vec<Stream>) -> Result<()> {
        self.relays = vec![Relay::start(out, self.out.clone())?, Relay::start(err, self.err.clone())?];
        Ok(())
    }

    /// Says something on the error stream; whether anybody reads that is not waited for.
    pub fn note(&self, text: String) {
        if let Some(tell) = &self.tell {
            // The thread ends after we do.
            let _ = tell.send(text);
        }
    }

    /// Whether all that the processes have written, which are gone, is written.
    pub fn is_relayed(&self) -> bool {
        self.relays.iter().for_each(Relay::over);
        self.relays.iter().all(Relay::is_finished)
    }

    /// Why something that ranks have written was not written, as far as that is known. Asked once.
    pub fn lost(&mut self) -> Option<io::Error> {
        self.relays.drain(..).filter_map(Relay::lost).next()
    }

    /// Whether all that we had to say is written. Nothing can be said after it.
    pub fn is_said(&mut self) -> bool {
        self.tell = None;
        self.notes.is_finished()
    }
}
