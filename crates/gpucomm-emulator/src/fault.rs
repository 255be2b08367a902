//! Faults on demand, reproducible.
//!
//! `GPUCOMM_EMULATOR_FAULTS` holds rules, separated by semicolons:
//!
//! | rule | what happens |
//! |---|---|
//! | `seed=7` | the seed of all chances; 0 if it is not given |
//! | `die=rank1@op5` | rank 1 dies in front of its operation 5: its process ends with status 99 if it has no other rank of that communicator, else the rank stops for ever and counts as dead |
//! | `hang=rank2@op3` | rank 2 stops in front of its operation 3, until it is aborted |
//! | `late=rank0@op2:200ms` | rank 0 waits 200 ms (`us`, `ms` or `s`) in front of its operation 2 |
//! | `async_error=rank1@op4` | instead of its operation 4, rank 1's communicator gets an asynchronous error |
//! | `oom=device0@3` | the third allocation on device 0 fails |
//! | `start=rank1@2` | the second start of a rank 1 in this process fails before it meets the others |
//! | `late_start=rank0@2:2s` | the second start of a rank 0 in this process, or of a part of a communicator in which it is rank 0, ends 2 s after all have met |
//! | `lose=device0@op5` | device 0 is lost when it comes to its work number 5: that, and what is queued, never runs, and every call that touches it, or another device of its process, fails from then on; with `GPUCOMM_EMULATOR_LOST=device` the others stay |
//! | `slow=device0@op5:5ms` | the work number 5 of device 0 begins 5 ms late; with `slow_copy`, `slow_fill`, `slow_function` (of the host), `slow_communication` only if it is that |
//! | `slow_wait=device0@op3:5ms` | streams of device 0 stay 5 ms longer where they wait for another for the third time, or take the time of an event |
//! | `die=0.001` `hang=0.001` `late=0.01:5ms` `async_error=0.001` `oom=0.01` `start=0.01` `lose=0.001` `slow=0.1:2ms` | the same, with that chance, at each operation, allocation, start, piece of work or wait |
//!
//! Operations are the collectives, sends and receives that a rank issues on one communicator, counted from 1 in the order
//! of their launch; collectives of nothing are never launched. Those of a PE of NVSHMEM are its meetings with others, on the host and on streams. Devices are meant by their numbers on the machine, whatever a process calls them. Allocations are counted from 1 on each device, and so is its work: kernels, copies, fills and host
//! functions, in the order in which they begin; and so are its waits. Slow work changes nothing in a program that waits where it must,
//! so it is not told; in another one, what is missing shows in the data. A rule that names a number acts once in a process. A chance depends on nothing but the seed, the rule, the rank or device and the number, so the same program
//! meets the same faults again. A value that does not follow this grammar is an error at the
//! first use of a device.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::given;
use crate::lock::Mutex;

/// The environment variable.
pub(crate) const VARIABLE: &str = "GPUCOMM_EMULATOR_FAULTS";

/// What happens to a rank in front of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Die,
    Hang,
    Late(Duration),
    AsyncError,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    /// At that operation of that rank, or that allocation on that device.
    At { who: u64, number: u64 },
    /// With this chance.
    Chance(f64),
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// To a rank, in front of an operation.
    Rank(Fault),
    /// An allocation fails.
    OutOfMemory,
    /// A start fails.
    Start,
    /// A start ends late.
    LateStart(Duration),
    /// A device is lost in front of a piece of work.
    Lose,
    /// Some work begins late, or all.
    Slow(Option<Work>, Duration),
}

/// What takes its time on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Copy,
    Fill,
    /// Of the host.
    Function,
    Communication,
    /// For another stream, and the time of an event.
    Wait,
}

impl Work {
    /// What the C function `name` asks for.
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "cudaLaunchHostFunc" => Self::Function,
            _ if name.starts_with("cudaMemcpy") => Self::Copy,
            _ if name.starts_with("cudaMemset") || name.starts_with("cuMemset") => Self::Fill,
            _ => Self::Communication,
        }
    }
}

#[derive(Debug)]
struct Rule {
    effect: Effect,
    when: When,
    used: AtomicBool,
}

/// Rules.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    seed: u64,
    rules: Vec<Rule>,
    /// What is wrong with the variable.
    wrong: Option<String>,
}

