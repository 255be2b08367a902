//! Why ranks cannot meet.

/// What went wrong, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// What the caller gave leads nowhere.
    Invalid(String),
    /// The system refused something.
    System(String),
}
