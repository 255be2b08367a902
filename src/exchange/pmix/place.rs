//! A rank of a job of PMIx, and how it meets the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::session::{Session, call_within, check};
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::exchange::announced::{Announced, Host};
use crate::exchange::handle::Exchange;
use crate::exchange::store::{Store, Swap};
use crate::exchange::tcp::Tcp;

/// Where the ranks of a job meet that a launcher with PMIx has started, and who of them shares a
/// node: `srun --mpi=pmix` of Slurm, `mpirun` of Open MPI, `prterun`.
///
/// PMIx is needed to begin with only: rank 0 listens on a port that the system chooses, PMIx tells
/// the others which, and who ends before all have [met](Self::join) ends the waits of the others,
/// where the launcher says so and does not end the whole job. Then PMIx ends, and a
/// [`Tcp`](crate::exchange::Tcp) carries what the ranks say: a launcher that knows of PMIx ends the
/// whole job where a rank dies that has not left PMIx, and survivors could not go on. Where all
/// ranks are on one node, no other host can reach that port; else all can, and the addresses of all
/// network interfaces of rank 0's node are tried, and its name.
///
/// Needs the feature `pmix`. A process meets its job by PMIx once.
///
/// ```
/// use gpucomm::exchange::PmixPlace;
/// use gpucomm::{Communicator, Device, Error, Stream, UniqueId};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let place = match PmixPlace::new() {
///     Ok(place) => place,
///     Err(error @ Error::Exchange { .. }) => {
///         eprintln!("No launcher with PMIx has started this: {error}");
///         return Ok(());
///     }
///     Err(error) => return Err(error.into()),
/// };
/// assert!(place.rank() < place.size() && place.local_rank() < place.local_size());
/// // One GPU for each rank of a node.
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
pub struct PmixPlace {
    rank: usize,
    size: usize,
    local_rank: usize,
    local_size: usize,
    host: Host,
    session: Session,
    timeout: Duration,
}

impl PmixPlace {
    /// Wraps `PMIx_Init`, `PMIx_Put` or `PMIx_Get`: a place for all ranks of the job of this
    /// process, with their ranks there.
    ///
    /// It waits for the [default timeout](crate::default_timeout); see [`new_timeout`](Self::new_timeout).
    ///
    /// # Errors
    /// As [`new_timeout`](Self::new_timeout).
    pub fn new() -> Result<Self> {
        Self::make("PmixPlace::new", default_timeout())
    }

    /// As [`new`](Self::new); this and what it [joins](Self::join) wait for `timeout` at most.
    ///
    /// It waits for rank 0 only. After an [`Error::Timeout`], a thread may still be at a call of
    /// PMIx that does not come back, and PMIx is not ended.
    ///
    /// ```
    /// # use gpucomm::Error;
    /// # use gpucomm::exchange::PmixPlace;
    /// # use std::time::Duration;
    /// match PmixPlace::new_timeout(Duration::from_secs(60)) {
    ///     Ok(place) => println!("rank {} of {}", place.rank(), place.size()),
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # assert!(std::env::var_os("PMIX_RANK").is_some() || matches!(PmixPlace::new(), Err(Error::Exchange { .. })));
    /// ```
    ///
    /// # Errors
    /// [`Error::Exchange`] where no launcher with PMIx has started this process, PMIx fails, this
    /// process has met its job already, or rank 0 cannot listen; [`Error::Departed`] where PMIx tells
    /// that a rank has ended; [`Error::Timeout`] where PMIx does not answer, or rank 0 does not
    /// come.
    pub fn new_timeout(timeout: Duration) -> Result<Self> {
        Self::make("PmixPlace::new_timeout", timeout)
    }

