//! A look at a whole buffer.

use gpucomm::Result;

use crate::cell::Cell;
use crate::generator::Generator;
use crate::model::{Contents, Model};
use crate::rank::Rank;
use crate::step::Step;

#[derive(Debug)]
struct Check {
    slot: usize,
    contents: Contents,
    /// Whether it is copied to pinned memory.
    pinned: Vec<bool>,
    streams: Vec<usize>,
}

pub fn check(g: &mut Generator) -> Option<Box<dyn Step>> {
    let slot = g.live()?;
    Some(of(g, slot))
}

/// A check of this buffer.
pub fn of(g: &mut Generator, slot: usize) -> Box<dyn Step> {
    let contents = g.model.contents(slot).clone();
    Box::new(Check { slot, contents, pinned: g.each(|g| g.chance(3)), streams: g.streams() })
}

impl Step for Check {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let me = rank.number();
        let got = rank.bits(self.slot, rank.stream(&self.streams), self.pinned[me])?;
        let want: &[Cell] = &self.contents.ranks[me];
        let kind = self.contents.kind;
        assert_eq!(got.len(), want.len(), "length of buffer {}", self.slot);
        let wrong: Vec<usize> = (0..got.len()).filter(|&at| !want[at].admits(kind, got[at])).collect();
        if let Some(&at) = wrong.first() {
            let Cell { bits, slack } = want[at];
            panic!(
                "wrong data: buffer {}, {:?}: {} elements, first [{at}], last [{}]: got {:#x}, expected {bits:#x}{}",
                self.slot,
                self.contents,
                wrong.len(),
                wrong[wrong.len() - 1],
                got[at],
                if slack > 0.0 { format!(" within {slack:e}") } else { String::new() },
            );
        }
        Ok(())
    }
}
