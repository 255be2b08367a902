//! The command line of `gpucomm doctor`.

use std::time::Duration;

use clap::Args;

use super::values::{natural, positive};
use crate::failure::{Failure, Result};

/// Options of `gpucomm doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Meet the other ranks there, where rank 0 listens, and try whether all reach each other; rank 0 prints for all. Ranks that a launcher has
    /// started do so by themselves
    #[arg(long, value_name = "tcp://HOST:PORT")]
    exchange: Option<String>,
    /// Which rank this process is [default: what a launcher has set]
    #[arg(long, value_name = "R", value_parser = natural, requires = "exchange", requires = "size")]
    rank: Option<usize>,
    /// How many ranks there are [default: what a launcher has set]
    #[arg(long, value_name = "N", value_parser = positive, requires = "exchange", requires = "rank")]
    size: Option<usize>,
    /// How many seconds ranks wait for each other
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = positive)]
    timeout: usize,
}

/// Options of `gpucomm doctor`, checked.
#[derive(Debug)]
pub struct DoctorOptions {
    pub json: bool,
    pub exchange: Option<Exchange>,
    /// How long ranks wait for each other.
    pub timeout: Duration,
}

/// Where ranks meet.
#[derive(Debug)]
pub struct Exchange {
    /// `HOST:PORT`.
    pub address: String,
    /// The rank and how many there are; `None` where that is the launcher's to say.
    pub place: Option<(usize, usize)>,
}

impl DoctorArgs {
    pub fn checked(self) -> Result<DoctorOptions> {
        let place = self.rank.zip(self.size);
        if let Some((rank, size)) = place.filter(|(rank, size)| rank >= size) {
            return Err(Failure::usage(format!("--rank {rank} is not below --size {size}: ranks are numbered from 0")));
        }
        let is_place = |address: &&str| {
            let parts = address.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        let exchange = |url: String| match url.strip_prefix("tcp://").filter(is_place) {
            Some(address) => Ok(Exchange { address: address.to_owned(), place }),
            None => Err(Failure::usage(format!("--exchange {url}: expected tcp://HOST:PORT"))),
        };
        let timeout = Duration::from_secs(self.timeout as u64);
        Ok(DoctorOptions { json: self.json, exchange: self.exchange.map(exchange).transpose()?, timeout })
    }
}
