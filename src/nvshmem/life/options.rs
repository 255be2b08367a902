//! How a context is to be started.

use std::net::SocketAddr;
use std::time::Duration;

#[cfg(doc)]
use super::context::Context;
use super::unique_id::ContextUniqueId;
use crate::cuda::Device;
use crate::deadline::default_timeout;
#[cfg(doc)]
use crate::error::Error;
#[cfg(feature = "mpi")]
use crate::error::Result;
use crate::exchange::Exchange;

/// How a [`Context`] is to be started: on which device, and how the PEs find each other.
/// [`Context::init`] takes them.
///
/// ```
/// use std::time::Duration;
///
/// use gpucomm::Device;
/// use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
///
/// # fn main() -> gpucomm::Result<()> {
/// // Made by one PE, and sent to all the others.
/// let id = ContextUniqueId::new()?;
/// let options = ContextOptions::new()
///     .with_device(Device::new(0)?)
///     .with_unique_id(&id, 0, 1)
///     .with_timeout(Duration::from_secs(30))
///     .with_watchdog(true);
/// // SAFETY: all PEs run this program, so all make the same collective calls in the same order.
/// let ctx = unsafe { Context::init(&options)? };
/// ctx.close()?;
/// # Ok(())
/// # }
/// ```
///
/// # Launchers
///
/// A program that something has started once for each PE needs to send no id. Each takes a device of its own, by its number on its host:
///
/// | started by | how | number on the host |
/// |---|---|---|
/// | `mpirun`, any MPI | `with_mpi`, with the feature of that name | `MpiPlace::local_rank` |
/// | `mpirun` of Open MPI | [`with_environment`](Self::with_environment), `NVSHMEM_BOOTSTRAP=MPI` | `OMPI_COMM_WORLD_LOCAL_RANK` |
/// | `mpiexec` of MPICH (Hydra) | `with_environment` | `MPI_LOCALRANKID` |
/// | `srun --mpi=pmi2` | `with_environment`, `NVSHMEM_BOOTSTRAP_PMI=PMI-2` | `SLURM_LOCALID` |
/// | `srun --mpi=pmix` | `with_environment`, `NVSHMEM_BOOTSTRAP_PMI=PMIX` | `SLURM_LOCALID` |
/// | anything that gives numbers | [`with_session`](Self::with_session), with an address of PE 0's host | as it says |
///
/// Without those variables the library looks for PMI, and where there is none starts as the only PE: so would each process of Open MPI's `mpirun`, for which
/// [`Context::init`] is an error therefore.
///
/// ```no_run
/// # use gpucomm::nvshmem::{Context, ContextOptions};
/// # use gpucomm::Device;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // NVSHMEM_BOOTSTRAP=MPI mpirun -n 4 program
/// let device = Device::new(std::env::var("OMPI_COMM_WORLD_LOCAL_RANK")?.parse()?)?;
/// // SAFETY: all PEs run this program.
/// let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_environment())? };
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ContextOptions {
    pub(super) device: Option<Device>,
    pub(super) bootstrap: Option<Bootstrap>,
    pub(super) exchange: Option<Exchange>,
    pub(super) timeout: Option<Duration>,
    pub(super) watchdog: bool,
}

/// How PEs find each other.
#[derive(Debug, Clone)]
pub(super) enum Bootstrap {
    ContextUniqueId {
        id: ContextUniqueId,
        pe: usize,
        n_pes: usize,
    },
    /// The id is told over the exchange.
    Exchange,
    /// The id is told at an address, at which PE 0 answers.
    Session {
        address: SocketAddr,
        pe: usize,
        n_pes: usize,
    },
    /// The library asks the environment.
    Environment,
    /// It has started already, and goes on when the context has gone.
    Running,
}

impl ContextOptions {
    /// Returns options without a way for PEs to find each other, which one of the methods sets.
    pub fn new() -> Self {
        Self { device: None, bootstrap: None, exchange: None, timeout: None, watchdog: true }
    }

