//! How the ranks of a launch come together.

use std::sync::Arc;
use std::time::Duration;

use super::handle::{Launch, Secret, Shared};
use super::meeting::{Meeting, listens_at};
use super::meets::Turn;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{C10dPlace, Directory, Exchange, PATIENCE, Store, TcpPlace, Threads};

const JOIN: &str = "Launch::join";
const STORE: &str = "Launch::store";

/// How long one port is tried before the next one is.
const TRY: Duration = Duration::from_secs(2);

impl Launch {
    /// The exchange of all ranks. The first time it waits for them; afterwards it is the same exchange.
    ///
    /// It lasts as long as the launch: drop it last, as rank 0 may serve the others.
    ///
    /// ```
    /// # use gpucomm::{Communicator, Launch};
    /// # use gpucomm::nccl::InitOptions;
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = Launch::from_env()?;
    /// let exchange = launch.join()?;
    /// let options = InitOptions::new().with_checked(true);
    /// // SAFETY: all ranks run this program, and so issue the same operations in the same order.
    /// let comm = unsafe { Communicator::init_rank_over(launch.device()?, &exchange, &options)? };
    /// assert!(comm.is_checked());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] where nothing says where ranks meet, or rank 0 serves a [`store`](Self::store) of this launch. [`Error::Timeout`] where some do not come, rank 0 is not reached, or another
    /// thread of this process has not joined in time: each thread waits for its own timeout. [`Error::Exchange`] where rank 0 cannot listen, or those who meet
    /// there are of another job, another number of ranks, or do not have the same secret.
    pub fn join(&self) -> Result<Exchange> {
        let (shared, deadline) = (&*self.shared, Deadline::after(self.timeout()));
        let turn = match shared.meets.turn(JOIN, &deadline, shared.serves())? {
            Turn::Met(exchange) => return Ok(exchange.with_timeout(self.timeout())),
            Turn::First(turn) => turn,
        };
        let store = shared.store(JOIN, &deadline)?;
        turn.has_store(&store);
        let exchange = Exchange::join_timeout(store, deadline.remaining())?;
        turn.has_met(&exchange);
        Ok(exchange.with_timeout(self.timeout()))
    }

    /// What the exchange would stand on, for who wants no more than that. In place of [`join`](Self::join), not beside it: where rank 0
    /// serves, it can do so once.
    ///
    /// ```
    /// # use gpucomm::Launch;
    /// # use gpucomm::exchange::Store;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = Launch::from_env()?;
    /// let store = launch.store()?;
    /// assert_eq!((store.rank(), store.size()), (launch.rank(), launch.size()));
    /// store.set("a key", b"of this program", Duration::from_secs(1))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`join`](Self::join), but for ranks that do not come. [`Error::InvalidUsage`] at rank 0 if it serves a store of this launch
    /// already, or a thread is making one.
    pub fn store(&self) -> Result<Arc<dyn Store>> {
        let (shared, deadline) = (&*self.shared, Deadline::after(self.timeout()));
        if !shared.serves() {
            return shared.store(STORE, &deadline);
        }
        let turn = shared.meets.turn_to_serve(STORE)?;
        let store = shared.store(STORE, &deadline)?;
        turn.has_store(&store);
        Ok(store)
    }
}

impl Shared {
    /// Whether this rank serves the store, which it can do once at a time.
    fn serves(&self) -> bool {
        match &self.meeting {
            Meeting::Tcp { .. } => self.claim.rank == 0,
            Meeting::C10d { is_there, .. } => self.claim.rank == 0 && !is_there,
            Meeting::Alone | Meeting::Server { .. } | Meeting::Directory { .. } | Meeting::Nowhere(_) => false,
        }
    }

