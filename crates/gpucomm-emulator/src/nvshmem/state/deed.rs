//! What PEs do, in words.

use crate::meet::layout::Life;
use crate::meet::watch::Deed;
use crate::nvshmem::basics::kind::Kind;

/// What a PE does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    pub(crate) kind: Kind,
    pub(crate) team: u32,
    /// Which one of the team, from 1.
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

impl Deed for Activity {
    fn numbers(&self) -> (u8, u32, [u64; 2]) {
        (self.kind as u8, self.team, [self.number, self.bytes])
    }

    fn from_numbers(code: u8, peer: u32, [number, bytes]: [u64; 2]) -> Option<Self> {
        Some(Self { kind: Kind::from_code(u64::from(code))?, team: peer, number, bytes })
    }

    fn describe(&self) -> String {
        let Self { kind, team, number, bytes } = self;
        match kind {
            Kind::Bootstrap | Kind::Init | Kind::Finalize => kind.name().to_owned(),
            Kind::WaitUntil => format!("wait_until on a stream, for a value at {bytes:#x}"),
            Kind::TeamInit => format!("team_init by the id {number:#x}"),
            _ if *bytes == 0 => format!("{} of team {team} (its call #{number})", kind.name()),
            _ => format!("{} of {bytes} bytes, of team {team} (its call #{number})", kind.name()),
        }
    }

    fn idle(life: Life) -> Option<&'static str> {
        match life {
            Life::Absent => Some("has not come to the start"),
            Life::Destroyed => Some("has finalized"),
            Life::Aborted => Some("has given up"),
            Life::Dead => Some("is dead"),
            Life::Joined => None,
        }
    }
}