    /// The device of this PE. Without it, that which is current on the calling thread.
    pub fn with_device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Whether a device was named.
    pub(crate) const fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// PEs find each other by an id that one of them has made: this is PE `pe` of `n_pes`.
    pub fn with_unique_id(mut self, id: &ContextUniqueId, pe: usize, n_pes: usize) -> Self {
        self.bootstrap = Some(Bootstrap::ContextUniqueId { id: *id, pe, n_pes });
        self
    }

    /// Ranks of `exchange` become PEs: the id goes over it, and so does who is missing, for the
    /// [watchdog](Self::with_watchdog).
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions};
    /// # use gpucomm::Device;
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// let options = ContextOptions::new().with_device(Device::new(0)?).with_exchange(&exchange);
    /// // SAFETY: all PEs run this program.
    /// let ctx = unsafe { Context::init(&options)? };
    /// assert_eq!((ctx.pe().0, ctx.n_pes()), (exchange.rank(), exchange.size()));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// With another way to start, for example [`with_unique_id`](Self::with_unique_id) after it,
    /// the exchange is for the watchdog only.
    pub fn with_exchange(mut self, exchange: &Exchange) -> Self {
        self.exchange = Some(exchange.clone());
        self.bootstrap.get_or_insert(Bootstrap::Exchange);
        self
    }

    /// PEs find each other as `nvshmem_init` has it, by what the environment says (see [launchers](Self#launchers)): `NVSHMEM_BOOTSTRAP` is `PMI` if it is not set,
    /// `MPI`, `SHMEM` or `plugin`; of PMI, `NVSHMEM_BOOTSTRAP_PMI` says which: `PMI`, `PMI-2` or `PMIX`.
    ///
    /// Where no launcher is found, this is the only PE. The plug-ins of the library for MPI and PMIx need `libmpi.so.40` and a `libpmix.so.2` that has what they
    /// were built against; versions up to 3.4.5 at least end the process (`double free`) where one cannot be loaded, and 3.8.0 does not start. `SHMEM` needs OpenSHMEM that has started before.
    ///
    /// The library keeps these PEs when the context ends: later ones of this process start by the environment too, which is not read again.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// // SAFETY: all PEs run this program.
    /// let ctx = unsafe { Context::init(&ContextOptions::new().with_device(Device::new(0)?).with_environment())? };
    /// assert_eq!(ctx.n_pes(), 1);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_environment(mut self) -> Self {
        self.bootstrap = Some(Bootstrap::Environment);
        self
    }

    /// PEs find each other at an address that all of them know, where PE 0 answers while they start: the id goes over it, so that nothing has to be sent before. As
    /// [`with_exchange`](Self::with_exchange) with a [`TcpPlace`](crate::exchange::TcpPlace), which ends when all have the id.
    ///
    /// Not the session of the library (`NVSHMEM_BOOTSTRAP_UID_SESSION_ID`), which is the address that the library itself uses, with an id that has to be sent all
    /// the same.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    /// # let (address, pe, n_pes) = (listener.local_addr().expect("an address"), 0, 1);
    /// # drop(listener);
    /// let options = ContextOptions::new().with_device(Device::new(0)?).with_session(address, pe, n_pes);
    /// // SAFETY: all PEs run this program.
    /// let ctx = unsafe { Context::init(&options)? };
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Then [`Context::init`] is [`Error::Timeout`] where not all PEs come, or PE 0 does not answer; [`Error::Exchange`] where the address cannot be listened at, and
    /// where PEs differ in how many they are.
    pub fn with_session(mut self, address: SocketAddr, pe: usize, n_pes: usize) -> Self {
        self.bootstrap = Some(Bootstrap::Session { address, pe, n_pes });
        self
    }

    /// Ranks of an MPI communicator become PEs, whatever MPI it is: as
    /// [`with_exchange`](Self::with_exchange), with one over `comm`. Collective over `comm`.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions};
    /// # use gpucomm::Device;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let universe = mpi::initialize().ok_or("MPI runs already")?;
    /// let options = ContextOptions::new().with_device(Device::new(0)?).with_mpi(&universe.world())?;
    /// // SAFETY: all ranks of the communicator run this program.
    /// let ctx = unsafe { Context::init(&options)? };
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`MpiPlace::new_timeout`](crate::exchange::MpiPlace::new_timeout), and as its `join`.
    #[cfg(feature = "mpi")]
    pub fn with_mpi(self, comm: &mpi::topology::SimpleCommunicator) -> Result<Self> {
        let exchange = crate::exchange::MpiPlace::new_timeout(comm, self.limit())?.join()?;
        Ok(self.with_exchange(&exchange))
    }

    /// Somebody else, a library in C for example, has started NVSHMEM in this process, and will finalize it.
    /// [`Context::close`] leaves it running.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::{Device, Stream, sys};
    /// # use std::mem::{MaybeUninit, transmute};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?;
    /// # let (_current, _stream) = (device.set_current()?, Stream::new(device)?);
    /// # let id = *ContextUniqueId::new()?.as_bytes();
    /// # let mut attr = MaybeUninit::uninit();
    /// # // SAFETY: 128 bytes each; a place for attributes; the only PE.
    /// # unsafe {
    /// #     let id = transmute::<[u8; 128], sys::nvshmemx_uniqueid_t>(id);
    /// #     sys::gpucommNvshmemAttrInit(attr.as_mut_ptr());
    /// #     sys::nvshmemx_set_attr_uniqueid_args(0, 1, &id, attr.as_mut_ptr());
    /// #     sys::nvshmemx_hostlib_init_attr(sys::NVSHMEMX_INIT_WITH_UNIQUEID, attr.as_mut_ptr());
    /// # }
    /// // SAFETY: all PEs run this program, and the library runs for as long as the context is there.
    /// let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_attached())? };
    /// assert_eq!(ctx.n_pes(), 1);
    /// ctx.close()?;
    /// # // SAFETY: it still runs, and there is no context.
    /// # unsafe { sys::nvshmemx_hostlib_finalize() };
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_attached(mut self) -> Self {
        self.bootstrap = Some(Bootstrap::Running);
        self
    }

    /// How long calls wait for other PEs. Without it, [`default_timeout`](crate::default_timeout). A call that gives up then asks the exchange who is missing,
    /// for a quarter of that time at most.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Whether a watchdog ends the process where a call waits within the library for longer than the timeout. It is on unless told not to be.
    ///
    /// NVSHMEM waits for other PEs for ever, and nothing gets a thread out of it. So the watchdog, a thread of its own, writes to stderr who is
    /// missing, as far as the [exchange](Self::with_exchange) knows, and ends the process with
    /// [`WATCHDOG_EXIT_CODE`](crate::nvshmem::WATCHDOG_EXIT_CODE), without exit handlers, as those would wait too.
    ///
    /// While a call waits, the watchdog asks the exchange which PEs have ended, and which have given up a call in which all meet. As soon as one of
    /// them has that the call waits for, it does not wait for the timeout: it ends the process, or has the call return
    /// [`Error::Departed`](crate::Error::Departed) where the library is not waiting on the thread. A [`Store`](crate::exchange::Store) that does not know who
    /// has ended tells nothing of that, and the timeout stays. Without a watchdog, nobody asks the exchange that.
    ///
    /// Also without a watchdog, the context keeps the exchange, so that its end is not that of the PE, and tells the others by it if this PE gives up or
    /// finalizes. A PE that comes to a meeting later than about half a second after the one before asks the exchange whether the others have given up on it: that is
    /// [`Error::Exchange`](crate::Error::Exchange), and the end of the context, if the store does not answer.
    pub fn with_watchdog(mut self, on: bool) -> Self {
        self.watchdog = on;
        self
    }

    /// Whether this is PE 0, as far as that is known before the start.
    pub(super) fn is_first(&self) -> bool {
        match &self.bootstrap {
            Some(Bootstrap::ContextUniqueId { pe, .. } | Bootstrap::Session { pe, .. }) => *pe == 0,
            _ => self.exchange.as_ref().is_none_or(|exchange| exchange.rank() == 0),
        }
    }

    pub(super) fn limit(&self) -> Duration {
        self.timeout.unwrap_or_else(default_timeout)
    }
}

impl Default for ContextOptions {
    fn default() -> Self {
        Self::new()
    }
}