static PLAN: LazyLock<Plan> = LazyLock::new(|| match given::read(VARIABLE).map(|text| text.into_string()) {
    Some(Ok(text)) => Plan::parse(&text).unwrap_or_else(|wrong| Plan { wrong: Some(wrong), ..Plan::default() }),
    None => Plan::default(),
    Some(Err(_)) => Plan { wrong: Some(format!("{VARIABLE} is not text")), ..Plan::default() },
});

/// Fails if the variable does not follow the grammar, and says where.
pub(crate) fn check() -> Result<(), String> {
    PLAN.wrong.clone().map_or(Ok(()), Err)
}

/// Whether there is any rule.
pub(crate) fn is_asked_for() -> bool {
    !PLAN.rules.is_empty()
}

/// What happens to `rank` in front of its operation `number`.
pub(crate) fn at(rank: usize, number: u64) -> Option<Fault> {
    if PLAN.rules.is_empty() {
        return None;
    }
    PLAN.fault(rank as u64, number)
}

/// Whether `device` is lost when it comes to its work `number`.
pub(crate) fn loses(device: i32, number: u64) -> bool {
    !PLAN.rules.is_empty() && PLAN.hits(Effect::Lose, u64::from(device.unsigned_abs()), number)
}

/// How long that work of `device` is to begin late: its work number so much, or its wait.
pub(crate) fn slows(device: i32, work: Work, number: u64) -> Option<Duration> {
    if PLAN.rules.is_empty() { None } else { PLAN.slows(u64::from(device.unsigned_abs()), work, number) }
}

/// A number from 0 to 1 for something of `who`, as the seed says.
#[cfg(feature = "nvshmem")]
pub(crate) fn chance(who: u64, number: u64) -> f64 {
    draw(PLAN.seed, u64::MAX, who, number)
}

/// Whether the allocation of `bytes` bytes on `device` is to fail. Counts the allocations.
pub(crate) fn on_alloc(device: i32, _bytes: usize) -> bool {
    static COUNTS: Counts = LazyLock::new(Mutex::default);
    on_next(&COUNTS, Effect::OutOfMemory, u64::from(device.unsigned_abs()))
}

/// Whether this start of `rank` is to fail. Counts the starts.
#[cfg(feature = "nccl")]
pub(crate) fn on_start(rank: usize) -> bool {
    static COUNTS: Counts = LazyLock::new(Mutex::default);
    on_next(&COUNTS, Effect::Start, rank as u64)
}

/// How much later than all have met this start of `rank` is to end. Counts the starts.
#[cfg(feature = "nccl")]
pub(crate) fn on_end_of_start(rank: usize) -> Option<Duration> {
    static COUNTS: Counts = LazyLock::new(Mutex::default);
    let number = next(&COUNTS, rank as u64)?;
    PLAN.rules.iter().enumerate().find_map(|(index, rule)| match rule.effect {
        Effect::LateStart(delay) => rule.acts(PLAN.seed, index, rank as u64, number).then_some(delay),
        _ => None,
    })
}

type Counts = LazyLock<Mutex<HashMap<u64, u64>>>;

/// Whether `effect` hits the next event of `who`.
fn on_next(counts: &Counts, effect: Effect, who: u64) -> bool {
    next(counts, who).is_some_and(|number| PLAN.hits(effect, who, number))
}

/// The number of the next event of `who`; `None` where there are no rules.
fn next(counts: &Counts, who: u64) -> Option<u64> {
    if PLAN.rules.is_empty() {
        return None;
    }
    let mut counts = counts.lock();
    let number = counts.entry(who).or_default();
    *number += 1;
    Some(*number)
}

impl Plan {
    /// Rules for the ranks of one communicator.
    #[cfg(feature = "nccl")]
    pub(crate) fn of_ranks(text: &str) -> Result<Self, String> {
        let plan = Self::parse(text)?;
        if plan.rules.iter().all(|rule| matches!(rule.effect, Effect::Rank(_))) {
            return Ok(plan);
        }
        Err(format!(
            "\"{text}\": of a communicator are rules about its ranks: expected seed, die, hang, late or async_error"
        ))
    }

