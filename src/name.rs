//! Names of communicators and worlds, for errors, dumps and traces.

#[cfg(nccl_ge_2_27)]
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// The most bytes of a name.
pub(crate) const MOST_BYTES: usize = 128;

/// So many bytes of a name that is too long remain of its beginning, at most.
const HEAD: usize = 40;

/// Stands for the middle of a name that is too long.
const ELLIPSIS: &str = "…";

/// A communicator or world that nobody has named.
const DEFAULT: &str = "world";

/// A communicator that another library has started.
const ADOPTED: &str = "raw";

/// A name: 1 to [`MOST_BYTES`] bytes without control characters. `Display` writes it in quotes, as
/// errors do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(Arc<str>);

impl Name {
    /// Takes a name that a user has given.
    pub(crate) fn new(operation: &'static str, text: &str) -> Result<Self> {
        let refused = |expected: String, got: String| Err(Error::argument(operation, "name", expected, got));
        if !(1..=MOST_BYTES).contains(&text.len()) {
            return refused(format!("1 to {MOST_BYTES} bytes"), format!("{} bytes", text.len()));
        }
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return refused("text without control characters".to_owned(), format!("{control:?} in {text:?}"));
        }
        Ok(Self(text.into()))
    }

    /// Returns the name of a communicator that another library has started.
    pub(crate) fn adopted() -> Self {
        Self(ADOPTED.into())
    }

    /// Returns the name of the part of `color`.
    pub(crate) fn part(&self, color: usize) -> Self {
        self.child(format_args!("split(color={color})"))
    }

    /// Returns the name of the communicator without some of its ranks.
    pub(crate) fn shrunk(&self) -> Self {
        self.child(format_args!("shrink"))
    }

    /// Returns the name of the communicator with more ranks.
    pub(crate) fn grown(&self) -> Self {
        self.child(format_args!("grow"))
    }

    /// Returns the name of the communicator that takes the place of one that has failed.
    pub(crate) fn recovered(&self) -> Self {
        self.child(format_args!("recover"))
    }

    /// Returns the name of a communicator that was made of this one by `step`. A name that would be
    /// too long keeps its beginning and its end.
    fn child(&self, step: fmt::Arguments<'_>) -> Self {
        let full = format!("{}/{step}", self.0);
        if full.len() <= MOST_BYTES {
            return Self(full.into());
        }
        let tail = full.len() - (MOST_BYTES - HEAD - ELLIPSIS.len());
        let tail = (tail..full.len()).find(|&at| full.is_char_boundary(at)).unwrap_or(full.len());
        // The parent may have been abbreviated in the same place.
        let head = beginning(&full).trim_end_matches(ELLIPSIS);
        Self(format!("{head}{ELLIPSIS}{}", &full[tail..]).into())
    }

    /// Returns the name, unless it is the default: that one tells a reader nothing.
    pub(crate) fn given(&self) -> Option<&Self> {
        (&*self.0 != DEFAULT).then_some(self)
    }

    /// Names the communicator as the subject of a sentence about its end; `None` for the default
    /// name.
    pub(crate) fn subject(&self) -> Option<Arc<str>> {
        self.given().map(|name| format!("communicator {name}").into())
    }

    /// Names a world as the subject of a sentence about its end.
    pub(crate) fn world(&self) -> Option<Arc<str>> {
        Some(self.given().map_or_else(|| "the world".into(), |name| format!("world {name}").into()))
    }

    /// Names one of its ranks in a sentence: `rank 1`, or `rank 1 of "tp"` unless the name is the
    /// default.
    pub(crate) fn rank(&self, rank: usize) -> String {
        self.given().map_or_else(|| format!("rank {rank}"), |name| format!("rank {rank} of {name}"))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as NCCL takes it.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn to_c(&self) -> CString {
        // A NUL is a control character, so there is none.
        CString::new(&*self.0).unwrap_or_default()
    }
}

