//! What programs did and what their ranks saw, as text that is the same on the emulator and on GPUs, and how two of them differ.
//!
//! Lines that begin with `#` say where it comes from, and do not count. A program begins with a line of its own that ends with a digest of
//! its steps; each line after it is a step of all ranks, and says `ok`, or what they saw: once where all saw the same.

use std::collections::BTreeMap;
use std::fmt::Write;

use gpucomm::nccl::{built_version, version};

use crate::fault::Fault;
use crate::program::Program;
use crate::record::{Record, digest_of};

/// The first line; seeds and steps follow.
const TITLE: &str = "# transcript of random programs: ";

/// Which programs a transcript is of: the first seed, how many, and the steps of each.
pub fn title((first, count, steps): (u64, u64, usize)) -> String {
    let running = version().map_or("unknown".to_owned(), |version| version.to_string());
    format!(
        "{TITLE}{first} {count} {steps}\n# {:?}, NCCL {running}, built for {}\n",
        gpucomm::backend(),
        built_version()
    )
}

/// Reads that.
pub fn read_title(text: &str) -> Option<((u64, u64), usize)> {
    let mut numbers = text.lines().next()?.strip_prefix(TITLE)?.split(' ').map(|number| number.parse::<u64>().ok());
    Some(((numbers.next()??, numbers.next()??), numbers.next()?? as usize))
}

/// The text of one program; the step after the last one is its fault.
pub fn of(program: &Program, records: &[Record], among: &str, fault: Option<Fault>) -> String {
    let mut text = String::new();
    let whole: String = program.steps.iter().map(|step| format!("{step:?}\n")).collect();
    let _ = writeln!(
        text,
        "program {}: {} {among}, {} steps, {:016x}",
        program.seed,
        program.ranks,
        program.steps.len(),
        digest_of(&whole)
    );
    let seen: Vec<BTreeMap<usize, String>> = records.iter().map(Record::lines).collect();
    for at in 0..=program.steps.len() {
        let name = match (program.steps.get(at), fault) {
            (Some(step), _) => step.name(),
            (None, Some(fault)) => format!("fault {:?} of rank {}", fault.kind, fault.who),
            (None, None) => "end".to_owned(),
        };
        let each: Vec<&str> = seen.iter().map(|lines| lines.get(&at).map_or("-", String::as_str)).collect();
        if each.windows(2).all(|pair| pair[0] == pair[1]) {
            let _ = writeln!(text, "  {at} {name}: {}", each[0]);
        } else {
            let each: Vec<String> = each.iter().enumerate().map(|(rank, text)| format!("{rank}: {text}")).collect();
            let _ = writeln!(text, "  {at} {name}: {}", each.join(" | "));
        }
    }
    text
}

/// How two transcripts compare, program by program.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub same: usize,
    /// The first lines that differ of each program that does.
    pub different: Vec<String>,
    /// In one of them only.
    pub alone: usize,
}

/// The lines of each program by its first line's beginning.
fn programs(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let (mut all, mut name) = (BTreeMap::<&str, Vec<&str>>::new(), "");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with("program ") {
            name = line.split(':').next().unwrap_or_default();
        }
        all.entry(name).or_default().push(line);
    }
    all
}

pub fn compare(recorded: &str, here: &str) -> Comparison {
    let (recorded, here) = (programs(recorded), programs(here));
    let mut result = Comparison::default();
    for (name, lines) in &here {
        match recorded.get(name) {
            None => result.alone += 1,
            Some(other) if other == lines => result.same += 1,
            Some(other) => {
                let longest = lines.len().max(other.len());
                let at = (0..longest).find(|&at| lines.get(at) != other.get(at)).unwrap_or_default();
                let line = |lines: &[&str]| lines.get(at).copied().unwrap_or("(nothing)").to_owned();
                result.different.push(format!("{name}\n  recorded {}\n  here     {}", line(other), line(lines)));
            }
        }
    }
    result.alone += recorded.keys().filter(|name| !here.contains_key(*name)).count();
    result
}

#[test]
fn differences_are_found() {
    let (one, two) =
        ("# x\nprogram 1: a\n  0 b: ok\nprogram 2: a\n", "# y\nprogram 1: a\n  0 b: Timeout\nprogram 3: a\n");
    assert_eq!(compare(one, one), Comparison { same: 2, ..Comparison::default() });
    let found = compare(one, two);
    assert_eq!((found.same, found.different.len(), found.alone), (0, 1, 2));
    assert!(
        found.different[0].contains("recorded   0 b: ok") && found.different[0].contains("here       0 b: Timeout")
    );
}

#[test]
fn a_title_is_read() {
    assert_eq!(read_title(&title((7, 500, 60))), Some(((7, 500), 60)));
    assert_eq!(read_title("program 1"), None);
}
