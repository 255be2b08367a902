//! A run as one process a rank: the parent starts this program again for each, and speaks with the children over their
//! standard input and output, a line of JSON a message.

mod child;
mod parent;

pub use child::run as child;
#[cfg(feature = "nvshmem")]
pub use child::serve;
pub use parent::run as parent;

use serde_json::{Value, json};

use crate::failure::Failure;

/// What a child says.
#[derive(Debug, Clone, PartialEq)]
enum Message {
    /// Everybody gives a value and gets them all.
    Gather(Value),
    /// Everybody wants to start at the same moment.
    Start,
    /// A line for standard output.
    Line(String),
    /// The progress line.
    Progress(String),
    /// The report for `--json`.
    Report(Value),
    /// All is done, and was right or not.
    Done(bool),
    /// It failed; whether the user asked for nonsense, and why.
    Fail(bool, String),
}

impl Message {
    fn json(&self) -> Value {
        match self {
            Self::Gather(value) => json!({ "gather": value }),
            Self::Start => json!({ "start": true }),
            Self::Line(text) => json!({ "line": text }),
            Self::Progress(text) => json!({ "progress": text }),
            Self::Report(report) => json!({ "report": report }),
            Self::Done(good) => json!({ "done": good }),
            Self::Fail(usage, text) => json!({ "usage": usage, "fail": text }),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let object = value.as_object()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (key, value) = object.iter().next_back()?;
        Some(match key.as_str() {
            "gather" => Self::Gather(value.clone()),
            "start" => Self::Start,
            "line" => Self::Line(text(value)?),
            "progress" => Self::Progress(text(value)?),
            "report" => Self::Report(value.clone()),
            "done" => Self::Done(value.as_bool()?),
            "fail" => Self::Fail(object.get("usage")?.as_bool()?, text(value)?),
            _ => return None,
        })
    }
}

impl From<Failure> for Message {
    fn from(failure: Failure) -> Self {
        Self::Fail(matches!(failure, Failure::Usage(_)), failure.one_line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_pipe() {
        for message in [
            Message::Gather(json!([1, 2.5, null])),
            Message::Start,
            Message::Line("a \"line\"\n".to_owned()),
            Message::Progress(String::new()),
            Message::Report(json!({ "rows": [] })),
            Message::Done(true),
            Message::Fail(true, "why".to_owned()),
        ] {
            assert_eq!(Message::parse(&message.json().to_string()), Some(message));
        }
        assert_eq!(Message::parse("no json"), None);
        assert_eq!(Message::parse("{}"), None);
    }
}
