//! The environment as launchers have left it.

use crate::error::{Error, Result};

/// What looks a variable up; a test has its own.
pub(super) struct Environment<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    /// The value of a variable, without what surrounds it. An empty one is as good as not set.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.0(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The value of a variable as it is. An empty one is as good as not set.
    pub(super) fn exact(&self, name: &str) -> Option<String> {
        self.0(name).filter(|value| !value.is_empty())
    }

    /// The first of these that is set, and its name.
    pub(super) fn first(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|name| self.text(name).map(|value| (*name, value)))
    }

    /// The first of these that is set, as a number.
    pub(super) fn number(&self, names: &[&'static str]) -> Result<Option<usize>> {
        self.first(names).map(|(name, value)| number(name, &value)).transpose()
    }
}

/// A variable that counts.
pub(super) fn number(name: &'static str, value: &str) -> Result<usize> {
    value.parse().map_err(|_| Error::argument(super::FROM_ENV, name, "a number", format_args!("{value:?}")))
}
