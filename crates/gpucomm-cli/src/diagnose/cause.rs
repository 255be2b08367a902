//! Why a communicator has ended, by what its ranks say.

use super::dump::Dump;

/// Ranks that end within so many nanoseconds of the first one end because of the same.
const TOGETHER: u64 = 1_000_000_000;

/// What stands before the reason that somebody gave.
const ABORTED: &str = ": the communicator was aborted: ";

/// How a drop says that it was the end of a wait in vain, or of none: why, it does not know.
const IN_FLIGHT: &str = "with work in flight";

/// The dump of the rank that has ended first, if any has.
pub struct Cause<'d>(Option<&'d Dump>);

impl<'d> Cause<'d> {
    /// By these dumps. Who was late has had the others ended, who say so a moment before it perhaps.
    pub fn of(dumps: impl Iterator<Item = &'d Dump> + Clone) -> Self {
        let ended = dumps.filter(|dump| dump.cause.is_some());
        let first = ended.clone().min_by_key(|dump| dump.time);
        let since = first.map_or(0, |dump| dump.time);
        let late =
            ended.filter(|dump| dump.time.saturating_sub(since) < TOGETHER).find(|dump| dump.ended_by("Timeout"));
        Self(late.or(first))
    }

    /// In words.
    pub fn text(&self) -> Option<&'d str> {
        self.0?.cause.as_deref().map(reason)
    }

    /// `told`, which is what ranks have issued, and beside it why they have ended, if that says more: before it where it explains that.
    pub fn beside(&self, told: &str) -> String {
        match (self.0, self.text()) {
            (Some(dump), Some(why))
                if dump.ended_by("Gone") || dump.ended_by("Aborted") && !why.ends_with(IN_FLIGHT) =>
            {
                format!("it has ended: {why}; {told}")
            }
            (Some(dump), Some(why)) if dump.ended_by("Nccl") => format!("{told} It has ended: {why}."),
            _ => told.to_owned(),
        }
    }
}

/// A cause without the words that say that it is one.
pub fn reason(cause: &str) -> &str {
    cause
        .split_once(ABORTED)
        .filter(|(operation, why)| !operation.contains(' ') && !why.is_empty())
        .map_or(cause, |(_, why)| why)
}
