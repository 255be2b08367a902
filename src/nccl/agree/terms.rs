//! What a communicator is configured with that ranks make of another one, as they compare it: each field that is set, and to what.

use std::borrow::Cow;

/// The fields, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Terms(Vec<(Cow<'static, str>, String)>);

impl Terms {
    pub(crate) fn new(fields: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// What another process has sent.
    pub(crate) fn of_another(fields: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// The fields, for another process.
    pub(crate) fn fields(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, value.as_str()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// What it says of the fields in which `other` differs.
    fn against(&self, other: &Self) -> String {
        let own = self.0.iter().filter(|(name, value)| other.get(name) != Some(value));
        let missing = other.0.iter().filter(|(name, _)| self.get(name).is_none());
        let own = own.map(|(name, value)| format!("{name} {value}"));
        let all: Vec<_> = own.chain(missing.map(|(name, _)| format!("{name} not set"))).collect();
        all.join(", ")
    }
}

/// What one rank brings, in words, for an error that sets it against what another brings: `None` is no configuration at all.
pub(crate) fn against(own: Option<&Terms>, other: Option<&Terms>) -> String {
    match (own, other) {
        (None, _) => "no configuration".to_owned(),
        (Some(_), None) => "a configuration".to_owned(),
        (Some(own), Some(other)) => format!("a configuration with {}", own.against(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_told() {
        let of =
            |fields: &[(&'static str, i32)]| Terms::new(fields.iter().map(|(name, value)| (*name, value.to_string())));
        let (one, other) = (of(&[("a", 1), ("b", 2)]), of(&[("b", 3), ("a", 1), ("c", 4)]));
        assert_eq!(against(Some(&one), Some(&other)), "a configuration with b 2, c not set");
        assert_eq!(against(Some(&other), Some(&one)), "a configuration with b 3, c 4");
        assert_eq!(against(None, Some(&one)), "no configuration");
    }
}
