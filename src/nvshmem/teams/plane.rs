//! Two teams for each member of another one: its row and its column.

use std::ffi::c_int;

use super::config::TeamConfig;
use super::split::check_made;
use super::team::Team;
use crate::error::{Error, Result};
use crate::nvshmem::state::meeting::{Kind, Plan};
use crate::sys;

impl<'ctx> Team<'ctx> {
    /// Wraps `nvshmem_team_split_2d`: lays the members of this team out in rows of `x_range`, and makes a team of each row and of each column. The
    /// first of the two is the row of this PE, in which members have following numbers; the second is its column.
    ///
    /// The last row may be shorter, and then some columns are as well. Collective over this team, and all members compare what they ask for.
    ///
    /// # Errors
    /// [`Error::Timeout`] if other work on this PE's device does not end in time: NVSHMEM waits for all of the device here, without a deadline. Work on streams
    /// of others ([`Stream::from_raw`](crate::Stream::from_raw)) is not seen.
    ///
    /// [`Error::InvalidArgument`] where `x_range` is 0 or more than there are members; otherwise as [`split_strided`](Self::split_strided).
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, TeamConfig, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let mut world = ctx.world()?;
    /// let wide = world.n_pes().min(4);
    /// let (row, column) = world.split_2d(wide, &TeamConfig::default(), &TeamConfig::default())?;
    /// assert_eq!(column.pe().0 * wide + row.pe().0, world.pe().0);
    /// # drop((world, row, column));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "nvshmem_team_split_2d")]
    pub fn split_2d(
        &mut self,
        x_range: usize,
        x_config: &TeamConfig,
        y_config: &TeamConfig,
    ) -> Result<(Team<'ctx>, Team<'ctx>)> {
        const OPERATION: &str = "Team::split_2d";
        const C: &str = "nvshmem_team_split_2d";
        self.check_split(OPERATION)?;
        let n_pes = self.n_pes();
        if x_range == 0 || x_range > n_pes {
            return Err(Error::argument(OPERATION, "x_range", format_args!("from 1 to {n_pes} members"), x_range));
        }
        let ((x_raw, x_mask), (y_raw, y_mask)) = (x_config.raw(OPERATION)?, y_config.raw(OPERATION)?);
        let deadline = self.inner.deadline();
        let number = self.state.next_child();
        let plan = Plan {
            numbers: [x_range as u64, 0, x_config.word(), y_config.word(), self.state.key, number],
            explain: |[x_range, ..]| format!("rows of {x_range}"),
            ..Plan::new(OPERATION, Kind::Split2d)
        };
        self.inner.meet_for_teams(&plan, &self.state, &[x_range, n_pes.div_ceil(x_range)])?;
        self.state.has_child();
        self.idle_together(OPERATION, &deadline)?;
        let (mut x_team, mut y_team) = (sys::NVSHMEM_TEAM_INVALID, sys::NVSHMEM_TEAM_INVALID);
        let x_pointer = if x_mask == 0 { std::ptr::null() } else { &raw const x_raw };
        let y_pointer = if y_mask == 0 { std::ptr::null() } else { &raw const y_raw };
        let code = self.inner.on_quiet_device(OPERATION, &self.state.awaited(), || {
            // SAFETY: the team is there, and all of its members call it now with the same numbers; the range is below the number of PEs, a C int.
            unsafe {
                sys::nvshmem_team_split_2d(
                    self.state.raw,
                    x_range as c_int,
                    x_pointer,
                    x_mask,
                    &mut x_team,
                    y_pointer,
                    y_mask,
                    &mut y_team,
                )
            }
        });
        let code = code.inspect_err(|error| self.inner.lose(error))?;
        let row = (self.state.pe / x_range) as u64;
        let column = (self.state.pe % x_range) as u64;
        let made = |raw: sys::nvshmem_team_t, parts: &[u64]| match raw {
            sys::NVSHMEM_TEAM_INVALID => Ok(None),
            raw => self.child(OPERATION, raw, parts).map(Some),
        };
        let (x, y) = (made(x_team, &[number, 0, row])?, made(y_team, &[number, 1, column])?);
        // The library makes one after the other, and says of none of them whether all are there.
        let able = code == sys::NVSHMEMX_SUCCESS && x.is_some() && y.is_some();
        let plan = Plan { able, ..Plan::new(OPERATION, Kind::Settle) };
        let unable = self.inner.meet_in(&plan, &self.state)?;
        match (x, y, unable.is_empty()) {
            (Some(x), Some(y), true) => Ok((x, y)),
            _ => {
                let code = if code == sys::NVSHMEMX_SUCCESS { sys::NVSHMEMX_ERROR_INTERNAL } else { code };
                check_made(C, code)?;
                Err(Error::InvalidUsage { operation: OPERATION, reason: "not all teams were made".to_owned() })
            }
        }
    }
}
