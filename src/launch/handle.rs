//! What a launcher has started, as users hold it.

use std::cell::RefCell;
use std::ffi::OsString;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::choose::choose;
use super::claim::{Claim, usage};
use super::environment::Environment;
use super::meeting::{self, Meeting, SECRET};
use super::meets::Meets;
use crate::deadline::default_timeout;
use crate::error::{Error, Result};
use crate::launchers::Launcher;
use crate::lock::Mutex;

/// Who this process is among those that a launcher has started, and where they meet; see the [module](super).
///
/// A clone is the same: ranks meet once, and keep their [exchange](Self::join) until the last clone is dropped.
///
/// ```
/// # use gpucomm::Launch;
/// # fn main() -> gpucomm::Result<()> {
/// let launch = Launch::from_env()?;
/// println!("rank {} of {}, started by {}", launch.rank(), launch.size(), launch.launcher());
/// let exchange = launch.join()?;
/// assert_eq!((exchange.rank(), exchange.size()), (launch.rank(), launch.size()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Launch {
    pub(super) shared: Arc<Shared>,
    timeout: Option<Duration>,
}

/// What clones have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) claim: Claim,
    pub(super) meeting: Meeting,
    pub(super) job: String,
    pub(super) secret: Option<Secret>,
    pub(super) device: Option<usize>,
    pub(super) meets: Meets,
}

/// Bytes that nobody is shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Launch {
    /// What the environment says. Where no launcher has left anything there, this is the only rank.
    ///
    /// As long as a `Launch` of the same environment is there, this is a clone of that.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] if a launcher says half of it, if launchers contradict each other, which the error lists, or if a
    /// variable is not UTF-8. [`Error::InvalidArgument`] for a variable that is no number, or names nothing that exists.
    pub fn from_env() -> Result<Self> {
        static OF_ENVIRONMENT: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
        let shared = Shared::read_bytes(|name| std::env::var_os(name))?;
        let mut known = OF_ENVIRONMENT.lock();
        // Where ranks meet, rank 0 can listen once only.
        let shared = match known.upgrade().filter(|known| known.is_like(&shared)) {
            Some(known) => known,
            None => Arc::new(shared),
        };
        *known = Arc::downgrade(&shared);
        Ok(Self { shared, timeout: None })
    }

    /// What other variables than those of this process say: those of a test, or of a process that is to be started.
    ///
    /// ```
    /// # use gpucomm::{Launch, Launcher};
    /// # fn main() -> gpucomm::Result<()> {
    /// let set = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
    /// let launch = Launch::from_vars(|name| set.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned()))?;
    /// assert_eq!((launch.launcher(), launch.rank(), launch.size()), (Launcher::OpenMpi, 1, 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_vars(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
        Ok(Self { shared: Arc::new(Shared::read(&Environment(&get))?), timeout: None })
    }

    /// What the program says by itself: this is `rank` of `size`, all of which meet at `store`, as `GPUCOMM_STORE` has it.
    ///
    /// ```
    /// # use gpucomm::{Launch, Launcher};
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = Launch::new(0, 1, "tcp://127.0.0.1:0")?.with_local(0, 1)?;
    /// assert_eq!((launch.launcher(), launch.local_rank()), (Launcher::Explicit, Some(0)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that is none of `size`, and a store of no kind that there is.
    pub fn new(rank: usize, size: usize, store: &str) -> Result<Self> {
        let claim =
            Claim { launcher: Launcher::Explicit, rank, size, local_rank: None, local_size: None, seen: Vec::new() };
        claim.check().map_err(|_| Error::argument("Launch::new", "rank", format_args!("less than {size}"), rank))?;
        let meeting = Meeting::named(store, String::new(), size)?;
        let (job, meets) = (String::new(), Meets::default());
        let shared = Shared { claim, meeting, job, secret: None, device: None, meets };
        Ok(Self { shared: Arc::new(shared), timeout: None })
    }

    /// The same, where this is the `rank`th of `size` ranks on its host.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that is none of `size`, and more ranks on a host than there are. [`Error::InvalidUsage`] once ranks have
    /// met.
    pub fn with_local(self, rank: usize, size: usize) -> Result<Self> {
        let operation = "Launch::with_local";
        let Self { shared, timeout } = self;
        if shared.meets.have_begun() {
            return Err(Error::InvalidUsage { operation, reason: "the ranks have met already".to_owned() });
        }
        let claim = Claim { local_rank: Some(rank), local_size: Some(size), ..shared.claim.clone() };
        claim.check().map_err(|wrong| Error::argument(operation, "rank", "a rank of those on a host", wrong))?;
        let Shared { meeting, job, secret, device, .. } = &*shared;
        let (meeting, job, secret, meets) = (meeting.clone(), job.clone(), secret.clone(), Meets::default());
        let shared = Shared { claim, meeting, job, secret, device: *device, meets };
        Ok(Self { shared: Arc::new(shared), timeout })
    }

    /// The same, whose ranks wait `timeout` at most for each other, in place of the [default](crate::default_timeout).
    ///
    /// ```
    /// # use gpucomm::Launch;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = Launch::from_env()?.with_timeout(Duration::from_secs(60));
    /// assert_eq!(launch.timeout(), Duration::from_secs(60));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long ranks wait for each other.
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or_else(default_timeout)
    }

    /// Who has started the ranks.
    pub fn launcher(&self) -> Launcher {
        self.shared.claim.launcher
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.shared.claim.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.shared.claim.size
    }

    /// Which one this is of the ranks on its host, where the launcher says so.
    pub fn local_rank(&self) -> Option<usize> {
        self.shared.claim.local_rank
    }

    /// How many ranks are on this host, where the launcher says so.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = gpucomm::Launch::new(0, 4, "tcp://node-0:29500")?.with_local(0, 2)?;
    /// assert_eq!((launch.local_rank(), launch.local_size()), (Some(0), Some(2)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn local_size(&self) -> Option<usize> {
        self.shared.claim.local_size
    }

    /// The host and the port at which ranks meet, where they do so over a network; of several ports that are tried the first.
    ///
    /// ```
    /// # use gpucomm::Launch;
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = Launch::new(0, 2, "tcp://node-0:29500")?;
    /// assert_eq!(launch.master_address().as_deref(), Some("node-0:29500"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn master_address(&self) -> Option<String> {
        match &self.shared.meeting {
            Meeting::Tcp { host, ports, .. } => Some(format!("{host}:{}", ports.first()?)),
            Meeting::Server { host, port, .. } | Meeting::C10d { host, port, .. } => Some(format!("{host}:{port}")),
            Meeting::Alone | Meeting::Directory { .. } | Meeting::Nowhere(_) => None,
        }
    }

    /// The name of the job, by which a store that several jobs use tells them apart: `GPUCOMM_JOB`,
    /// or one that is made of the launcher's own number. Empty if nothing names the job.
    ///
    /// ```
    /// # use gpucomm::Launch;
    /// # fn main() -> gpucomm::Result<()> {
    /// let set = [("GPUCOMM_JOB", "training-17")];
    /// let launch = Launch::from_vars(|name| set.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned()))?;
    /// assert_eq!(launch.job(), "training-17");
    /// # Ok(())
    /// # }
    /// ```
    pub fn job(&self) -> &str {
        &self.shared.job
    }

    /// The variables that said who this process is, as `NAME=value`.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// // By itself, nobody has said anything.
    /// for said in gpucomm::Launch::from_env()?.seen() {
    ///     println!("{said}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn seen(&self) -> &[String] {
        &self.shared.claim.seen
    }
}

