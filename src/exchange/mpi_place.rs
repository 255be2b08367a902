//! The exchange of the ranks of an MPI job.

use std::time::Duration;

use mpi::collective::{CommunicatorCollectives, Root};
use mpi::request::{Request, StaticScope};
use mpi::topology::{Communicator, SimpleCommunicator};

use super::announced::{Announced, Host};
use super::digest::digest;
use super::handle::Exchange;
use super::tcp::Tcp;
#[cfg(doc)]
use super::tcp::TcpPlace;
use crate::deadline::{Deadline, default_timeout};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// The meeting place of the ranks of an MPI communicator, which a launcher such as `mpirun` has started. It
/// also says which ranks share a host.
///
/// MPI is used only for the start. Rank 0 listens on a port that the system chooses, and MPI tells the
/// other ranks which one. After that, the ranks communicate over a [`Tcp`] store, so that waits have
/// deadlines and the death of a rank is noticed.
///
/// If all ranks are on one host, other hosts cannot reach the port. Otherwise they can: the ranks try the
/// addresses of all network interfaces of rank 0's host, and its name. To choose an address, pass the
/// ranks of MPI to a [`TcpPlace`].
///
/// Needs the feature `mpi`.
///
/// ```
/// use gpucomm::exchange::MpiPlace;
/// use gpucomm::{Communicator, Device, Stream, UniqueId};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let universe = mpi::initialize().ok_or("MPI runs already")?;
/// let place = MpiPlace::new(&universe.world())?;
/// assert!(place.rank() < place.size() && place.local_rank() < place.local_size());
/// // One GPU for each rank of a host.
/// let device = Device::new(place.local_rank())?;
/// let exchange = place.join()?;
/// let id = UniqueId::shared(&exchange)?;
/// // SAFETY: all ranks of the communicator run this program, and so issue the same operations in the same order.
/// let comm = unsafe { Communicator::init_rank(device, exchange.size(), &id, exchange.rank())? };
/// comm.barrier(&Stream::new(device)?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MpiPlace {
    rank: usize,
    size: usize,
    local_rank: usize,
    local_size: usize,
    host: Host,
    timeout: Duration,
}

impl MpiPlace {
    /// Makes a meeting place of all ranks of `comm`, which keep their ranks. Wraps `MPI_Iallgather` and
    /// `MPI_Ibcast`.
    ///
    /// This is a collective call: all ranks of `comm` make it, in the same order as their other
    /// collectives on `comm`. It waits for the [default timeout](crate::default_timeout) at most.
    ///
    /// # Errors
    /// As [`new_timeout`](Self::new_timeout).
    pub fn new(comm: &SimpleCommunicator) -> Result<Self> {
        Self::make("MpiPlace::new", comm, default_timeout())
    }

    /// As [`new`](Self::new), with a timeout for this call and for the exchange that it [joins](Self::join).
    ///
    /// The timeout applies if a rank does not call this, or calls it after others have given up. If a
    /// rank dies during the call, MPI decides what happens to the others. By default, it ends all of them.
    ///
    /// After an [`Error::Timeout`], a collective on `comm` is still open, and its memory is kept. No
    /// further collective works on `comm`, and `MPI_Finalize` may wait for the open one.
    ///
    /// ```
    /// # use gpucomm::exchange::MpiPlace;
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let universe = mpi::initialize().ok_or("MPI runs already")?;
    /// let place = MpiPlace::new_timeout(&universe.world(), Duration::from_secs(60))?;
    /// let exchange = place.join()?;
    /// assert_eq!(exchange.timeout(), Duration::from_secs(60));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns
    /// - [`Error::Timeout`] if a rank does not call this in time, or others have given up. Rank 0 may notice
    ///   it only when it [joins](Self::join).
    /// - [`Error::Exchange`] on all ranks if rank 0 cannot listen.
    pub fn new_timeout(comm: &SimpleCommunicator, timeout: Duration) -> Result<Self> {
        Self::make("MpiPlace::new_timeout", comm, timeout)
    }