    /// From text that follows the grammar.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for rule in text.split(';').map(str::trim).filter(|rule| !rule.is_empty()) {
            let wrong = |expected: &str| format!("{VARIABLE}: \"{rule}\" is not understood: expected {expected}");
            let Some((name, value)) = rule.split_once('=').map(|(name, value)| (name.trim(), value.trim())) else {
                return Err(wrong("NAME=VALUE"));
            };
            if name == "seed" {
                plan.seed = value.parse().map_err(|_| wrong("seed=NUMBER"))?;
                continue;
            }
            let (place, prefix, example) = match name {
                "oom" => ("device", "", "oom=device0@3 or oom=0.01"),
                "start" => ("rank", "", "start=rank1@2 or start=0.01"),
                "late_start" => ("rank", "", "late_start=rank0@2:2s or late_start=0.01:5ms"),
                "lose" => ("device", "op", "lose=device0@op5 or lose=0.001"),
                "slow" | "slow_copy" | "slow_fill" | "slow_function" | "slow_communication" | "slow_wait" => {
                    ("device", "op", "slow=device0@op5:5ms or slow=0.1:2ms")
                }
                "late" => ("rank", "op", "late=rank0@op2:200ms or late=0.01:5ms"),
                "die" => ("rank", "op", "die=rank1@op5 or die=0.001"),
                "hang" => ("rank", "op", "hang=rank1@op5 or hang=0.001"),
                "async_error" => ("rank", "op", "async_error=rank1@op5 or async_error=0.001"),
                _ => return Err(wrong("seed, die, hang, late, async_error, oom, start, late_start, lose or slow")),
            };
            let timed = name.starts_with("late") || name.starts_with("slow");
            let (when, delay) = match value.split_once(':') {
                Some((when, delay)) if timed => (when, duration(delay).ok_or_else(|| wrong(example))?),
                None if !timed => (value, Duration::ZERO),
                _ => return Err(wrong(example)),
            };
            let when = When::parse(when, place, prefix).ok_or_else(|| wrong(example))?;
            let effect = match name {
                "die" => Effect::Rank(Fault::Die),
                "hang" => Effect::Rank(Fault::Hang),
                "late" => Effect::Rank(Fault::Late(delay)),
                "async_error" => Effect::Rank(Fault::AsyncError),
                "lose" => Effect::Lose,
                "start" => Effect::Start,
                "late_start" => Effect::LateStart(delay),
                "slow" => Effect::Slow(None, delay),
                "slow_copy" => Effect::Slow(Some(Work::Copy), delay),
                "slow_fill" => Effect::Slow(Some(Work::Fill), delay),
                "slow_function" => Effect::Slow(Some(Work::Function), delay),
                "slow_communication" => Effect::Slow(Some(Work::Communication), delay),
                "slow_wait" => Effect::Slow(Some(Work::Wait), delay),
                _ => Effect::OutOfMemory,
            };
            plan.rules.push(Rule { effect, when, used: AtomicBool::new(false) });
        }
        Ok(plan)
    }

    /// The fault of `rank` in front of its operation `number`.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn fault(&self, rank: u64, number: u64) -> Option<Fault> {
        self.rules.iter().enumerate().find_map(|(index, rule)| match rule.effect {
            Effect::Rank(fault) => rule.acts(self.seed, index, rank, number).then_some(fault),
            _ => None,
        })
    }

    /// How late that work of a device begins, or that wait. A rule for all work means no waits where it names a number.
    fn slows(&self, device: u64, work: Work, number: u64) -> Option<Duration> {
        self.rules.iter().enumerate().find_map(|(index, rule)| match rule.effect {
            Effect::Slow(None, _) if work == Work::Wait && matches!(rule.when, When::At { .. }) => None,
            Effect::Slow(only, delay) if only.is_none_or(|only| only == work) => {
                rule.acts(self.seed, index, device, number).then_some(delay)
            }
            _ => None,
        })
    }

    /// Whether a rule has this effect on `who`, a device or a rank, at its allocation, start or work `number`.
    fn hits(&self, effect: Effect, who: u64, number: u64) -> bool {
        let mut rules = self.rules.iter().enumerate();
        rules.any(|(index, rule)| rule.effect == effect && rule.acts(self.seed, index, who, number))
    }
}

impl Rule {
    fn acts(&self, seed: u64, index: usize, who: u64, number: u64) -> bool {
        match self.when {
            When::At { who: whose, number: which } => {
                (whose, which) == (who, number) && !self.used.swap(true, Ordering::Relaxed)
            }
            When::Chance(chance) => draw(seed, index as u64, who, number) < chance,
        }
    }
}

impl When {
    fn parse(text: &str, place: &str, prefix: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix(place) {
            let (who, number) = rest.split_once('@')?;
            let number = number.strip_prefix(prefix)?.parse().ok().filter(|&number: &u64| number > 0)?;
            return Some(Self::At { who: who.parse().ok()?, number });
        }
        text.parse().ok().filter(|chance| (0.0..=1.0).contains(chance)).map(Self::Chance)
    }
}

fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * scale).ok()
}

/// A number from 0 to 1 that depends on the arguments only.
fn draw(seed: u64, rule: u64, who: u64, number: u64) -> f64 {
    let mut state = seed;
    for part in [rule, who, number] {
        state = mix(state ^ mix(part.wrapping_add(0x9e37_79b9_7f4a_7c15)));
    }
    (state >> 11) as f64 / (1u64 << 53) as f64
}

/// A bijection that spreads every bit over all.
fn mix(mut value: u64) -> u64 {
    value ^= value >> 32;
    value = value.wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^= value >> 32;
    value = value.wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ (value >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_act_where_they_say_and_once() {
        let plan =
            Plan::parse("seed=7; die=rank1@op5;late=rank0@op2:200ms; oom=device0@3;lose=device2@op3").expect("valid");
        assert_eq!(plan.fault(1, 4), None);
        assert_eq!(plan.fault(0, 5), None);
        assert_eq!(plan.fault(1, 5), Some(Fault::Die));
        assert_eq!(plan.fault(1, 5), None);
        assert_eq!(plan.fault(0, 2), Some(Fault::Late(Duration::from_millis(200))));
        assert!(plan.hits(Effect::OutOfMemory, 0, 3) && plan.hits(Effect::Lose, 2, 3));
        assert!(!plan.hits(Effect::OutOfMemory, 0, 2) && !plan.hits(Effect::Lose, 0, 3));
    }

    #[test]
    fn a_start_ends_late() {
        let plan = Plan::parse("late_start=rank2@1:3s").expect("valid");
        assert_eq!(plan.rules[0].effect, Effect::LateStart(Duration::from_secs(3)));
        assert_eq!(plan.rules[0].when, When::At { who: 2, number: 1 });
        assert!(Plan::parse("late_start=rank2@1").is_err(), "for how long?");
    }

    #[test]
    fn work_of_one_kind_is_slow_or_all() {
        let plan = Plan::parse("slow_copy=device1@op3:2ms;slow=device0@op1:1s;slow_wait=1:5us").expect("valid");
        let ms = Duration::from_millis;
        assert_eq!(plan.slows(1, Work::Fill, 3), None);
        assert_eq!(plan.slows(1, Work::Copy, 3), Some(ms(2)));
        assert_eq!(plan.slows(1, Work::Copy, 3), None);
        assert_eq!(plan.slows(0, Work::Wait, 1), Some(Duration::from_micros(5)));
        assert_eq!(plan.slows(0, Work::Communication, 1), Some(ms(1000)));
        let names = ["cudaMemcpyPeerAsync", "cudaMemsetAsync", "cuMemsetD32Async", "cudaLaunchHostFunc", "AllReduce"];
        let kinds = [Work::Copy, Work::Fill, Work::Fill, Work::Function, Work::Communication];
        assert_eq!(names.map(Work::of), kinds);
    }

    #[test]
    fn chances_repeat_with_the_seed_and_differ_between_seeds() {
        let draws = |seed: u64| {
            let plan = Plan::parse(&format!("seed={seed};late=0.25:5ms")).expect("valid");
            (1..=1000).map(|number| plan.fault(3, number).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        let hits = draws(7).iter().filter(|&&hit| hit).count();
        assert!((200..300).contains(&hits), "{hits} of 1000 at a chance of 0.25");
    }

    #[test]
    fn nonsense_is_named() {
        for text in [
            "die",
            "die=",
            "die=rank1",
            "die=rank1@5",
            "die=rank1@op0",
            "die=rankx@op1",
            "late=rank0@op2",
            "late=0.1",
            "late=0.1:5",
            "late=0.1:5min",
            "oom=rank0@3",
            "oom=2",
            "lose=device0@5",
            "lose=rank0@op5",
            "slow=0.1",
            "slow_kernel=0.1:2ms",
            "slow_copy=rank0@op1:2ms",
            "seed=x",
            "explode=rank0@op1",
            "die=rank1@op5:3ms",
        ] {
            let wrong = Plan::parse(text).expect_err(text);
            assert!(wrong.contains(text) && wrong.contains(VARIABLE), "{wrong}");
        }
        assert!(Plan::parse("").expect("valid").rules.is_empty());
    }
}
