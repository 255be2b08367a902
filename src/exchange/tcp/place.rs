//! Where the ranks of a TCP store meet.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use super::client::Tcp;
use super::message::MAX_JOB;
use super::server::Server;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::exchange::store::check_rank;

/// The address at which ranks meet over TCP: rank 0 serves, all come there.
///
/// ```no_run
/// # use gpucomm::exchange::{Exchange, TcpPlace};
/// # fn main() -> gpucomm::Result<()> {
/// # let (rank, size) = (0, 1);
/// let exchange = Exchange::join(TcpPlace::new("node-0:29500").job("training-17").store(rank, size)?)?;
/// # Ok(())
/// # }
/// ```
///
/// What is said is neither encrypted nor proved: it belongs on the network of a cluster, not on one that others reach.
#[derive(Debug, Clone)]
pub struct TcpPlace {
    address: String,
    job: String,
    timeout: Option<Duration>,
}

impl TcpPlace {
    /// `host:port`, where the host is a name, an IPv4 address, or an IPv6 address in brackets.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), job: String::new(), timeout: None }
    }

    /// The name of the job, of at most 256 bytes. Ranks of another one that come to this server by mistake are refused.
    ///
    /// ```
    /// # use gpucomm::exchange::TcpPlace;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = TcpPlace::new("127.0.0.1:0").job("a").serve(2)?;
    /// let other = TcpPlace::new(server.address()).job("b").within(Duration::from_secs(2));
    /// assert!(other.connect(1, 2).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.job = job.into();
        self
    }

    /// How long a rank tries to reach a server that is not up yet, in place of the [default](crate::default_timeout).
    ///
    /// ```
    /// # use gpucomm::Error;
    /// # use gpucomm::exchange::TcpPlace;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// // Nobody serves there.
    /// let place = TcpPlace::new("127.0.0.1:9").within(Duration::from_millis(100));
    /// assert!(matches!(place.connect(1, 2), Err(Error::Timeout { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The store of a rank: rank 0 [serves](Self::serve), the others [connect](Self::connect).
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, TcpPlace};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (address, rank, size) = ("127.0.0.1:0", 0, 1);
    /// let exchange = Exchange::join(TcpPlace::new(address).store(rank, size)?)?;
    /// exchange.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`serve`](Self::serve) and [`connect`](Self::connect).
    pub fn store(&self, rank: usize, size: usize) -> Result<Tcp> {
        if rank == 0 { self.serve(size) } else { self.connect(rank, size) }
    }

    /// The store of rank 0, which listens at the address and serves the others from a thread of its own. With port 0 the system chooses
    /// one; [`Tcp::address`] says which.
    ///
    /// Dropped, it stays up to five seconds for others that have not left yet: the last thing that all do together is theirs, too.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, TcpPlace};
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = TcpPlace::new("127.0.0.1:0").serve(2)?;
    /// let place = TcpPlace::new(server.address());
    /// std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| Exchange::join(place.connect(1, 2)?)?.all_gather(b"one"));
    ///     let all = Exchange::join(server)?.all_gather(b"zero")?;
    ///     assert_eq!(all, [b"zero".to_vec(), b"one".to_vec()]);
    ///     other.join().expect("no panic").map(drop)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no ranks, and a name of the job that is too long; [`Error::Exchange`] where nothing can listen at
    /// the address.
    pub fn serve(&self, size: usize) -> Result<Tcp> {
        let operation = "TcpPlace::serve";
        check_rank(operation, 0, size)?;
        self.check_job(operation)?;
        let fail =
            |error: io::Error| Error::Exchange { operation, key: self.address.clone(), reason: error.to_string() };
        let listener = TcpListener::bind(&self.address).map_err(fail)?;
        let server = Server::start(listener, self.job.clone(), size).map_err(fail)?;
        let address = server.address.to_string();
        Tcp::connect(operation, address, (0, size), self.job.clone(), Some(server), &self.deadline())
    }

    /// The store of another rank than 0, or of a process beside them, which asks the server until it answers.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that there is none, and a name of the job that is too long; [`Error::Timeout`] where nobody
    /// serves there; [`Error::Exchange`] where who serves there is of another job, another size or another version, or no server of an
    /// exchange.
    pub fn connect(&self, rank: usize, size: usize) -> Result<Tcp> {
        let operation = "TcpPlace::connect";
        check_rank(operation, rank, size)?;
        self.check_job(operation)?;
        Tcp::connect(operation, self.address.clone(), (rank, size), self.job.clone(), None, &self.deadline())
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout.unwrap_or_else(default_timeout))
    }

    fn check_job(&self, operation: &'static str) -> Result<()> {
        if self.job.len() <= MAX_JOB {
            return Ok(());
        }
        let expected = format!("at most {MAX_JOB} bytes");
        Err(Error::argument(operation, "job", expected, format_args!("{} bytes", self.job.len())))
    }
}
