//! What ranks of a communicator do, in words, and what becomes of them where a peer has died.
//!
//! `ncclGetLastError` says of a communicator that has not failed what it waits for. NCCL has no such text.

use std::time::Duration;

use crate::meet::segment::{Life, MAX_RANKS};
use crate::meet::watch::Waits;
use crate::meet::watch::{self, Deed, Party};
use crate::nccl::basics::error::Failure;
use crate::nccl::basics::kind::Kind;
use crate::nccl::state::comm::Comm;

/// One wait of one rank of a communicator.
pub(crate) type Watch<'a> = watch::Watch<'a, Comm>;

/// What a rank does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    pub(crate) kind: Kind,
    /// Which collective or which message, from 1.
    pub(crate) number: u64,
    pub(crate) count: u64,
    /// Root or peer.
    pub(crate) peer: u32,
    /// What a message is part of, if it was not asked for by itself.
    pub(crate) part_of: Option<Kind>,
}

impl Activity {
    pub(crate) fn new(kind: Kind, number: u64, count: u64, peer: usize) -> Self {
        Self { kind, number, count, peer: peer as u32, part_of: None }
    }
}

/// Bits of a peer's number, in front of what a message is part of.
const PEER_BITS: u32 = 16;
const _: () = assert!(MAX_RANKS < 1 << PEER_BITS);

impl Deed for Activity {
    fn numbers(&self) -> (u8, u32, [u64; 2]) {
        let part_of = self.part_of.map_or(0, |kind| kind as u32);
        (self.kind as u8, self.peer | part_of << PEER_BITS, [self.number, self.count])
    }

    fn from_numbers(code: u8, peer: u32, [number, count]: [u64; 2]) -> Option<Self> {
        let part_of = Kind::from_code(u64::from(peer >> PEER_BITS));
        let peer = peer & ((1 << PEER_BITS) - 1);
        Some(Self { kind: Kind::from_code(u64::from(code))?, number, count, peer, part_of })
    }

    fn describe(&self) -> String {
        let Self { kind, number, count, peer, part_of } = self;
        let whose = part_of.map_or(String::new(), |whole| format!(", part of {}", whole.name()));
        match kind {
            Kind::Init => kind.name().to_owned(),
            Kind::Split | Kind::WindowRegister => format!("{} (host call #{number})", kind.name()),
            Kind::Connect => {
                let what = Kind::from_code(*number);
                let peers = match what {
                    Some(Kind::Send | Kind::Recv) => format!("rank {peer}"),
                    _ => "all ranks".to_owned(),
                };
                format!(
                    "the call of its first {} of this kind, inside which it meets {peers}",
                    what.map_or("operation", Kind::name)
                )
            }
            Kind::OneSided => format!("{}, in which all ranks meet (host call #{number})", kind.name()),
            Kind::PutSignal => format!("PutSignal of {count} elements to rank {peer}"),
            Kind::Signal => format!("Signal to rank {peer}"),
            Kind::WaitSignal => format!("WaitSignal for signal #{count} of rank {peer}"),
            Kind::Send | Kind::Recv if *count == 0 => {
                format!("an empty {} by which it connects with rank {peer} (operation #{number})", kind.name())
            }
            Kind::Send => format!("Send of {count} elements to rank {peer} (operation #{number}{whose})"),
            Kind::Recv => format!("Recv of {count} elements from rank {peer} (operation #{number}{whose})"),
            _ if kind.rooted() => {
                format!("{} of {count} elements with root {peer} (collective #{number})", kind.name())
            }
            _ => format!("{} of {count} elements (collective #{number})", kind.name()),
        }
    }

    fn idle(life: Life) -> Option<&'static str> {
        match life {
            Life::Absent => Some("has not come to CommInitRank"),
            Life::Destroyed => Some("has destroyed its communicator"),
            Life::Aborted => Some("has aborted its communicator"),
            Life::Dead => Some("is dead"),
            Life::Joined => None,
        }
    }
}

impl Party for Comm {
    type Deed = Activity;

    const NAME: &'static str = "Communicator";

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn epoch(&self) -> u32 {
        self.epoch()
    }

    fn patience(&self) -> Option<Duration> {
        self.wishes.patience()
    }

    fn is_stopped(&self, epoch: u32) -> bool {
        self.is_stopped(epoch)
    }

    fn waits(&self) -> &Waits {
        &self.waits
    }

    fn tell_of_death(&self, peer: usize, deed: &Activity) {
        self.fail(&died(self, peer, deed));
    }
}

/// The error of a rank that waits for a dead one.
pub(crate) fn died(comm: &Comm, peer: usize, activity: &Activity) -> Failure {
    Failure::remote(format!("rank {peer} died; rank {} waited for it in {}", comm.rank, activity.kind.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody has issued them, so nobody finds them in a program.
    #[test]
    fn messages_that_connect_are_not_told_as_messages() {
        let describe = |kind, count| Activity::new(kind, 3, count, 1).describe();
        assert_eq!(describe(Kind::Send, 8), "Send of 8 elements to rank 1 (operation #3)");
        assert_eq!(describe(Kind::Send, 0), "an empty Send by which it connects with rank 1 (operation #3)");
        assert_eq!(describe(Kind::Recv, 0), "an empty Recv by which it connects with rank 1 (operation #3)");
    }

    #[test]
    fn messages_tell_others_what_they_are_part_of() {
        let gathers = Activity { part_of: Some(Kind::Gather), ..Activity::new(Kind::Send, 3, 8, 255) };
        let (code, peer, more) = gathers.numbers();
        let told = Activity::from_numbers(code, peer, more).map(|deed| deed.describe());
        assert_eq!(told.as_deref(), Some("Send of 8 elements to rank 255 (operation #3, part of Gather)"));
    }
}
