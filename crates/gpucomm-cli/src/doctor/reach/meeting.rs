//! Where ranks meet.

use std::sync::Arc;
use std::time::Duration;

use gpucomm::Launch;
use gpucomm::exchange::Store;

use crate::failure::{Failure, Result};
use crate::options::doctor::DoctorOptions;

/// Where ranks meet, and which of them this is.
#[derive(Debug)]
pub enum Meeting {
    /// At an address that the user has named.
    Named { address: String, rank: usize, size: usize },
    /// Where those of a launcher do.
    Launched(Launch),
}

impl Meeting {
    /// None where there is one rank. Who says nothing is the rank that the launcher has started.
    pub fn of(options: &DoctorOptions, launch: Option<Launch>) -> Result<Option<Self>> {
        let by_launcher = launch.as_ref().map(|launch| (launch.rank(), launch.size()));
        match &options.exchange {
            Some(exchange) => {
                let nobody = || Failure::usage("--exchange: no launcher says which rank this is: --rank R --size N");
                let (rank, size) = exchange.place.or(by_launcher).ok_or_else(nobody)?;
                Ok(Some(Self::Named { address: exchange.address.clone(), rank, size }))
            }
            None => Ok(launch.filter(|launch| launch.size() > 1).map(Self::Launched)),
        }
    }

    pub fn rank_and_size(&self) -> (usize, usize) {
        match self {
            Self::Named { rank, size, .. } => (*rank, *size),
            Self::Launched(launch) => (launch.rank(), launch.size()),
        }
    }

    /// In words, for who does not find it.
    pub fn place(&self) -> String {
        match self {
            Self::Named { address, .. } => format!("tcp://{address}"),
            Self::Launched(launch) => launch.master_address().unwrap_or_else(|| "the store of the launcher".to_owned()),
        }
    }

    pub fn store(&self, timeout: Duration) -> gpucomm::Result<Arc<dyn Store>> {
        match self {
            Self::Named { address, rank, size } => {
                Launch::new(*rank, *size, &format!("tcp://{address}"))?.with_timeout(timeout).store()
            }
            Self::Launched(launch) => launch.clone().with_timeout(timeout).store(),
        }
    }
}