    fn store(&self, operation: &'static str, deadline: &Deadline) -> Result<Arc<dyn Store>> {
        let (rank, size) = (self.claim.rank, self.claim.size);
        match &self.meeting {
            Meeting::Alone => Ok(Arc::new(Threads::new(1).store(0)?)),
            Meeting::Directory { path, job } => {
                let path = if job.is_empty() { path.clone() } else { Directory::below(path, job) };
                Ok(Arc::new(Directory::open(path, rank, size)?))
            }
            Meeting::Server { host, port, job } => {
                let at = Tcp { host, hosts: Vec::new(), job, secret: self.secret.as_ref() };
                let address = format!("{host}:{port}");
                let place = at.place(address.clone(), deadline.remaining()).hosted();
                let store = place.connect(rank, size).map_err(|error| match error {
                    late @ Error::Timeout { .. } => {
                        late.noted(format_args!("start it there: gpucomm store --listen {address}"))
                    }
                    error => error,
                })?;
                Ok(Arc::new(store))
            }
            Meeting::C10d { host, port, prefix, is_there } => {
                let address = |host: &str| format!("{host}:{port}");
                let place =
                    C10dPlace::new(address(host)).with_prefix(prefix.as_str()).with_timeout(deadline.remaining());
                let own: Vec<_> =
                    listens_at(host, self.claim.is_on_one_host()).iter().map(|host| address(host)).collect();
                // The server of rank 0 ends with it, that of another program does not.
                Ok(Arc::new(match rank {
                    _ if *is_there => place.connect(rank, size)?,
                    0 => place.serve_at(&own, size)?,
                    _ => place.store(rank, size)?,
                }))
            }
            Meeting::Tcp { host, ports, job } => {
                let hosts = listens_at(host, self.claim.is_on_one_host());
                let at = Tcp { host, hosts, job, secret: self.secret.as_ref() };
                Ok(Arc::new(match rank {
                    0 => at.serve(ports, size, deadline)?,
                    _ => at.reach(ports, rank, size, deadline)?,
                }))
            }
            Meeting::Nowhere(reason) => Err(Error::InvalidUsage { operation, reason: reason.clone() }),
        }
    }
}

/// A server over TCP: of rank 0, at one of several ports, or of no rank.
struct Tcp<'a> {
    /// Where other ranks look for it.
    host: &'a str,
    /// Where it listens.
    hosts: Vec<String>,
    job: &'a str,
    secret: Option<&'a Secret>,
}

impl Tcp<'_> {
    fn place(&self, address: String, within: Duration) -> TcpPlace {
        let place = TcpPlace::new(address).with_job(self.job).with_timeout(within);
        #[cfg(feature = "secret")]
        let place = self.secret.iter().fold(place, |place, secret| place.with_secret(secret.0.as_bytes()));
        let _ = self.secret;
        place
    }

    /// Listens at the first port that is free. One that has no others is waited for.
    fn serve(&self, ports: &[u16], size: usize, deadline: &Deadline) -> Result<crate::exchange::Tcp> {
        let each = |port| self.hosts.iter().map(move |host| format!("{host}:{port}"));
        let addresses: Vec<String> = ports.iter().flat_map(each).collect();
        let patience = if ports.len() == 1 { PATIENCE } else { Duration::ZERO };
        self.place(self.host.to_owned(), deadline.remaining()).serve_at(&addresses, patience, size)
    }

    /// Comes to where rank 0 listens, which may not be there yet; others may be at a port before.
    fn reach(&self, ports: &[u16], rank: usize, size: usize, deadline: &Deadline) -> Result<crate::exchange::Tcp> {
        let address = |port: &u16| format!("{}:{port}", self.host);
        if let [port] = ports {
            return self.place(address(port), deadline.remaining()).connect(rank, size);
        }
        let mut last = String::new();
        let found = deadline.until(|| {
            for port in ports {
                match self.place(address(port), TRY.min(deadline.remaining())).connect(rank, size) {
                    Ok(mut store) => {
                        // Rank 0 may come back at another one.
                        store.addresses = ports.iter().map(address).collect();
                        return Ok(Some(store));
                    }
                    Err(error) => last = error.to_string(),
                }
            }
            Ok(None)
        })?;
        let detail = || format!("rank {rank}: rank 0 is not reached on {} at ports {ports:?}: {last}", self.host);
        found.ok_or_else(|| deadline.error(JOIN, detail()))
    }
}
