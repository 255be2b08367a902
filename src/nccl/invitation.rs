//! Invitations into a communicator that grows, each for one rank and for one use.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::children::grow::{Host, Invited};
use super::communicator::Communicator;
use super::lifecycle::start::{self, Starting};
use super::rank::helper::Helper;
use super::rank::inner::{Inner, LocalRanks};
use super::setup::config::Config;
use super::setup::init_options::InitOptions;
use super::setup::unique_id::UniqueId;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::name::{MOST_BYTES, Name};

/// The way into a communicator that [grows](Communicator::grow), for one new rank, which goes it once: it cannot be copied.
///
/// In the process of a clique it is [accepted](Invitation::accept). To another process go its [bytes](Invitation::into_bytes).
pub struct Invitation {
    id: UniqueId,
    /// What the communicator goes by in each process.
    key: UniqueId,
    size: usize,
    rank: usize,
    /// What the ranks that have invited call the communicator.
    name: Name,
    local: Option<Local>,
}

/// Where the length of the name lies in the bytes, before the name: behind two ids and two numbers.
const NAME: usize = 2 * UniqueId::BYTES + 16;

/// What an invitation into a clique holds that is not in its bytes.
struct Local {
    /// Kept alive until the new rank has joined them.
    clique: Arc<LocalRanks>,
    host: Host,
    config: Config,
    timeout: Duration,
}

impl Invitation {
    /// How many bytes one is.
    pub const BYTES: usize = NAME + 1 + MOST_BYTES;

    /// Those of all who are invited to `before` ranks.
    pub(super) fn all(invited: &Invited, before: usize) -> Vec<Self> {
        let Invited { id, key, size, name, clique, host, config, timeout } = invited;
        let local = || {
            let clique = Arc::clone(clique.as_ref()?);
            Some(Local { clique, host: host.clone(), config: config.clone(), timeout: *timeout })
        };
        let one = |rank| Self { id: *id, key: *key, size: *size, rank, name: name.clone(), local: local() };
        (before..*size).map(one).collect()
    }

    /// The number of the new rank.
    ///
    /// ```
    /// use gpucomm::nccl::Invitation;
    ///
    /// fn describe(invitation: &Invitation) -> String {
    ///     format!("rank {} of {}", invitation.rank(), invitation.size())
    /// }
    /// # let _ = describe;
    /// ```
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there will be.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Comes into the clique that has invited, as a rank on `device`, with its configuration and timeout, while its ranks
    /// [grow](Communicator::grow).
    ///
    /// ```
    /// use gpucomm::nccl::Invitation;
    /// use gpucomm::{Device, Result};
    ///
    /// fn newcomer(invitation: Invitation, device: Device) -> Result<usize> {
    ///     let comm = invitation.accept(device)?;
    ///     Ok(comm.size())
    /// }
    /// # let _ = newcomer;
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] where it is not of a clique, whose ranks compare what they do: [`Communicator::join`];
    /// [`Error::Timeout`] where not all come in time; [`Error::Revoked`] or [`Error::Aborted`] soon after the communicator that has
    /// invited was revoked, or has ended, without growing; otherwise as [`Clique::init_all`](super::Clique::init_all).
    pub fn accept(self, device: Device) -> Result<Communicator> {
        const OPERATION: &str = "Invitation::accept";
        if self.local.is_none() {
            let reason = "nobody compares what its ranks do, so that it takes Communicator::join".to_owned();
            return Err(Error::InvalidUsage { operation: OPERATION, reason });
        }
        self.come(OPERATION, device, None).map(Communicator::from_inner)
    }

    /// Comes, with these options where it is of no clique.
    pub(super) fn come(
        self,
        operation: &'static str,
        device: Device,
        options: Option<&InitOptions>,
    ) -> Result<Arc<Inner>> {
        let host = self.local.as_ref().map(|local| local.host.clone());
        let starting = self.begin(operation, device, options, None)?;
        let started = match host {
            Some(host) => starting.wait_unless(|| host.cannot_grow(operation))?,
            None => starting.wait()?,
        };
        started.into_iter().next().ok_or_else(|| start::nothing(operation))
    }

    /// Returns the name of the communicator that it leads to, on a rank that comes with `options`.
    pub(super) fn name_with<'a>(&'a self, options: Option<&'a InitOptions>) -> &'a Name {
        options.and_then(InitOptions::given_name).unwrap_or(&self.name)
    }

    /// The same, which goes on by itself, on the thread `helper` if there is one already.
    pub(super) fn begin(
        self,
        operation: &'static str,
        device: Device,
        options: Option<&InitOptions>,
        helper: Option<Helper>,
    ) -> Result<Starting> {
        let called = self.name_with(options).clone();
        let Self { id, key, size, rank, name, local } = self;
        let (_clique, options) = match local {
            Some(Local { clique, config, timeout, .. }) => {
                (Some(clique), InitOptions::new().with_config(config).with_timeout(timeout).named(name))
            }
            None => (None, options.cloned().unwrap_or_default().named(called)),
        };
        start::newcomer(operation, device, (id, key), (size, rank), &options, helper)
    }

    /// The bytes, for another process, which makes an invitation of them again: [`Invitation::from_bytes`].
    ///
    /// ```
    /// use gpucomm::nccl::Invitation;
    ///
    /// fn send(invitation: Invitation, to: &mut impl std::io::Write) -> std::io::Result<()> {
    ///     let bytes = invitation.into_bytes().map_err(std::io::Error::other)?;
    ///     to.write_all(&bytes)
    /// }
    /// # let _ = |invitation| send(invitation, &mut Vec::new());
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] for one of a clique, all ranks of which are in one process.
    pub fn into_bytes(self) -> Result<[u8; Self::BYTES]> {
        if self.local.is_some() {
            let reason = "it is of a clique, whose ranks are in one process".to_owned();
            return Err(Error::InvalidUsage { operation: "Invitation::into_bytes", reason });
        }
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.size as u64, self.rank as u64].map(u64::to_le_bytes);
        let name = self.name.as_str().as_bytes();
        let length = [name.len() as u8];
        let ids = self.id.as_bytes().iter().chain(self.key.as_bytes());
        let all = ids.chain(numbers.as_flattened()).chain(&length).chain(name);
        bytes.iter_mut().zip(all).for_each(|(place, byte)| *place = *byte);
        Ok(bytes)
    }

    /// That of which these are the [bytes](Invitation::into_bytes). Each is used once.
    ///
    /// ```
    /// use gpucomm::nccl::Invitation;
    ///
    /// let nonsense = Invitation::from_bytes([0; Invitation::BYTES]);
    /// assert_eq!((nonsense.rank(), nonsense.size()), (0, 0));
    /// ```
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let id = |from: usize| UniqueId::from_bytes(std::array::from_fn(|at| bytes[from + at]));
        let number = |from: usize| u64::from_le_bytes(std::array::from_fn(|at| bytes[from + at])) as usize;
        let numbers = 2 * UniqueId::BYTES;
        let name = bytes[NAME + 1..].get(..usize::from(bytes[NAME])).and_then(|name| std::str::from_utf8(name).ok());
        // Bytes that no rank has sent may have no name.
        let name = name.and_then(|name| Name::new("Invitation::from_bytes", name).ok()).unwrap_or_default();
        let (size, rank) = (number(numbers), number(numbers + 8));
        Self { id: id(0), key: id(UniqueId::BYTES), size, rank, name, local: None }
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}
