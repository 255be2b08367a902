//! A run whose ranks a launcher has started, each as a process of its own.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpucomm::exchange::Exchange;
use gpucomm::{Device, Launch};
use serde_json::{Value, json};

use super::progress::Progress;
use super::team::{Peers, Team};
use crate::failure::{Failure, Result};

/// From the moment that rank 0 names to the moment itself: time enough to tell all ranks of a host.
const LEAD: Duration = Duration::from_millis(5);

/// Runs `f` as this rank, after all have found that they were asked for the same; what it returns, and what it reported.
pub fn run(launch: &Launch, f: impl FnOnce(Device, &Member) -> Result<bool>) -> Result<(bool, Vec<Value>)> {
    let member = Member::join(launch)?;
    let good = f(launch.find_device()?, &member)?;
    Ok((good, member.reports.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// This process, as it speaks with the others.
pub struct Member {
    exchange: Exchange,
    one_host: bool,
    progress: Progress,
    reports: Mutex<Vec<Value>>,
}

impl Member {
    /// Comes together with all other ranks.
    pub fn join(launch: &Launch) -> Result<Self> {
        let exchange = launch.join()?;
        let one_host = launch.find_local()?.1 == launch.size();
        let member = Self { exchange, one_host, progress: Progress::new(), reports: Mutex::default() };
        member.compare()?;
        Ok(member)
    }

    /// Fails where ranks were started with different arguments: they would do different things.
    fn compare(&self) -> Result<()> {
        let arguments: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let all = self.exchange(json!(arguments.join(" ")))?;
        match all.iter().position(|other| *other != all[0]) {
            Some(rank) => {
                let (first, other) = (&all[0], &all[rank]);
                Err(Failure::usage(format!(
                    "rank {rank} was started with other arguments than rank 0: {other}, not {first}"
                )))
            }
            None => Ok(()),
        }
    }
}

impl Peers for Member {
    fn exchange(&self, value: Value) -> Result<Vec<Value>> {
        let all = self.exchange.all_gather(value.to_string().as_bytes())?;
        let read = |(rank, bytes): (usize, &Vec<u8>)| {
            serde_json::from_slice(bytes).map_err(|error| Failure::run(format!("rank {rank} sent no JSON: {error}")))
        };
        all.iter().enumerate().map(read).collect()
    }
}

impl Team for Member {
    fn member(&self) -> usize {
        self.exchange.rank()
    }

    fn gather(&self, value: f64) -> Result<Vec<f64>> {
        let values = self.exchange.all_gather(&value.to_le_bytes())?;
        let read = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(f64::NAN, f64::from_le_bytes);
        Ok(values.iter().map(read).collect())
    }

    fn start(&self) -> Result<()> {
        self.exchange.barrier()?;
        // Hosts have clocks of their own.
        if !self.one_host {
            return Ok(());
        }
        let moment = UNIX_EPOCH.elapsed().unwrap_or_default() + LEAD;
        let moment = u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX).to_le_bytes();
        let told = self.exchange.broadcast(if self.member() == 0 { &moment } else { &[] }, 0)?;
        let moment = told.as_slice().try_into().map(u64::from_le_bytes);
        let moment =
            UNIX_EPOCH + Duration::from_nanos(moment.map_err(|_| Failure::run("rank 0 named no time to start"))?);
        while SystemTime::now() < moment {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn line(&self, text: &str) -> Result<()> {
        crate::output::line(text)
    }

    fn progress(&self, text: &str) -> Result<()> {
        self.progress.show(text);
        Ok(())
    }

    fn report(&self, report: Value) -> Result<()> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
        Ok(())
    }
}
