//! How a world is made.

use std::sync::Arc;
use std::time::Duration;

use super::completion::{Completion, Polling};
use crate::deadline::default_timeout;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::nccl::InitOptions;

/// What becomes of requests for which the queue of a rank has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// Who submits one waits for room, until the deadline of the request.
    #[default]
    Wait,
    /// It is refused: [`Reason::Full`](super::Reason::Full).
    Refuse,
}

/// What becomes of requests that come while the world is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhileDown {
    /// They are refused: [`Reason::Down`](super::Reason::Down).
    #[default]
    Refuse,
    /// They wait in the queue of their rank until the world was rebuilt, or their deadline. Where it is rebuilt of fewer ranks, they are refused:
    /// [`Reason::Stale`](super::Reason::Stale). Where others are in other processes, and something was late, so that they may have more than this
    /// one, the next generation ends as it begins.
    Queue,
}

/// Of whom a world is rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Members {
    /// All ranks that there were, in the processes in which they were: it fails as long as one does not come. Where processes are started again, all of
    /// them make a new world.
    #[default]
    Same,
    /// Those that are left, numbered anew. Where a device is [lost](crate::Error::DeviceLost), that is of ranks in other processes: a kernel that traps
    /// takes all devices of its process with it (seen with driver 580), and a world of that process alone is not rebuilt.
    Survivors,
}

/// When a world is rebuilt that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rebuild {
    /// By [`World::rebuild`](super::World::rebuild).
    #[default]
    ByHand,
    /// At once, and again after pauses that get longer where that fails.
    Automatic {
        /// Of whom.
        members: Members,
        /// The first pause; each is twice as long as the one before.
        first: Duration,
        /// The longest pause.
        longest: Duration,
        /// How often it is tried.
        attempts: u32,
    },
}

/// What a world is made with.
///
/// ```
/// use std::time::Duration;
/// use gpucomm::Device;
/// use gpucomm::nccl::InitOptions;
/// use gpucomm::world::{Members, Overflow, Rebuild, WhileDown, World, WorldOptions};
///
/// # fn main() -> gpucomm::Result<()> {
/// let rebuild = Rebuild::Automatic {
///     members: Members::Survivors,
///     first: Duration::from_millis(100),
///     longest: Duration::from_secs(10),
///     attempts: 5,
/// };
/// let options = WorldOptions::new()
///     .with_queue(64)
///     .with_overflow(Overflow::Refuse)
///     .with_timeout(Duration::from_secs(30))
///     .with_spin(Duration::from_micros(50))
///     .with_sequenced(true)
///     .with_while_down(WhileDown::Queue)
///     .with_rebuild(rebuild)
///     .with_init(InitOptions::new().with_timeout(Duration::from_secs(60)));
/// let world = World::new_with(&Device::all()?, &options)?;
/// # drop(world);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct WorldOptions {
    pub(super) queue: usize,
    pub(super) overflow: Overflow,
    pub(super) completion: Arc<dyn Completion>,
    pub(super) timeout: Duration,
    pub(super) spin: Duration,
    pub(super) sequenced: bool,
    pub(super) while_down: WhileDown,
    pub(super) rebuild: Rebuild,
    pub(super) init: InitOptions,
    pub(super) name: Option<Name>,
}

impl WorldOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many requests may wait for each rank, at least 1. 1024 by default. A world that is
    /// made with 0 is refused: [`Error::InvalidArgument`].
    pub fn with_queue(mut self, requests: usize) -> Self {
        self.queue = requests;
        self
    }

    /// Sets what becomes of requests for which there is no room.
    pub fn with_overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// Sets how the world finds out that a request is done. [`Polling`], every 50 µs, by default.
    pub fn with_completion(mut self, completion: Arc<dyn Completion>) -> Self {
        self.completion = completion;
        self
    }

    /// Sets how long a request may take, from where it is submitted. One that takes longer brings
    /// the world down, as other ranks may have begun it; if there is only one rank, only if it has
    /// begun. The [default timeout](crate::default_timeout) by default.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long the thread of a rank looks for a request before it sleeps: what comes
    /// meanwhile is enqueued some microseconds earlier. Meanwhile it looks as often whether a
    /// request is done that is [polled](Polling). Zero by default.
    pub fn with_spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Sets whether the ranks take requests of all [lanes](super::Lane) in one order. `false` by
    /// default.
    pub fn with_sequenced(mut self, sequenced: bool) -> Self {
        self.sequenced = sequenced;
        self
    }

    /// Sets what becomes of requests while the world is down.
    pub fn with_while_down(mut self, while_down: WhileDown) -> Self {
        self.while_down = while_down;
        self
    }

    /// Sets when the world is rebuilt.
    pub fn with_rebuild(mut self, rebuild: Rebuild) -> Self {
        self.rebuild = rebuild;
        self
    }

    /// Sets the options that the communicators are started with. Those of several processes are
    /// checked if [`InitOptions::with_checked`] says so.
    pub fn with_init(mut self, init: InitOptions) -> Self {
        self.init = init;
        self
    }

    /// Sets the [name](super::World::name) of the world, by which errors and traces call it, and
    /// its communicators if [`with_init`](Self::with_init) has none for them. By default it is that
    /// of the communicators: `world` if nothing names them.
    ///
    /// ```
    /// use gpucomm::Device;
    /// use gpucomm::world::{World, WorldOptions};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new_with(&Device::all()?, &WorldOptions::new().with_name("experts")?)?;
    /// assert_eq!(world.name(), "experts");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if the name is empty, longer than 128 bytes or has
    /// control characters.
    pub fn with_name(mut self, name: &str) -> Result<Self> {
        self.name = Some(Name::new("WorldOptions::with_name", name)?);
        Ok(self)
    }

    /// Returns the options that the communicators are started with, which have the name of the
    /// world if they have none.
    pub(super) fn named_init(&self, world: Option<&Name>) -> InitOptions {
        match world.filter(|_| self.init.given_name().is_none()) {
            Some(name) => self.init.clone().named(name.clone()),
            None => self.init.clone(),
        }
    }

    /// Returns the error of options with which no world is made.
    pub(super) fn check(&self) -> Result<()> {
        if self.queue == 0 {
            return Err(Error::argument("World", "WorldOptions::with_queue", "room for at least 1 request", 0));
        }
        Ok(())
    }
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            queue: 1024,
            overflow: Overflow::default(),
            completion: Arc::new(Polling::default()),
            timeout: default_timeout(),
            spin: Duration::ZERO,
            sequenced: false,
            while_down: WhileDown::default(),
            rebuild: Rebuild::default(),
            init: InitOptions::default(),
            name: None,
        }
    }
}