    fn make(operation: &'static str, timeout: Duration) -> Result<Self> {
        let deadline = Deadline::after(timeout);
        let mut session = Session::start(operation, &deadline)?;
        let job = &session.job;
        let [rank, size, local_rank, local_size] = [job.rank, job.size, job.local_rank, job.local_size].map(number);
        let beside = local_size == size || has_rank_0(&job.peers);

        let host = if rank == 0 {
            let name = (local_size < size).then(self::host);
            let (server, announced) = match Announced::serve(size, name) {
                Ok((server, announced)) => (Ok(server), Ok(announced)),
                Err(error) => {
                    let reason = error.to_string();
                    (Err(error), Err(reason))
                }
            };
            session.tell(operation, Announced::encode(&announced), &deadline)?;
            Host::Own(Box::new(server?))
        } else {
            Host::told(operation, &session.told(operation, &deadline)?, beside)?
        };
        Ok(Self { rank, size, local_rank, local_size, host, session, timeout })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Which one this is of the ranks that share its node, as the launcher has it, in their order:
    /// the device to take, where each has one.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// How many ranks share this node.
    pub fn local_size(&self) -> usize {
        self.local_size
    }

    /// The exchange of all ranks, which all have come to. PMIx has ended then.
    ///
    /// # Errors
    /// [`Error::Timeout`] where rank 0 cannot be reached at any of its addresses, or a rank does
    /// not come: it lists them; [`Error::Departed`] where PMIx tells that one has ended; those of
    /// [`Exchange::join_timeout`].
    pub fn join(self) -> Result<Exchange> {
        let operation = "PmixPlace::join";
        let Self { rank, size, host, timeout, .. } = self;
        let tcp = match host {
            Host::Own(tcp) => *tcp,
            Host::Other(announced) => {
                let deadline = Deadline::after(timeout);
                let reach = move || Ok(announced.reach(operation, rank, size, timeout));
                // It ends by itself, but knows nothing of a rank 0 that has ended.
                match call_within(&deadline, || check(operation), reach)? {
                    Some(Ok(reached)) => reached?,
                    Some(Err(reason)) => {
                        return Err(Error::Exchange { operation, key: "the server of rank 0".to_owned(), reason });
                    }
                    None => {
                        return Err(deadline
                            .error(operation, format!("rank {rank}: rank 0 is not reached"))
                            .between((Some(rank), Some(0))));
                    }
                }
            }
        };
        let meeting = Arc::new(MeetingStore::new(operation, tcp));
        let exchange = Exchange::join_timeout(Arc::clone(&meeting), timeout)?;
        meeting.all_have_met();
        drop(self.session);
        Ok(exchange)
    }
}

/// How long one read of keys waits, so that the end of a rank is noticed soon.
const LOOK: Duration = Duration::from_millis(50);

/// How long PMIx may take to report the end of a rank that made the store fail.
const TOLD: Duration = Duration::from_millis(500);

/// The store of ranks that are about to meet. If PMIx reports that a rank has ended, no rank waits
/// for it.
struct MeetingStore {
    operation: &'static str,
    tcp: Tcp,
    /// Whether all ranks have met. From then on the store reports the end of a rank to those that
    /// wait for it.
    met: AtomicBool,
}

impl MeetingStore {
    fn new(operation: &'static str, tcp: Tcp) -> Self {
        Self { operation, tcp, met: AtomicBool::new(false) }
    }

    fn all_have_met(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// The answer of the store, or an error if a rank has ended that all wait for.
    fn unless_ended<T>(&self, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.met.load(Ordering::Relaxed) {
            return ask();
        }
        let answer = ask();
        if answer.is_err() {
            // Rank 0, which serves, may be that rank, or have given up because of another one.
            Deadline::after(TOLD).until(|| check(self.operation).map(|()| None::<()>))?;
        }
        answer
    }
}

impl Store for MeetingStore {
    fn rank(&self) -> usize {
        self.tcp.rank()
    }

    fn size(&self) -> usize {
        self.tcp.size()
    }

    fn id(&self) -> u64 {
        self.tcp.id()
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        self.unless_ended(|| self.tcp.set(key, value, within))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        self.unless_ended(|| {
            if self.met.load(Ordering::Relaxed) {
                return self.tcp.get(keys, within);
            }
            let all = |values: &[Option<Vec<u8>>]| values.iter().all(Option::is_some);
            let values = self.tcp.get(keys, within.min(LOOK))?;
            // All keys are set, whoever has ended since.
            if all(&values) {
                return Ok(values);
            }
            let Err(ended) = check(self.operation) else { return Ok(values) };
            // The rank may have set them after the read, and then ended.
            let values = self.tcp.get(keys, Duration::ZERO)?;
            if all(&values) { Ok(values) } else { Err(ended) }
        })
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.unless_ended(|| self.tcp.add(key, by, within))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        self.unless_ended(|| self.tcp.compare_and_set(key, expected, value, within))
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        self.unless_ended(|| self.tcp.delete(key, within))
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        self.unless_ended(|| self.tcp.clear(prefix, within))
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        if !self.met.load(Ordering::Relaxed) {
            check(self.operation)?;
        }
        self.tcp.ended(ids, within)
    }
}

/// Whether rank 0 is among `peers`, such as `0,1,4-7`.
fn has_rank_0(peers: &str) -> bool {
    peers.split(',').any(|part| part.split('-').next().is_some_and(|first| first.trim() == "0"))
}

/// The name of this host.
fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// A number of ranks, which PMIx has in 32 bits.
fn number(rank: u32) -> usize {
    usize::try_from(rank).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_0_is_found_among_peers() {
        for peers in ["0", "0,1,2", "2,0", "0-3", "4,0-1"] {
            assert!(has_rank_0(peers), "{peers}");
        }
        for peers in ["", "1", "10,20", "1-3", "100-200,3"] {
            assert!(!has_rank_0(peers), "{peers}");
        }
    }
}
