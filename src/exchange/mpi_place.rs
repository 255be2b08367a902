//! Where the ranks of an MPI job meet.

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

/// Where the ranks of an MPI communicator meet, and who of them shares a host: what a launcher such as `mpirun` has started.
///
/// MPI is asked once, by all ranks together, and only to begin with: rank 0 listens on a port that the system chooses, MPI tells the others
/// which, and from then on a [`Tcp`] carries what the ranks say, so that waits have deadlines and who has died is noticed. Where all ranks
/// are on one host, no other host can reach that port; else all can, and the addresses of all network interfaces of rank 0's host are tried, and its
/// name. Where a cluster wants a certain one, a [`TcpPlace`] with MPI's ranks does it.
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
/// comm.wait_at_barrier(&Stream::new(device)?)?;
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
    /// Wraps `MPI_Iallgather` and `MPI_Ibcast`: a place for all ranks of `comm`, with their ranks there. All of them call it,
    /// in the same order as their other collectives on `comm`.
    ///
    /// It waits for the [default timeout](crate::default_timeout); see [`within`](Self::within).
    ///
    /// # Errors
    /// As [`within`](Self::within).
    pub fn new(comm: &SimpleCommunicator) -> Result<Self> {
        Self::make("MpiPlace::new", comm, default_timeout())
    }

    /// As [`new`](Self::new); this and what it [joins](Self::join) wait for `timeout` at most.
    ///
    /// The deadline is for ranks that do not come, and for one that comes when others have given up. Where a rank dies that has come, what becomes of the others is up to MPI, which ends all of
    /// them unless it was told otherwise. After an [`Error::Timeout`], MPI still has a collective open on `comm`, and some memory for it is kept: no collective works there any more, and the end of MPI (`MPI_Finalize`) may wait for it.
    ///
    /// ```
    /// # use gpucomm::exchange::MpiPlace;
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let universe = mpi::initialize().ok_or("MPI runs already")?;
    /// let place = MpiPlace::within(&universe.world(), Duration::from_secs(60))?;
    /// let exchange = place.join()?;
    /// assert_eq!(exchange.timeout(), Duration::from_secs(60));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where a rank does not come, or others have given up; rank 0 may hear of that when it [joins](Self::join) only; [`Error::Exchange`] on all ranks where rank 0 cannot listen.
    pub fn within(comm: &SimpleCommunicator, timeout: Duration) -> Result<Self> {
        Self::make("MpiPlace::within", comm, timeout)
    }

    fn make(operation: &'static str, comm: &SimpleCommunicator, timeout: Duration) -> Result<Self> {
        let (rank, size) = (number(comm.rank()), number(comm.size()));
        // Who is late has a deadline, too: so no collective here is one that blocks.
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

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Which one this is of the ranks that share its host (by `MPI_Get_processor_name`, and what the system says), in their order: the device to take, where each has one.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// How many ranks share this host.
    pub fn local_size(&self) -> usize {
        self.local_size
    }

    /// The exchange of all ranks: [`Exchange::join`] with its [store](Self::store).
    ///
    /// # Errors
    /// As [`store`](Self::store) and [`Exchange::join_within`].
    pub fn join(self) -> Result<Exchange> {
        let timeout = self.timeout;
        Exchange::join_within(self.store()?, timeout)
    }

    /// The store of this rank.
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
    /// [`Error::Timeout`] where rank 0 cannot be reached at any of its addresses; those of [`TcpPlace::connect`].
    pub fn store(self) -> Result<Tcp> {
        match self.host {
            Host::Own(server) => Ok(*server),
            Host::Other(announced) => announced.reach("MpiPlace::store", self.rank, self.size, self.timeout),
        }
    }
}

/// What all ranks do together to begin with.
struct Call {
    operation: &'static str,
    rank: usize,
    size: usize,
    deadline: Deadline,
}

impl Call {
    /// What `request` was for, when it is done. Its memory lasts as long as the process: a request cannot be taken back.
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
        // Dropped, it panics.
        std::mem::forget(request);
        let Self { operation, rank, size, .. } = self;
        done.ok_or_else(|| self.deadline.error(operation, format!("rank {rank} of {size}: {missing}")))
    }
}

/// A name of this host, as MPI and the system have it.
fn host() -> [u64; 2] {
    let name = mpi::environment::processor_name().unwrap_or_default();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let name = digest(name.into_bytes().into_iter().chain([0]).chain(boot)).to_le_bytes();
    [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| name[at + byte])))
}

/// The number of a rank, or of ranks, which MPI has as a signed one.
fn number(rank: mpi::topology::Rank) -> usize {
    usize::try_from(rank).unwrap_or(0)
}
