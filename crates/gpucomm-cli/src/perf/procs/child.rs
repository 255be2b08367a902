//! One rank of a run in several processes.

use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpucomm::Device;
use serde_json::{Value, json};

use super::Message;
use crate::failure::{Failure, Result};
use crate::options::PerfOptions;
use crate::perf::rank;
use crate::perf::team::{Peers, Team};

/// Runs rank `rank`.
pub fn run(options: &PerfOptions, rank: usize) -> Result<bool> {
    serve(rank, |child| rank::run(options, Device::new(rank)?, child))
}

/// Runs `f` as rank `rank`. What goes wrong is told to the parent, which tells the user.
pub fn serve(rank: usize, f: impl FnOnce(&Child) -> Result<bool>) -> Result<bool> {
    let child = Child { rank, parent: listen() };
    match f(&child) {
        Ok(good) => child.say(&Message::Done(good)).map(|()| good),
        Err(failure) => child.say(&failure.into()).map(|()| false),
    }
}

/// This process, as it speaks with its parent.
pub struct Child {
    rank: usize,
    parent: Receiver<Value>,
}

/// Hears what the parent says. If it is gone, so is this process: nobody is left to run for.
fn listen() -> Receiver<Value> {
    let (tell, parent) = channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines();
        for value in lines.map_while(|line| serde_json::from_str(&line.ok()?).ok()) {
            if tell.send(value).is_err() {
                break;
            }
        }
        std::process::exit(1);
    });
    parent
}

impl Child {
    fn say(&self, message: &Message) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", message.json()).and_then(|()| out.flush()).map_err(|_| Failure::Closed)
    }

    fn ask(&self, message: &Message) -> Result<Value> {
        self.say(message)?;
        self.parent.recv().map_err(|_| Failure::Elsewhere)
    }
}

impl Peers for Child {
    fn exchange(&self, value: Value) -> Result<Vec<Value>> {
        match self.ask(&Message::Gather(value))? {
            Value::Array(values) => Ok(values),
            other => Err(Failure::run(format!("the parent answered {other}"))),
        }
    }
}

impl Team for Child {
    fn member(&self) -> usize {
        self.rank
    }

    fn gather(&self, value: f64) -> Result<Vec<f64>> {
        let values = self.exchange(json!(value))?;
        Ok(values.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect())
    }

    fn start(&self) -> Result<()> {
        // The parent names a moment that leaves it time to tell everybody.
        let moment =
            self.ask(&Message::Start)?.as_u64().ok_or_else(|| Failure::run("the parent named no time to start"))?;
        let moment = UNIX_EPOCH + Duration::from_nanos(moment);
        while SystemTime::now() < moment {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn line(&self, text: &str) -> Result<()> {
        self.say(&Message::Line(text.to_owned()))
    }

    fn progress(&self, text: &str) -> Result<()> {
        self.say(&Message::Progress(text.to_owned()))
    }

    fn report(&self, report: Value) -> Result<()> {
        self.say(&Message::Report(report))
    }
}
