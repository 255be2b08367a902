//! The address at which the ranks of a TCP store meet.

use std::io;
use std::time::Duration;

use super::client::{Rank, Tcp};
use super::greeting::{Admission, MAX_JOB};
use super::secret::Secret;
use super::server;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::exchange::net::address::{PATIENCE, listen};
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
/// Nothing that is said is encrypted, and without a secret anybody who reaches the address and knows the name of the job may take part: it
/// belongs on the network of a cluster, not on one that others reach. With the feature `secret`, `TcpPlace::secret` keeps out who does not
/// know one.
#[derive(Debug, Clone)]
pub struct TcpPlace {
    address: String,
    job: String,
    secret: Option<Secret>,
    timeout: Option<Duration>,
}

impl TcpPlace {
    /// `host:port`, where the host is a name, an IPv4 address, or an IPv6 address in brackets.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), job: String::new(), secret: None, timeout: None }
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

    /// A secret, as bytes or text, that all ranks share and nobody else knows. Longer than 64 bytes or shorter, it does not matter; it must be
    /// hard to guess, such as 16 random bytes: who listens on the network, or answers at the address, can try guesses at home.
    ///
    /// Each end proves to the other that it knows the secret, over numbers that both have drawn for this connection alone, so that what
    /// somebody has overheard lets nobody in. All that is said after that has a mark, made of the secret, these numbers and its place: what
    /// is changed, injected, left out or sent again is an error. A server with a secret refuses ranks that have none or another one, and a
    /// rank with a secret trusts no other server.
    ///
    /// It encrypts nothing: who listens reads all keys and values. Who sits in between can still cut connections, hold them up, or refuse
    /// ranks in the server's name. All who know the secret are trusted alike: it does not tell one rank from another.
    ///
    /// ```
    /// # use gpucomm::exchange::TcpPlace;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = TcpPlace::new("127.0.0.1:0").secret("of this job").serve(2)?;
    /// let place = TcpPlace::new(server.address()).within(Duration::from_secs(5));
    /// assert!(place.clone().secret("of this job").connect(1, 2).is_ok());
    /// // Who has another one, or none, is told so.
    /// for refused in [place.clone().secret([1, 2, 3]), place] {
    ///     let error = refused.connect(1, 2).expect_err("refused");
    ///     assert!(error.to_string().contains("shared secret"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "secret")]
    #[must_use]
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(Secret::new(secret.as_ref()));
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
    /// The server takes about two file descriptors of this process for each rank, three for one whose threads wait at the same time: 1024
    /// ranks need a higher limit than the usual 1024 (`ulimit -n`).
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
    /// [`Error::InvalidArgument`] for no ranks, a name of the job that is too long, and a secret of no bytes; [`Error::Exchange`] where nothing can listen at
    /// the address, be it that somebody else does and goes on for ten seconds: the server of the last run may stay for its ranks.
    pub fn serve(&self, size: usize) -> Result<Tcp> {
        self.serve_at(std::slice::from_ref(&self.address), PATIENCE, size)
    }

    /// As [`serve`](Self::serve), at the first of `addresses` that is free, for which it waits so long.
    pub(crate) fn serve_at(&self, addresses: &[String], patience: Duration, size: usize) -> Result<Tcp> {
        let operation = "TcpPlace::serve";
        let deadline = self.deadline();
        check_rank(operation, 0, size)?;
        self.check(operation)?;
        let fail =
            |error: io::Error| Error::Exchange { operation, key: addresses.join(", "), reason: error.to_string() };
        let listener = listen(addresses, patience, &deadline).map_err(fail)?;
        let admission = Admission::new(self.job.clone(), size, self.secret.clone());
        let server = server::start(listener, admission).map_err(fail)?;
        let address = server.address.to_string();
        Tcp::connect(operation, address, self.rank(0, size), Some(server), &deadline)
    }

    /// The store of another rank than 0, or of a process beside them, which asks the server until it answers.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that there is none, a name of the job that is too long, and a secret of no bytes;
    /// [`Error::Timeout`] where nobody serves there; [`Error::Exchange`] where who serves there is of another job, another size, another
    /// secret or another version, or no server of an exchange.
    pub fn connect(&self, rank: usize, size: usize) -> Result<Tcp> {
        let operation = "TcpPlace::connect";
        check_rank(operation, rank, size)?;
        self.check(operation)?;
        Tcp::connect(operation, self.address.clone(), self.rank(rank, size), None, &self.deadline())
    }

    fn rank(&self, rank: usize, size: usize) -> Rank {
        Rank { rank, size, job: self.job.clone(), secret: self.secret.clone() }
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout.unwrap_or_else(default_timeout))
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        if self.secret.as_ref().is_some_and(Secret::is_empty) {
            return Err(Error::argument(operation, "secret", "at least 1 byte", "none"));
        }
        if self.job.len() <= MAX_JOB {
            return Ok(());
        }
        let expected = format!("at most {MAX_JOB} bytes");
        Err(Error::argument(operation, "job", expected, format_args!("{} bytes", self.job.len())))
    }
}
