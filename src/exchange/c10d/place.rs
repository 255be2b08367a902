//! The address of a TCPStore at which ranks meet.

use std::io;
use std::time::Duration;

use super::client::{C10d, Speaker};
use super::codec::Dialect;
use super::server;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::exchange::net::address::{PATIENCE, listen};
use crate::exchange::store::check_rank;

/// The longest prefix of keys, in bytes.
const MAX_PREFIX: usize = 1024;

/// The address of a TCPStore of PyTorch at which ranks meet: one that is there, such as that of `torchrun`, or one that rank 0 makes.
///
/// ```no_run
/// # use gpucomm::exchange::{C10dPlace, Exchange};
/// # fn main() -> gpucomm::Result<()> {
/// // As torchrun has started it: its agent serves, and all ranks connect.
/// let variable = |name| std::env::var(name).expect("torchrun sets it");
/// let number = |name| variable(name).parse().expect("a number");
/// let address = format!("{}:{}", variable("MASTER_ADDR"), variable("MASTER_PORT"));
/// let store = C10dPlace::new(address).prefix("gpucomm/").connect(number("RANK"), number("WORLD_SIZE"))?;
/// let exchange = Exchange::join(store)?;
/// # Ok(())
/// # }
/// ```
///
/// Both protocols are spoken: today's, and that of PyTorch 1.13. Values of 8 MiB and more are too long for PyTorch's servers. What is said is
/// neither encrypted nor proved: it belongs on the network of a cluster, not on one that others reach.
#[derive(Debug, Clone)]
pub struct C10dPlace {
    address: String,
    prefix: String,
    timeout: Option<Duration>,
    dialect: Option<Dialect>,
}

impl C10dPlace {
    /// `host:port`, where the host is a name, an IPv4 address, or an IPv6 address in brackets.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), prefix: String::new(), timeout: None, dialect: None }
    }

    /// What all keys begin with, in at most 1024 bytes: others may use the same store. PyTorch puts a `/` before its own.
    ///
    /// ```
    /// # use gpucomm::exchange::{C10dPlace, Store};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = C10dPlace::new("127.0.0.1:0").prefix("a/").serve(1)?;
    /// let other = C10dPlace::new(server.address()).prefix("b/").connect(0, 1)?;
    /// server.set("key", b"value", Duration::from_secs(1))?;
    /// assert_eq!(other.get(&["key"], Duration::ZERO)?, [None]);
    /// # drop(other);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a rank tries to reach a server that is not up yet, in place of the [default](crate::default_timeout).
    ///
    /// ```
    /// # use gpucomm::Error;
    /// # use gpucomm::exchange::C10dPlace;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// // Nobody serves there.
    /// let place = C10dPlace::new("127.0.0.1:9").within(Duration::from_millis(100));
    /// assert!(matches!(place.connect(1, 2), Err(Error::Timeout { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Speaks the protocol of PyTorch 1.13 and tries no other, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn old_protocol(mut self) -> Self {
        self.dialect = Some(Dialect::Old);
        self
    }

    /// The store of a rank: rank 0 [serves](Self::serve), the others connect. Where the server is somebody else's, all
    /// [`connect`](Self::connect).
    ///
    /// ```
    /// # use gpucomm::exchange::{C10dPlace, Exchange};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (address, rank, size) = ("127.0.0.1:0", 0, 1);
    /// let exchange = Exchange::join(C10dPlace::new(address).store(rank, size)?)?;
    /// exchange.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`serve`](Self::serve) and [`connect`](Self::connect).
    pub fn store(&self, rank: usize, size: usize) -> Result<C10d> {
        if rank == 0 { self.serve(size) } else { self.join("C10dPlace::store", (rank, size), true) }
    }

    /// The store of rank 0, which listens at the address and serves others, programs that use PyTorch included, from a thread of its own.
    /// With port 0 the system chooses one; [`C10d::address`] says which.
    ///
    /// At most half of the files that the process may have open are connections. Where 8 for each rank are more than it may (`ulimit -S -n`), it raises its
    /// limit to so many, or as far as it may (`ulimit -H -n`), and leaves it there, as NCCL does in the process of rank 0: whoever waits by `select` there has to
    /// look for files above 1024.
    ///
    /// Dropped, it stays up to five seconds for others whose connections are open: the last thing that all do together is theirs, too.
    ///
    /// ```
    /// # use gpucomm::exchange::{C10dPlace, Exchange};
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = C10dPlace::new("127.0.0.1:0").serve(2)?;
    /// let place = C10dPlace::new(server.address());
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
    /// [`Error::InvalidArgument`] for no ranks, and a prefix that is too long; [`Error::Exchange`] where nothing can listen at the
    /// address, be it that somebody else does and goes on for ten seconds: the server of the last run may stay for its ranks.
    pub fn serve(&self, size: usize) -> Result<C10d> {
        self.serve_at(std::slice::from_ref(&self.address), size)
    }

    /// The same at the first of these addresses where anything can listen.
    pub(crate) fn serve_at(&self, addresses: &[String], size: usize) -> Result<C10d> {
        let operation = "C10dPlace::serve";
        check_rank(operation, 0, size)?;
        self.check_prefix(operation)?;
        let fail =
            |error: io::Error| Error::Exchange { operation, key: self.address.clone(), reason: error.to_string() };
        let deadline = self.deadline();
        let listener = listen(addresses, PATIENCE, &deadline).map_err(fail)?;
        let server = server::start(listener, size).map_err(fail)?;
        let address = server.address.to_string();
        C10d::connect(operation, self.speaker(), address, (0, size), true, Some(server), &deadline)
    }

    /// The store of a rank, be it rank 0, at a server that is there or will be: where `TORCHELASTIC_USE_AGENT_STORE` is `True`, that of
    /// torchrun's agent, at `MASTER_ADDR` and `MASTER_PORT`. It asks until somebody answers.
    ///
    /// ```
    /// # use gpucomm::exchange::{C10dPlace, Exchange, Store};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let server = C10dPlace::new("127.0.0.1:0").serve(1)?;
    /// # let (address, rank, size) = (server.address(), 0, 1);
    /// let store = C10dPlace::new(address).connect(rank, size)?;
    /// assert_eq!(store.rank(), 0);
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that there is none, and a prefix that is too long; [`Error::Timeout`] where nobody serves
    /// there in either protocol; [`Error::Exchange`] where something else answers.
    pub fn connect(&self, rank: usize, size: usize) -> Result<C10d> {
        self.join("C10dPlace::connect", (rank, size), false)
    }

    fn join(&self, operation: &'static str, (rank, size): (usize, usize), at_rank_0: bool) -> Result<C10d> {
        check_rank(operation, rank, size)?;
        self.check_prefix(operation)?;
        let (address, deadline) = (self.address.clone(), self.deadline());
        C10d::connect(operation, self.speaker(), address, (rank, size), at_rank_0, None, &deadline)
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout.unwrap_or_else(default_timeout))
    }

    fn speaker(&self) -> (Speaker, String) {
        (Speaker { wanted: self.dialect }, self.prefix.clone())
    }

    fn check_prefix(&self, operation: &'static str) -> Result<()> {
        if self.prefix.len() <= MAX_PREFIX {
            return Ok(());
        }
        let expected = format!("at most {MAX_PREFIX} bytes");
        Err(Error::argument(operation, "prefix", expected, format_args!("{} bytes", self.prefix.len())))
    }
}
