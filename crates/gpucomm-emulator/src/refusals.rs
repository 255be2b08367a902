//! What the emulated driver has of multicast, and what it refuses: `GPUCOMM_EMULATOR_MULTICAST` names what is to be otherwise, with commas
//! between.

use std::sync::atomic::{AtomicU64, Ordering};

/// A step on the way to a multicast object that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    Add,
    Bind,
    Map,
    Unbind,
    Export,
    Import,
}

const STEPS: [(&str, Step); 7] = [
    ("create", Step::Create),
    ("add", Step::Add),
    ("bind", Step::Bind),
    ("map", Step::Map),
    ("unbind", Step::Unbind),
    ("export", Step::Export),
    ("import", Step::Import),
];

/// A step that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    step: Step,
    code: u32,
    /// The first of its calls that fails, from 1, and how many do.
    from: u64,
    times: u64,
}

/// What is otherwise; nothing unless asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    /// `old-driver`: it has none of these functions, as before CUDA 12.1.
    pub old_driver: bool,
    /// `unsupported`: the devices have no multicast.
    pub unsupported: bool,
    /// `v2`: it has the functions of CUDA 13.1.
    pub v2: bool,
    /// `STEP=CODE`, `STEP=CODE*TIMES`, `STEP=CODE@NUMBER`: calls that fail with this code: all, the first ones, or that one.
    rules: Vec<Rule>,
}

impl Refusals {
    /// What the variable may hold.
    pub const EXPECTED: &'static str = "with commas between: old-driver, unsupported, v2, and STEP=CODE, STEP=CODE*TIMES or STEP=CODE@NUMBER, where steps are create, add, bind, map, unbind, export and import, such as add=802*3";

    pub fn parse(text: &str) -> Option<Self> {
        let mut refusals = Self::default();
        for name in text.split(',').map(str::trim) {
            match name {
                "old-driver" => refusals.old_driver = true,
                "unsupported" => refusals.unsupported = true,
                "v2" => refusals.v2 = true,
                rule => refusals.rules.push(Rule::parse(rule)?),
            }
        }
        Some(refusals)
    }

    /// The code with which this call fails, if it does. Counts the calls.
    pub fn code(&self, step: Step) -> Option<u32> {
        static CALLS: [AtomicU64; STEPS.len()] = [const { AtomicU64::new(0) }; STEPS.len()];
        if self.rules.is_empty() {
            return None;
        }
        let number = CALLS[step as usize].fetch_add(1, Ordering::Relaxed) + 1;
        self.rules.iter().find(|rule| rule.step == step && rule.hits(number)).map(|rule| rule.code)
    }
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once('=')?;
        let step = STEPS.iter().find(|(known, _)| *known == name.trim())?.1;
        let number = |text: &str| text.trim().parse().ok().filter(|number| *number > 0);
        let (code, from, times) = match (value.split_once('*'), value.split_once('@')) {
            (Some((code, times)), _) => (code, 1, number(times)?),
            (None, Some((code, from))) => (code, number(from)?, 1),
            (None, None) => (value, 1, u64::MAX),
        };
        Some(Self { step, code: code.trim().parse().ok().filter(|code| *code > 0)?, from, times })
    }

    fn hits(self, number: u64) -> bool {
        number >= self.from && number - self.from < self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        let all = Refusals::parse("v2, add=802*3,bind=2@2,create=47").unwrap();
        assert!(all.v2 && !all.old_driver && !all.unsupported);
        let hits = |at: usize| (1..=4).map(|number| all.rules[at].hits(number)).collect::<Vec<_>>();
        assert_eq!(hits(0), [true, true, true, false]);
        assert_eq!(hits(1), [false, true, false, false]);
        assert_eq!(hits(2), [true; 4]);
        for wrong in ["v3", "add", "add=", "add=x", "add=802*", "add=802*0", "join=2", "add=0", "v2,,unsupported"] {
            assert_eq!(Refusals::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn steps_are_numbered_as_they_are_listed() {
        assert!(STEPS.iter().enumerate().all(|(at, (_, step))| *step as usize == at));
    }
}
