//! One rank of a run in several processes.

use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpucomm::nccl::{Communicator, UniqueId};
use gpucomm::{Device, default_timeout};
use serde_json::{Value, json};

use super::Message;
use crate::failure::{Failure, Result};
use crate::options::{PerfOptions, Way};
use crate::perf::row::{RankInfo, Setup};
use crate::perf::team::Team;
use crate::perf::{init_options, libraries, measure};

/// Runs rank `rank`. What goes wrong is told to the parent, which tells the user.
pub fn run(options: &PerfOptions, rank: usize) -> Result<bool> {
    let child = Child { rank, parent: listen() };
    match measure(options, &child) {
        Ok(good) => child.say(&Message::Done(good)).map(|()| good),
        Err(failure) => child.say(&failure.into()).map(|()| false),
    }
}

/// A table after the other.
fn measure(options: &PerfOptions, child: &Child) -> Result<bool> {
    let mut good = true;
    for way in options.ways() {
        good &= table(options, way, child)?;
    }
    Ok(good)
}

/// One table, with a communicator of its own.
fn table(options: &PerfOptions, way: Way, child: &Child) -> Result<bool> {
    let device = Device::new(child.rank)?;
    let id = match child.rank {
        0 => json!(UniqueId::new()?.as_bytes().as_slice()),
        _ => Value::Null,
    };
    let ids = child.exchange(id)?;
    let id = unique_id(&ids[0]).ok_or_else(|| Failure::run("rank 0 sent something that is no unique id"))?;
    let infos = child.exchange(RankInfo::new(child.rank, device)?.json())?;
    let ranks = infos.iter().map(RankInfo::from_json).collect::<Result<_>>()?;
    let setup = Setup { options, way, libraries: libraries()?, ranks };
    // SAFETY: all ranks are children of one parent, which starts them with the same arguments: they run the same
    // operations in the same order, with the same counts, types and roots, all computed from those arguments.
    let comm = unsafe { Communicator::init_rank_with(device, options.ranks(), &id, child.rank, &init_options(way)) }?;
    let result = measure::run(options, &setup, &[&comm], child);
    match &result {
        Ok(_) => comm.close(default_timeout())?,
        // To drop it would be to wait, for some seconds, for work that may never be done.
        // The failure is what matters, however the abort ends.
        Err(_) => _ = comm.abort("this rank of a perf run failed"),
    }
    result
}

fn unique_id(value: &Value) -> Option<UniqueId> {
    let bytes: Vec<u8> =
        value.as_array()?.iter().map(|byte| byte.as_u64().and_then(|b| b.try_into().ok())).collect::<Option<_>>()?;
    Some(UniqueId::from_bytes(bytes.try_into().ok()?))
}

struct Child {
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

    /// Gives `value` and gets every rank's.
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
