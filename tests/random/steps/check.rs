//! A look at a whole buffer.

use gpucomm::Result;

use crate::cell::Cell;
use crate::generator::Generator;
use crate::model::{Contents, Model};
use crate::rank::Rank;
use crate::record::digest;
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

    fn slots(&self) -> Vec<usize> {
        vec![self.slot]
    }

    fn rebase(&mut self, model: &Model) {
        self.contents = model.contents(self.slot).clone();
    }

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
        rank.sees(|| summary(want, &got));
        Ok(())
    }
}

/// What is exact bit by bit, as a digest and its first elements, and of how many elements it was found that they are within their bounds.
fn summary(want: &[Cell], got: &[u64]) -> String {
    let exact: Vec<u64> = want.iter().zip(got).filter(|(cell, _)| cell.slack == 0.0).map(|(_, bits)| *bits).collect();
    let unknown = want.iter().filter(|cell| !cell.is_known()).count();
    let first: Vec<String> = exact.iter().take(3).map(|bits| format!("{bits:x}")).collect();
    format!(
        "{} exact {:016x} [{}], {} within, {unknown} open",
        exact.len(),
        digest(exact.iter().copied()),
        first.join(" "),
        want.len() - exact.len() - unknown,
    )
}
