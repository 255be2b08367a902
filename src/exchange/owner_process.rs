//! The process that owns a store, a server or a socket. A forked child has copies of their handles,
//! and leaves the things themselves to its parent.

/// The process that has made something.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnerProcess(u32);

impl OwnerProcess {
    /// This process.
    pub(super) fn this() -> Self {
        Self(std::process::id())
    }

    /// Whether this is another process: a child of the owner.
    pub(super) fn is_another(self) -> bool {
        self.0 != std::process::id()
    }

    /// The number of the process.
    pub(super) fn process(self) -> u32 {
        self.0
    }
}
