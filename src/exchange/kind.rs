//! What a rank does in a round: the first byte of what it sets, so that ranks which do different things notice.

pub(super) const ALL_GATHER: u8 = 1;
pub(super) const BROADCAST: u8 = 2;
pub(super) const BARRIER: u8 = 3;
pub(super) const VOTE: u8 = 4;
pub(super) const SPLIT: u8 = 5;

/// Its name, for messages.
pub(super) fn name(kind: Option<&u8>) -> String {
    match kind {
        Some(&ALL_GATHER) => "all_gather".to_owned(),
        Some(&BROADCAST) => "broadcast".to_owned(),
        Some(&BARRIER) => "barrier".to_owned(),
        Some(&VOTE) => "vote".to_owned(),
        Some(&SPLIT) => "split".to_owned(),
        Some(other) => format!("something unknown ({other})"),
        None => "nothing".to_owned(),
    }
}
