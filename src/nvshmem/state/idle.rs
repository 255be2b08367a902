//! Waits until the devices of all PEs are ready for a call in which the library waits for the whole device, or which CUDA refuses
//! beside a capture.
//!
//! A PE may come later than another one, whose threads may launch work meanwhile. That work would hold up the library, which has no
//! deadline. So each PE notes the work of its device when all have come, and waits for that. If a PE had to wait, all PEs note their
//! work once more. Other threads may always have work under way, so no PE waits until its device is idle.
//! The library still waits for work that is launched after the last note.
//!
//! If a device is not ready within the deadline of one PE, all PEs fail together, in one meeting.

use std::cell::RefCell;
use std::time::Duration;

use super::inner::Inner;
use super::meeting::{Kind, Plan};
use super::teams::TeamState;
use super::wait_state::Awaited;
use crate::cuda::{Busy, Device, Quiet};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// How long work under way may take without another meeting: also at most [`PART`] of the shortest timeout.
const MOMENT: Duration = Duration::from_millis(100);

/// How long a PE waits at most for its device until it meets the others again: also at most [`PART`] of the shortest timeout.
const ROUND: Duration = Duration::from_millis(500);

/// The others wait in a meeting for a quarter of their timeout at least. A round, and two moments in the next meeting, are less than that.
const PART: u32 = 16;

/// A meeting at which all were ready.
struct Met {
    /// The PEs that are not able to do what the plan says.
    unable: Vec<usize>,
    /// How many meetings came before, at which a PE was not ready.
    rounds: u64,
}

impl Inner {
    /// Waits until the device is idle and nothing is captured on it, before a call to which these PEs come: the library waits for the
    /// whole device there, without a deadline. Does not see streams of others ([`Stream::from_raw`](crate::Stream::from_raw)).
    pub(crate) fn idle(&self, operation: &'static str, awaited: &Awaited, deadline: &Deadline) -> Result<()> {
        let devices = [self.device];
        self.wait_for(operation, awaited, deadline, &devices, &mut Busy::with(&devices))
    }

    /// Waits until the work `busy` of these devices is done, and nothing is captured on them.
    fn wait_for(
        &self,
        operation: &'static str,
        awaited: &Awaited,
        deadline: &Deadline,
        devices: &[Device],
        busy: &mut Busy,
    ) -> Result<()> {
        let device = busy.device().unwrap_or(self.device);
        let what =
            format!("other work on {device}, all of which NVSHMEM waits for, or a capture of another thread there");
        let done = || Ok(busy.is_over() && Quiet::can_be_kept(devices));
        match awaited {
            // No PE has to come. The work may wait for one nevertheless.
            Awaited::Nobody => self.poll_local(operation, deadline, &what, done),
            _ => self.poll(operation, deadline, awaited, &what, done),
        }
    }

    /// Meets the members of `team`, or all PEs, until the work that each of them had on its `devices` when all had come is done, and
    /// nothing is captured there. All of them have met before. Work that others launch meanwhile is waited for once.
    ///
    /// # Errors
    /// Returns [`Error::Timeout`] on all of them if a device of one is not ready in time, and the errors of [`Inner::meet_in`].
    pub(crate) fn idle_together(
        &self,
        operation: &'static str,
        team: Option<&TeamState>,
        awaited: &Awaited,
        devices: &[Device],
        deadline: &Deadline,
    ) -> Result<()> {
        // All PEs find the same number of meetings, and so all of them look once more, or none does.
        for _ in 0..2 {
            let busy = RefCell::new(Busy::with(devices));
            let ready = || self.is_over_in_a_moment(&mut busy.borrow_mut(), devices);
            let wait = |round: &Deadline| self.wait_for(operation, awaited, round, devices, &mut busy.borrow_mut());
            let met = self.meet_ready(|| Plan::new(operation, Kind::Settle), team, deadline, ready, wait)?;
            if met.rounds == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Returns true if the work `busy` of these devices is done in a moment, and nothing is captured there then.
    pub(super) fn is_over_in_a_moment(&self, busy: &mut Busy, devices: &[Device]) -> bool {
        let mut look = || Ok((busy.is_over() && Quiet::can_be_kept(devices)).then_some(()));
        Deadline::after(MOMENT.min(self.shortest.time() / PART)).until(&mut look).is_ok_and(|ready| ready.is_some())
    }

    /// Meets all PEs for `plan` until nothing is captured on the device of any of them. Returns the PEs that are not able to do it.
    ///
    /// # Errors
    /// As [`idle_together`](Self::idle_together).
    pub(crate) fn meet_beside_no_capture(&self, plan: impl Fn() -> Plan, deadline: &Deadline) -> Result<Vec<usize>> {
        let (operation, devices) = (plan().operation, [self.device]);
        let ready = || Quiet::can_be_kept(&devices);
        let what = "a capture of another thread";
        let wait = |round: &Deadline| self.poll(operation, round, &Awaited::All, what, || Ok(ready()));
        Ok(self.meet_ready(&plan, None, deadline, ready, wait)?.unable)
    }

    /// Meets for `plan`, once `ready` is true on all. Until then each PE waits by `wait`, in rounds, and they meet after each round.
    fn meet_ready(
        &self,
        plan: impl Fn() -> Plan,
        team: Option<&TeamState>,
        deadline: &Deadline,
        ready: impl Fn() -> bool,
        wait: impl Fn(&Deadline) -> Result<()>,
    ) -> Result<Met> {
        let mut rounds = 0;
        loop {
            let plan = Plan { busy: !ready(), last: deadline.expired(), ..plan() };
            let said = self.answers(&plan, team)?;
            let Some(pe) = said.busy else { return Ok(Met { unable: said.unable, rounds }) };
            if let Some((last, timeout)) = said.last {
                let detail = format!(
                    "other work on the device of PE {pe}, all of which NVSHMEM waits for, or a capture of another thread there; PE {last} waits no longer"
                );
                let late = Deadline::after(timeout).error(plan.operation, detail);
                return Err(late.between((Some(last), Some(pe))));
            }
            rounds += 1;
            let round = deadline.remaining().min(self.shortest.time() / PART).min(ROUND);
            match wait(&Deadline::after(round)) {
                // The others learn the result in the next meeting.
                Ok(()) | Err(Error::Timeout { .. }) => {}
                Err(error) => {
                    self.lose(&error);
                    return Err(error);
                }
            }
        }
    }
}