    fn make(operation: &'static str, comm: &SimpleCommunicator, timeout: Duration) -> Result<Self> {
        let (rank, size) = (number(comm.rank()), number(comm.size()));
        // Use nonblocking collectives only: a blocking one has no deadline.
        let call = Call { operation, rank, size, deadline: Deadline::after(timeout) };
        let here = host();
        let all = vec![0u64; 2 * size].leak();
        let gathered = comm.immediate_all_gather_into(StaticScope, Box::leak(Box::new(here)), all);
        let all = call.within(gathered, "not all ranks have come")?;
        let hosts: Vec<[u64; 2]> = all.chunks_exact(2).map(|host| [host[0], host[1]]).collect();
        let local_rank = hosts[..rank].iter().filter(|host| **host == here).count();
        let local_size = hosts.iter().filter(|host| **host == here).count();

        let (mut own, mut failed, mut told) = (None, None, Vec::new());
        if rank == 0 {
            let elsewhere = local_size < size;
            let name = elsewhere.then(|| mpi::environment::processor_name().unwrap_or_default());
            let announced = match Announced::serve(size, name) {
                Ok((server, announced)) => {
                    own = Some(server);
                    Ok(announced)
                }
                Err(error) => Err(failed.insert(error).to_string()),
            };
            told = Announced::encode(&announced);
        }
        let root = comm.process_at_rank(0);
        let len = Box::leak(Box::new(u64::try_from(told.len()).unwrap_or(u64::MAX)));
        let len = call.within(root.immediate_broadcast_into(StaticScope, len), "rank 0 has not said where it is")?;
        told.resize(usize::try_from(*len).unwrap_or(usize::MAX), 0);
        let told =
            call.within(root.immediate_broadcast_into(StaticScope, told.leak()), "rank 0 has not said where it is")?;
        let beside = hosts[0] == here;

        if let Some(error) = failed {
            return Err(error);
        }
        let host = match own {
            Some(server) => Host::Own(Box::new(server)),
            None => Host::told(operation, told, beside)?,
        };
        Ok(Self { rank, size, local_rank, local_size, host, timeout })
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The number of this rank among the ranks of its host, in their order. Use it as the device ordinal if
    /// each rank has one GPU.
    ///
    /// Ranks share a host if `MPI_Get_processor_name` and the boot id of the system are equal.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// The number of ranks of this host.
    pub fn local_size(&self) -> usize {
        self.local_size
    }

    /// Joins the exchange of all ranks. The same as [`Exchange::join_timeout`] with the [store](Self::store).
    ///
    /// # Errors
    /// As [`store`](Self::store) and [`Exchange::join_timeout`].
    pub fn join(self) -> Result<Exchange> {
        let timeout = self.timeout;
        Exchange::join_timeout(self.store()?, timeout)
    }

    /// Connects to the store.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, MpiPlace};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let universe = mpi::initialize().ok_or("MPI runs already")?;
    /// let exchange = Exchange::join(MpiPlace::new(&universe.world())?.store()?)?;
    /// assert_eq!(exchange.size(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Timeout`] if rank 0 cannot be reached at any of its addresses, and the errors of [`TcpPlace::connect`].
    pub fn store(self) -> Result<Tcp> {
        match self.host {
            Host::Own(server) => Ok(*server),
            Host::Other(announced) => announced.reach("MpiPlace::store", self.rank, self.size, self.timeout),
        }
    }
}

/// The collective call that makes the place.
struct Call {
    operation: &'static str,
    rank: usize,
    size: usize,
    deadline: Deadline,
}

impl Call {
    /// Waits for `request`, and returns its data. The data lives as long as the process, because a request
    /// cannot be cancelled.
    fn within<D: ?Sized>(&self, request: Request<'static, D, StaticScope>, missing: &str) -> Result<&'static D> {
        let mut request = Some(request);
        let done = self.deadline.until(|| match request.take().map(Request::test_with_data) {
            Some(Ok((_, data))) => Ok(Some(data)),
            Some(Err(open)) => {
                request = Some(open);
                Ok(None)
            }
            None => Ok(None),
        })?;
        // Dropping an open request panics.
        std::mem::forget(request);
        let Self { operation, rank, size, .. } = self;
        done.ok_or_else(|| self.deadline.error(operation, format!("rank {rank} of {size}: {missing}")).waited_by(*rank))
    }
}

/// Identifies this host, by its MPI processor name and the boot id of the system.
fn host() -> [u64; 2] {
    let name = mpi::environment::processor_name().unwrap_or_default();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let name = digest(name.into_bytes().into_iter().chain([0]).chain(boot)).to_le_bytes();
    [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| name[at + byte])))
}

/// Converts a rank, or a number of ranks, of MPI, which are signed.
fn number(rank: mpi::topology::Rank) -> usize {
    usize::try_from(rank).unwrap_or(0)
}