impl Shared {
    /// Reads variables that may not be UTF-8. Refuses those: as text, two of them may be the same. Shows no value, which may be a
    /// secret.
    pub(super) fn read_bytes(get: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let wrong = RefCell::new(None);
        let text = |name: &str| match get(name)?.into_string() {
            Ok(text) => Some(text),
            Err(bytes) => {
                let reason = format!("{name}: expected UTF-8, got {} bytes that are not", bytes.len());
                wrong.borrow_mut().get_or_insert(usage(reason));
                None
            }
        };
        let read = Self::read(&Environment(&text));
        wrong.take().map_or(read, Err)
    }

    pub(super) fn read(environment: &Environment<'_>) -> Result<Self> {
        let claim = choose(environment)?;
        let meeting = Meeting::of(environment, &claim)?;
        let job = meeting::job(environment, &claim);
        let secret = environment.exact(SECRET).map(Secret);
        if secret.is_some() && !cfg!(feature = "secret") {
            return Err(usage(format!("{} is set: expected gpucomm with the feature `secret`", SECRET)));
        }
        if secret.is_some() && matches!(meeting, Meeting::C10d { .. }) {
            let reason = "is set, and PyTorch's store has none: expected GPUCOMM_STORE=tcp://host:port beside it";
            return Err(usage(format!("{} {reason}", SECRET)));
        }
        let device = environment.number(&["GPUCOMM_DEVICE"])?;
        Ok(Self { claim, meeting, job, secret, device, meets: Meets::default() })
    }

    /// Whether another reading of the environment said the same.
    fn is_like(&self, other: &Self) -> bool {
        (&self.claim, &self.meeting, &self.job, &self.secret, self.device)
            == (&other.claim, &other.meeting, &other.job, &other.secret, other.device)
    }
}
