//! The address of a TCPStore at which ranks meet.

use std::io;
use std::time::Duration;

use super::client::{C10d, DialectGreeter};
use super::codec::Dialect;
use super::server;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::exchange::net::address::{PATIENCE, listen, own_address};
use crate::exchange::net::client::Holder;
use crate::exchange::store::check_rank;

/// The longest prefix of keys, in bytes.
const MAX_PREFIX: usize = 1024;

/// The address of a TCPStore of PyTorch at which ranks meet: an existing one, such as that of
/// `torchrun`, or one that rank 0 serves.
///
/// ```no_run
/// # use gpucomm::exchange::{C10dPlace, Exchange};
/// # fn main() -> gpucomm::Result<()> {
/// // As torchrun has started it: its agent serves, and all ranks connect.
/// let variable = |name| std::env::var(name).expect("torchrun sets it");
/// let number = |name| variable(name).parse().expect("a number");
/// let address = format!("{}:{}", variable("MASTER_ADDR"), variable("MASTER_PORT"));
/// let store = C10dPlace::new(address).with_prefix("gpucomm/").connect(number("RANK"), number("WORLD_SIZE"))?;
/// let exchange = Exchange::join(store)?;
/// # Ok(())
/// # }
/// ```
///
/// It speaks both versions of the protocol: the current one, and that of PyTorch 1.13. PyTorch's
/// servers refuse values of 8 MiB and more. Nothing is encrypted or authenticated, so use it only
/// in the network of a cluster.
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

    /// A prefix of all keys, of at most 1024 bytes, because other programs may use the same store.
    /// PyTorch's own keys begin with `/`.
    ///
    /// ```
    /// # use gpucomm::exchange::{C10dPlace, Store};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = C10dPlace::new("127.0.0.1:0").with_prefix("a/").serve(1)?;
    /// let other = C10dPlace::new(server.address()).with_prefix("b/").connect(0, 1)?;
    /// server.set("key", b"value", Duration::from_secs(1))?;
    /// assert_eq!(other.get(&["key"], Duration::ZERO)?, [None]);
    /// # drop(other);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a rank tries to reach a server that is not up yet, instead of the
    /// [default](crate::default_timeout).
    ///
    /// ```
    /// # use gpucomm::Error;
    /// # use gpucomm::exchange::C10dPlace;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// // No server is there.
    /// let place = C10dPlace::new("127.0.0.1:9").with_timeout(Duration::from_millis(100));
    /// assert!(matches!(place.connect(1, 2), Err(Error::Timeout { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Speaks only the protocol of PyTorch 1.13, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn old_protocol(mut self) -> Self {
        self.dialect = Some(Dialect::Old);
        self
    }

    /// The store of a rank: rank 0 [serves](Self::serve), and the others connect. If another
    /// program serves, all ranks [`connect`](Self::connect).
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
        if rank == 0 { self.serve(size) } else { self.join("C10dPlace::store", (rank, size), Holder::Rank0) }
    }

    /// The store of rank 0, which listens at the address and serves the others, also programs that
    /// use PyTorch, from its own thread. With port 0 the system chooses the port, and
    /// [`C10d::address`] returns it.
    ///
    /// At most half of the files that the process may have open are connections. If 8 for each rank
    /// are more than its limit (`ulimit -S -n`), it raises the limit to that number, or as far as
    /// it may (`ulimit -H -n`), as NCCL does in the process of rank 0. The limit stays raised, so
    /// code in that process that calls `select` must check for files above 1024.
    ///
    /// When you drop it, the server stays for up to five seconds while other clients are connected,
    /// so that they can finish their last operation.
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
    /// Returns [`Error::InvalidArgument`] if there are no ranks or the prefix is too long. Returns
    /// [`Error::Exchange`] if it cannot listen at the address. If another server listens there,
    /// such as that of the last run, it tries again for ten seconds.
    pub fn serve(&self, size: usize) -> Result<C10d> {
        self.serve_at(std::slice::from_ref(&self.address), size)
    }

    /// As [`serve`](Self::serve), at the first of `addresses` that is free.
    pub(crate) fn serve_at(&self, addresses: &[String], size: usize) -> Result<C10d> {
        let operation = "C10dPlace::serve";
        check_rank(operation, 0, size)?;
        self.check_prefix(operation)?;
        let fail =
            |error: io::Error| Error::Exchange { operation, key: self.address.clone(), reason: error.to_string() };
        let deadline = self.deadline();
        let listener = listen(addresses, PATIENCE, &deadline).map_err(fail)?;
        let server = server::start(listener, size).map_err(fail)?;
        let address = own_address(server.address).to_string();
        C10d::connect(operation, self.greeter(), address, (0, size), Holder::Rank0, Some(server), &deadline)
    }

    /// The store of any rank, also of rank 0, at a server that another process runs. If
    /// `TORCHELASTIC_USE_AGENT_STORE` is `True`, that is torchrun's agent, at `MASTER_ADDR` and
    /// `MASTER_PORT`. Tries until the server answers.
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
    /// Returns [`Error::InvalidArgument`] if `rank` is out of range or the prefix is too long.
    /// Returns [`Error::Timeout`] if no server answers in either version of the protocol, and
    /// [`Error::Exchange`] if something else answers.
    pub fn connect(&self, rank: usize, size: usize) -> Result<C10d> {
        self.join("C10dPlace::connect", (rank, size), Holder::NoRank)
    }

    fn join(&self, operation: &'static str, (rank, size): (usize, usize), holder: Holder) -> Result<C10d> {
        check_rank(operation, rank, size)?;
        self.check_prefix(operation)?;
        let (address, deadline) = (self.address.clone(), self.deadline());
        C10d::connect(operation, self.greeter(), address, (rank, size), holder, None, &deadline)
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout.unwrap_or_else(default_timeout))
    }

    fn greeter(&self) -> (DialectGreeter, String) {
        (DialectGreeter { wanted: self.dialect }, self.prefix.clone())
    }

    fn check_prefix(&self, operation: &'static str) -> Result<()> {
        if self.prefix.len() <= MAX_PREFIX {
            return Ok(());
        }
        let expected = format!("at most {MAX_PREFIX} bytes");
        Err(Error::argument(operation, "prefix", expected, format_args!("{} bytes", self.prefix.len())))
    }
}
