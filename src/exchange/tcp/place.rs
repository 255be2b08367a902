//! The address at which the ranks of a TCP store meet.

use std::io;
use std::time::Duration;

use super::client::{RankGreeter, Tcp};
use super::greeting::{Admission, MAX_JOB};
use super::secret::Secret;
use super::server::{self, Outside};
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::exchange::net::address::{PATIENCE, listen, own_address};
use crate::exchange::net::client::Holder;
use crate::exchange::net::server::Server;
use crate::exchange::store::check_rank;

/// The address at which ranks meet over TCP: rank 0 [serves](Self::serve) there, or a process that
/// is no rank [hosts](Self::host) the server, and all ranks connect.
///
/// ```no_run
/// # use gpucomm::exchange::{Exchange, TcpPlace};
/// # fn main() -> gpucomm::Result<()> {
/// # let (rank, size) = (0, 1);
/// let exchange = Exchange::join(TcpPlace::new("node-0:29500").with_job("training-17").store(rank, size)?)?;
/// # Ok(())
/// # }
/// ```
///
/// Without a secret, any process that reaches the address and knows the name of the job may take
/// part, and nothing is encrypted: use it only in the network of a cluster. With the feature `secret`,
/// `TcpPlace::with_secret` keeps out processes that do not know the secret, and encrypts keys and values.
#[derive(Debug, Clone)]
pub struct TcpPlace {
    address: String,
    job: String,
    secret: Option<Secret>,
    timeout: Option<Duration>,
    /// Whether no rank has the server there.
    is_hosted: bool,
}

impl TcpPlace {
    /// `host:port`, where the host is a name, an IPv4 address, or an IPv6 address in brackets.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), job: String::new(), secret: None, timeout: None, is_hosted: false }
    }

    /// The name of the job, of at most 256 bytes. The server refuses ranks of another job that
    /// connect by mistake.
    ///
    /// ```
    /// # use gpucomm::exchange::TcpPlace;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = TcpPlace::new("127.0.0.1:0").with_job("a").serve(2)?;
    /// let other = TcpPlace::new(server.address()).with_job("b").with_timeout(Duration::from_secs(2));
    /// assert!(other.connect(1, 2).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_job(mut self, job: impl Into<String>) -> Self {
        self.job = job.into();
        self
    }

    /// A secret, as bytes or text of any length, that all ranks share and nobody else knows. It
    /// must be hard to guess, such as 16 random bytes: an attacker who listens on the network, or
    /// answers at the address, can try guesses offline.
    ///
    /// Each end proves to the other that it knows the secret, over nonces that both draw for this
    /// connection. So a proof that was overheard is of no use. Every message after that is encrypted
    /// and authenticated (ChaCha20-Poly1305) with keys that are made of the secret and the nonces, at
    /// its place: changed, injected, missing or repeated messages are errors. A server with a secret
    /// refuses ranks that have none or another one, and a rank with a secret accepts no other server.
    ///
    /// An attacker who listens learns the addresses, the name of the job, the number of each rank, and
    /// how long messages are. One who learns the secret later can read what was recorded before. An
    /// attacker in between can still cut or delay connections, or refuse ranks in the server's name.
    /// The secret does not tell one rank from another.
    ///
    /// ```
    /// # use gpucomm::exchange::TcpPlace;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = TcpPlace::new("127.0.0.1:0").with_secret("of this job").serve(2)?;
    /// let place = TcpPlace::new(server.address()).with_timeout(Duration::from_secs(5));
    /// assert!(place.clone().with_secret("of this job").connect(1, 2).is_ok());
    /// // A rank with another secret, or without one, is refused.
    /// for refused in [place.clone().with_secret([1, 2, 3]), place] {
    ///     let error = refused.connect(1, 2).expect_err("refused");
    ///     assert!(error.to_string().contains("shared secret"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "secret")]
    #[must_use]
    pub fn with_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(Secret::new(secret.as_ref()));
        self
    }

    /// How long a rank tries to reach a server that is not up yet, instead of the
    /// [default](crate::default_timeout).
    ///
    /// ```
    /// # use gpucomm::Error;
    /// # use gpucomm::exchange::TcpPlace;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// // No server is there.
    /// let place = TcpPlace::new("127.0.0.1:9").with_timeout(Duration::from_millis(100));
    /// assert!(matches!(place.connect(1, 2), Err(Error::Timeout { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// For a place at which no rank has the server: errors say so if it is not reached.
    pub(crate) fn hosted(mut self) -> Self {
        self.is_hosted = true;
        self
    }

    /// The store of a rank: rank 0 [serves](Self::serve), and the others [connect](Self::connect).
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

    /// The store of rank 0, which listens at the address and serves the others from its own thread.
    /// With port 0 the system chooses the port, and [`Tcp::address`] returns it.
    ///
    /// The server uses about two file descriptors of this process for each rank, and more for a
    /// rank whose threads wait at the same time. 1024 ranks need a higher limit than the usual 1024
    /// (`ulimit -n`).
    ///
    /// When you drop it, the server stays for up to five seconds while other ranks are there, so
    /// that they can finish their last operation.
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
    /// Returns [`Error::InvalidArgument`] if there are no ranks, the name of the job is too long,
    /// or the secret is empty. Returns [`Error::Exchange`] if it cannot listen at the address. If
    /// another server listens there, such as that of the last run, it tries again for ten seconds.
    pub fn serve(&self, size: usize) -> Result<Tcp> {
        self.serve_at(std::slice::from_ref(&self.address), PATIENCE, size)
    }

    /// As [`serve`](Self::serve), at the first of `addresses` that is free. Tries again for
    /// `patience` if all are in use.
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
        let address = own_address(server.address).to_string();
        Tcp::connect(operation, address, self.greeter(0, size), Holder::Rank0, Some(server), &deadline)
    }

    /// Starts a server that is no rank.
    pub(super) fn start_hosting(&self, outside: Outside) -> Result<Server> {
        let operation = "TcpPlace::host";
        self.check(operation)?;
        let fail =
            |error: io::Error| Error::Exchange { operation, key: self.address.clone(), reason: error.to_string() };
        let addresses = std::slice::from_ref(&self.address);
        let listener = listen(addresses, PATIENCE, &self.deadline()).map_err(fail)?;
        let job = Some(self.job.clone()).filter(|job| !job.is_empty());
        server::start_with(listener, Admission::of_jobs(job, self.secret.clone()), outside).map_err(fail)
    }

    /// The store of a rank other than 0, or of any rank at a [`TcpServer`](super::TcpServer). Tries
    /// until the server answers.
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if `rank` is out of range, the name of the job is too
    /// long, or the secret is empty. Returns [`Error::Timeout`] if no server is there. Returns
    /// [`Error::Exchange`] if the server there has another job, size, secret or version, or is no
    /// server of an exchange.
    pub fn connect(&self, rank: usize, size: usize) -> Result<Tcp> {
        let operation = "TcpPlace::connect";
        check_rank(operation, rank, size)?;
        self.check(operation)?;
        // Rank 0 connects to a server that another process has.
        let holder = if self.is_hosted || rank == 0 { Holder::NoRank } else { Holder::Rank0 };
        Tcp::connect(operation, self.address.clone(), self.greeter(rank, size), holder, None, &self.deadline())
    }

    fn greeter(&self, rank: usize, size: usize) -> RankGreeter {
        RankGreeter { rank, size, job: self.job.clone(), secret: self.secret.clone() }
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
