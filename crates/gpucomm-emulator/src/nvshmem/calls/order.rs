//! Barriers, and waits for what this PE has asked for.

use std::sync::Arc;

use super::stream::{Doing, Place, enqueue};
use crate::cuda::core::work::Running;
use crate::nvshmem::basics::Kind;
use crate::nvshmem::basics::Outcome;
use crate::nvshmem::state::boot::Activity;
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::Pe;
use crate::nvshmem::state::team::Team;
use crate::sys::{NVSHMEM_TEAM_WORLD, cudaStream_t};

/// All members of a team come here. With a barrier, whatever any of them has put has come too.
pub(crate) fn meet(pe: &Pe, team: &Team, kind: Kind, cancelled: Option<&dyn Fn() -> bool>) -> Outcome {
    match (kind, cancelled) {
        (Kind::Sync, _) => {}
        (_, None) => pe.quiesce(),
        // What the library does beside the stream comes before this, as was seen to when this was enqueued.
        (_, Some(_)) => pe.quiet(),
    }
    let activity = Activity { kind, team: 0, number: 0, bytes: 0 };
    team.group.meet(&pe.boot, activity, &[], cancelled)?.end()
}

/// A barrier or sync of a team.
pub(crate) fn of_team(kind: Kind, team: i32) -> Outcome {
    let pe = life::pe()?;
    pe.refuse_limited()?;
    meet(&pe, &*pe.teams.get(team)?, kind, None)
}

/// Of all PEs.
pub(crate) fn of_all(kind: Kind) -> Outcome {
    let pe = life::pe_or_start()?;
    meet(&pe, &*pe.teams.get(NVSHMEM_TEAM_WORLD)?, kind, None)
}

/// The same, on a stream.
struct Meeting {
    team: Arc<Team>,
    kind: Kind,
}

impl Doing for Meeting {
    type Kept = ();

    fn keep(&self, _: &Arc<Pe>) -> Outcome<()> {
        Ok(())
    }

    fn act(&self, pe: &Arc<Pe>, (): (), running: &Running) {
        // What is wrong was told.
        let _ = meet(pe, &self.team, self.kind, Some(&|| running.cancelled()));
    }
}

/// A barrier or sync of a team, on a stream.
pub(crate) fn on_stream(kind: Kind, team: Option<i32>, stream: cudaStream_t) -> Outcome {
    let pe = if team.is_some() { life::pe()? } else { life::pe_or_start()? };
    if team.is_some() {
        pe.refuse_limited()?;
    } else if pe.is_limited() {
        super::stream::refuse_capture(stream, "with limited MPG, PEs wait for each other inside the call")?;
    }
    let team = pe.teams.get(team.unwrap_or(NVSHMEM_TEAM_WORLD))?;
    let place = if kind == Kind::Sync { Place::On } else { Place::AfterInternal };
    enqueue(&pe, (stream, place), Meeting { team, kind })
}

/// What this PE has asked for has come.
struct Quiet;

impl Doing for Quiet {
    type Kept = ();

    fn keep(&self, _: &Arc<Pe>) -> Outcome<()> {
        Ok(())
    }

    fn act(&self, pe: &Arc<Pe>, (): (), _: &Running) {
        pe.quiet();
    }
}

/// `nvshmemx_quiet_on_stream`.
pub(crate) fn quiet_on_stream(stream: cudaStream_t) -> Outcome {
    enqueue(&life::pe()?, (stream, Place::AfterInternal), Quiet)
}

/// `nvshmem_quiet`, and what is no stronger.
pub(crate) fn quiet() -> Outcome {
    life::pe()?.quiesce();
    Ok(())
}
