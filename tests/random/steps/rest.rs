//! Communicators without some of the ranks, and what is made of those that were revoked.

use std::time::Duration;

use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

use super::part::works;
use crate::configs::Settings;
use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::settings::slower;
use crate::step::Step;

/// Some ranks go on without the others, which do nothing meanwhile.
#[derive(Debug)]
struct Shrink {
    /// In no order.
    without: Vec<usize>,
    /// How what is left is configured, if not as the whole.
    settings: Option<Settings>,
    streams: Vec<usize>,
    /// Whether all have work on its way that is not waited for.
    behind: bool,
    /// Whether what is left is revoked, and divided then by its ranks in turn, into so many parts of these configurations.
    revokes: Option<Vec<Settings>>,
    closes: bool,
}

pub fn shrink(g: &mut Generator) -> Option<Box<dyn Step>> {
    let ranks = g.each(|_| ()).len();
    if ranks < 2 {
        return None;
    }
    let mut without: Vec<_> = (0..ranks).collect();
    g.rng.shuffle(&mut without);
    without.truncate(g.rng.usize(1..ranks));
    let (behind, closes) = (g.chance(2), g.chance(2));
    let revokes = g.chance(2).then(|| (0..g.rng.usize(1..3)).map(|_| Settings::draw(&mut g.rng)).collect());
    let settings = g.chance(2).then(|| Settings::draw(&mut g.rng));
    Some(Box::new(Shrink { without, settings, streams: g.streams(), behind, revokes, closes }))
}

impl Step for Shrink {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, stream) = (rank.number(), rank.stream(&self.streams));
        let mut sum = DeviceBuffer::from_slice(stream, &[me as u32; 77])?;
        if self.behind {
            rank.comm.all_reduce(InPlace(&mut sum), ReduceOp::Max, stream)?;
        }
        if !self.without.contains(&me) {
            let there: Vec<_> = (0..rank.comm.size()).filter(|other| !self.without.contains(other)).collect();
            let rest = match self.settings {
                None => rank.comm.shrink(&self.without)?,
                Some(settings) => rank.comm.shrink_with(&self.without, &settings.config())?,
            };
            works(&rest, stream, me, &there)?;
            if let Some(parts) = self.revokes.as_ref().filter(|_| rank.together) {
                divide(&rest, stream, me, &there, parts)?;
            } else if self.closes {
                rest.close_timeout(slower(Duration::from_secs(20)))?;
            }
        }
        if self.behind {
            assert_eq!(sum.to_vec(stream)?, [rank.comm.size() as u32 - 1; 77], "beside a communicator of some");
        }
        Ok(())
    }
}

/// Rank `me` of all, in what is left, revokes that, as the others do, at any time of theirs; then they divide it.
fn divide(rest: &Communicator, stream: &Stream, me: usize, there: &[usize], parts: &[Settings]) -> Result<()> {
    match rest.barrier(stream) {
        Ok(()) | Err(Error::Revoked { .. }) => {}
        Err(error) => return Err(error),
    }
    let revoked = match rest.revoke("the program revokes") {
        Ok(revoked) => revoked,
        // What comes from a communicator whose parts share has parts that share, too.
        Err(Error::InvalidUsage { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let color = rest.rank() % parts.len();
    let part = revoked.split_with(Some(color), 0, &parts[color].config())?.expect("a part");
    let there: Vec<_> = there.iter().copied().skip(color).step_by(parts.len()).collect();
    works(&part, stream, me, &there)
}
