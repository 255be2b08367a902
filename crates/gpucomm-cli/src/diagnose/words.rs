//! Ranks and times, in words.

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
