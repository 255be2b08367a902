//! Why the program stops: what was asked for makes no sense, or what was done went wrong.

use std::fmt::Display;

pub type Result<T, E = Failure> = std::result::Result<T, E>;

#[derive(Debug, Clone)]
pub enum Failure {
    /// The command line asks for something that cannot be: exit code 2.
    Usage(String),
    /// It was tried, and failed: exit code 1.
    Run(String),
    /// The communicator was aborted, usually because another rank failed: exit code 1.
    Aborted(String),
    /// Another rank failed; its message is the one to show.
    Elsewhere,
    /// Standard output is closed.
    Closed,
}

impl Failure {
    pub fn usage(text: impl Display) -> Self {
        Self::Usage(text.to_string())
    }

    pub fn run(text: impl Display) -> Self {
        Self::Run(text.to_string())
    }

    /// The message as one line, whatever the user's own words in it hold.
    pub fn one_line(&self) -> String {
        let text = match self {
            Self::Usage(text) | Self::Run(text) | Self::Aborted(text) => text,
            Self::Elsewhere => "another rank failed",
            Self::Closed => "standard output is closed",
        };
        let mut line = String::with_capacity(text.len());
        for c in text.trim().chars() {
            match c {
                '\n' | '\r' | '\t' => line.push(' '),
                c if c.is_control() => line.extend(c.escape_default()),
                c => line.push(c),
            }
        }
        line
    }
}

impl From<gpucomm::Error> for Failure {
    fn from(error: gpucomm::Error) -> Self {
        match error {
            gpucomm::Error::Aborted { .. } => Self::Aborted(error.to_string()),
            _ => Self::run(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;

    #[test]
    fn one_line_whatever_the_text() {
        let line = Failure::usage("no\nsuch\u{1b}[2J\top\u{0}").one_line();
        assert_eq!(line, "no such\\u{1b}[2J op\\u{0}");
    }
}
