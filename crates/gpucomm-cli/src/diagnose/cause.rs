//! Why a communicator has ended, by what its ranks say.

use super::dump::Dump;
use super::words::Told;

/// Ranks that end within so many nanoseconds of the first one end because of the same.
const TOGETHER: u64 = 1_000_000_000;

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
        let dump = self.0?;
        dump.reason.as_deref().or(dump.cause.as_deref())
    }

    /// `told`, which is what ranks have issued, and beside it why they have ended, if that says more: before it where it explains that.
    pub fn beside(&self, told: Told) -> Told {
        let text = match (self.0, self.text()) {
            // A drop ends a wait in vain, or none: why, it does not know.
            (Some(dump), Some(why)) if dump.ended_by("Departed") || dump.ended_by("Aborted") && !dump.is_dropped => {
                format!("it has ended: {why}; {}", told.text)
            }
            (Some(dump), Some(why)) if dump.ended_by("Nccl") => format!("{} It has ended: {why}.", told.text),
            _ => return told,
        };
        Told { text, says_why: true, ..told }
    }
}
