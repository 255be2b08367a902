//! Ranks and times, in words.

/// What is said of one communicator: clauses, with `; ` between them.
#[derive(Debug, Clone)]
pub struct Paragraph {
    /// Of which it is said.
    pub head: String,
    pub text: String,
    /// Whether it names what went wrong.
    pub is_culprit: bool,
    /// Whether it says why the communicator has ended.
    pub says_why: bool,
}

impl Paragraph {
    pub fn new(head: String, text: String, is_culprit: bool) -> Self {
        Self { head, text, is_culprit, says_why: false }
    }

    /// The first clause, which says most, in a line of its own, and the others indented below it.
    pub fn layout(&self) -> String {
        format!("{}{}", self.head, self.text).replace("; ", ";\n  ")
    }
}

/// What is wrong, in words.
pub struct Told {
    pub text: String,
    /// Whether those are named who wait for nobody themselves.
    pub is_root: bool,
    /// Whether it says why the communicator has ended.
    pub says_why: bool,
}

impl Told {
    pub fn new(text: String, is_root: bool) -> Self {
        Self { text, is_root, says_why: false }
    }

    pub fn root(text: String) -> Self {
        Self::new(text, true)
    }
}

/// Ranks, as the subject of a sentence.
pub fn ranks(all: &[usize]) -> String {
    match all {
        [] => "nobody".to_owned(),
        [one] => format!("rank {one}"),
        [first, last] => format!("ranks {first} and {last}"),
        [.., last] if all.len() < 9 => {
            let before: Vec<_> = all[..all.len() - 1].iter().map(usize::to_string).collect();
            format!("ranks {} and {last}", before.join(", "))
        }
        all => format!("{} ranks, {} to {} among them", all.len(), all[0], all[all.len() - 1]),
    }
}

/// `has` or `have`.
pub fn has(all: &[usize]) -> &'static str {
    if all.len() == 1 { "has" } else { "have" }
}

/// `is` or `are`.
pub fn is(all: &[usize]) -> &'static str {
    if all.len() == 1 { "is" } else { "are" }
}

/// How much later one time of a dump is than another.
pub fn later(first: u64, second: u64) -> String {
    let ms = second.saturating_sub(first) / 1_000_000;
    if ms < 10_000 { format!("{ms} ms") } else { format!("{} s", ms / 1000) }
}