/// Returns what remains of the beginning of a name that is too long.
fn beginning(name: &str) -> &str {
    let end = (0..=HEAD).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    &name[..end]
}

impl Default for Name {
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Result<Name> {
        Name::new("a test", text)
    }

    /// The seed of random names, which is printed.
    fn seed() -> u64 {
        let given = std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        println!("GPUCOMM_TEST_SEED={seed}");
        seed
    }

    #[test]
    fn lengths_and_control_characters_are_refused() {
        for good in ["a", "tp", "a name, with words", "größe", "名前", "emoji 🦀", "a/b", "\"", &"x".repeat(MOST_BYTES)]
        {
            assert_eq!(name(good).unwrap().as_str(), good);
        }
        let wrong = |text: &str| name(text).unwrap_err().to_string();
        let seed = seed();
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..2000 {
            let length = *rng.choice(&[0, 1, 2, 126, 127, 128, 129, 130, 500]).unwrap();
            let mut text: String = std::iter::repeat_with(|| rng.char(..'\u{100}')).take(length).collect();
            if rng.bool() {
                text.retain(|c| !c.is_control());
            }
            while rng.bool() && text.len() > MOST_BYTES {
                text.pop();
            }
            let is_good = (1..=128).contains(&text.len()) && !text.chars().any(char::is_control);
            let made = name(&text);
            assert_eq!(made.is_ok(), is_good, "seed {seed}: {text:?}: {made:?}");
            assert!(is_good || made.is_err_and(|error| !error.to_string().chars().any(char::is_control)));
        }
        assert!(wrong("").contains("name: expected 1 to 128 bytes, got 0 bytes"), "{}", wrong(""));
        assert!(wrong(&"ü".repeat(MOST_BYTES / 2 + 1)).contains("got 130 bytes"));
        for control in ["\0", "a\nb", "\t", "\x1b[31m", "\x7f", "\u{85}"] {
            let text = wrong(control);
            assert!(text.contains("expected text without control characters"), "{text}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn children_say_how_they_were_made() {
        let world = Name::default();
        let all = [world.part(1), world.shrunk(), world.grown(), world.recovered(), world.part(1).shrunk()];
        let all: Vec<_> = all.iter().map(Name::as_str).collect();
        let expected =
            ["world/split(color=1)", "world/shrink", "world/grow", "world/recover", "world/split(color=1)/shrink"];
        assert_eq!(all, expected);
    }

    /// Whatever the parent, and however deep the child: a name is within the limit, keeps its
    /// beginning and says how the child was made.
    #[test]
    fn long_names_keep_their_ends() {
        let seed = seed();
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..2000 {
            let length = rng.usize(1..=MOST_BYTES);
            let mut text = String::new();
            while text.is_empty() || text.len() < length {
                text.push(*rng.choice(&['a', 'Z', '/', 'ü', '名', '🦀']).unwrap());
            }
            while text.len() > MOST_BYTES {
                text.pop();
            }
            let first = name(&text).unwrap();
            let mut last = first.clone();
            for _ in 0..rng.usize(1..12) {
                let color = rng.usize(..);
                let (next, step) = match rng.u8(..4) {
                    0 => (last.part(color), format!("/split(color={color})")),
                    1 => (last.shrunk(), "/shrink".to_owned()),
                    2 => (last.grown(), "/grow".to_owned()),
                    _ => (last.recovered(), "/recover".to_owned()),
                };
                let (shown, before) = (next.as_str(), last.as_str());
                let context = format!("seed {seed}: {before:?} became {shown:?}");
                assert!(shown.len() <= MOST_BYTES && shown.ends_with(&step), "{context}");
                assert_eq!(shown == format!("{before}{step}"), before.len() + step.len() <= MOST_BYTES, "{context}");
                assert!(shown.starts_with(beginning(&text)), "{context}");
                assert!(shown.matches(ELLIPSIS).count() <= 1, "{context}");
                assert_eq!(name(shown), Ok(next.clone()), "{context}");
                last = next;
            }
        }
    }
}
