//! What NCCL is told by the environment and by its files.

use std::collections::BTreeMap;

use super::files::Files;

/// The file of the machine.
const OF_MACHINE: &str = "/etc/nccl.conf";

/// Names the file of the user.
pub const CONF_FILE: &str = "NCCL_CONF_FILE";

/// The value of one variable, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub value: String,
    /// The file that says so; `None` for the environment.
    pub file: Option<String>,
}

/// All variables, as NCCL has them once it has read its files: the environment comes first, then the file of the user, then the one of the
/// machine.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    values: BTreeMap<String, Setting>,
    /// Files that there are.
    pub files: Vec<String>,
    /// Lines of them that NCCL makes nothing of, each with its file.
    pub odd: Vec<(String, String)>,
    /// The file that `NCCL_CONF_FILE` names, where there is none.
    pub missing: Option<String>,
}

impl Settings {
    pub fn read(environment: BTreeMap<String, String>, files: &dyn Files) -> Self {
        let of_user = match environment.get(CONF_FILE).filter(|path| !path.is_empty()) {
            Some(path) => Some(path.clone()),
            None => environment.get("HOME").map(|home| format!("{home}/.nccl.conf")),
        };
        let is_named = environment.get(CONF_FILE).is_some_and(|path| !path.is_empty());
        let values = environment.into_iter().map(|(name, value)| (name, Setting { value, file: None })).collect();
        let mut settings = Self { values, ..Self::default() };
        for path in of_user.iter().map(String::as_str).chain([OF_MACHINE]) {
            match files.read(path) {
                Some(text) => settings.add(path, &text),
                None if is_named && Some(path) == of_user.as_deref() => settings.missing = of_user.clone(),
                None => {}
            }
        }
        settings
    }

    /// What one file says, of what nobody has said before.
    fn add(&mut self, path: &str, text: &str) {
        self.files.push(path.to_owned());
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let Some((name, value)) = line.split_once('=') else {
                self.odd.push((path.to_owned(), line.to_owned()));
                continue;
            };
            // NCCL does not trim: a space belongs to the name, which nobody asks for then.
            if name.is_empty() || name.contains(char::is_whitespace) {
                self.odd.push((path.to_owned(), line.to_owned()));
            }
            let setting = Setting { value: value.to_owned(), file: Some(path.to_owned()) };
            self.values.entry(name.to_owned()).or_insert(setting);
        }
    }

    /// The value of a variable; nothing where it is empty, which NCCL takes for unset.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|setting| setting.value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether it is set, to whatever: an empty list is not the same as none.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|setting| setting.value.as_str())
    }

    /// What NCCL makes of a variable that is a number, where it is one.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.get(name).map(|text| number(text).0)
    }

    /// A variable with its value, and with the file that it is from.
    pub fn says(&self, name: &str) -> String {
        let Some(setting) = self.values.get(name) else { return name.to_owned() };
        let from = setting.file.as_deref().map(|file| format!(" (from {file})")).unwrap_or_default();
        format!("{name}={}{from}", setting.value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.values.iter().map(|(name, setting)| (name.as_str(), setting))
    }
}

/// A number as NCCL reads it, in decimal, hexadecimal or octal digits, and what is behind it. No digits are a 0.
pub fn number(text: &str) -> (i64, &str) {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (radix, digits) = match hexadecimal.filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit())) {
        Some(rest) => (16, rest),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let magnitude = match i64::from_str_radix(&digits[..end], radix) {
        Ok(value) => value,
        Err(_) if end == 0 => 0,
        Err(_) => i64::MAX,
    };
    (if negative { -magnitude } else { magnitude }, &digits[end..])
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, environment};
    use super::*;

    #[test]
    fn the_environment_comes_first_then_the_user() {
        let files = Fake::default()
            .file("/home/me/.nccl.conf", "# mine\nNCCL_DEBUG=WARN\nNCCL_NET=Socket\n\nnothing\n")
            .file("/etc/nccl.conf", "NCCL_NET=IB\nNCCL_ALGO =Ring\nNCCL_PROTO=LL\n");
        let settings = Settings::read(environment(&[("HOME", "/home/me"), ("NCCL_DEBUG", "INFO")]), &files);
        assert_eq!(settings.get("NCCL_DEBUG"), Some("INFO"));
        assert_eq!(settings.says("NCCL_NET"), "NCCL_NET=Socket (from /home/me/.nccl.conf)");
        assert_eq!(settings.says("NCCL_PROTO"), "NCCL_PROTO=LL (from /etc/nccl.conf)");
        assert_eq!(settings.get("NCCL_ALGO"), None);
        assert_eq!(settings.odd.len(), 2, "{:?}", settings.odd);
        assert_eq!(settings.files.len(), 2);
    }

    #[test]
    fn a_named_file_takes_the_place_of_the_users() {
        let files = Fake::default().file("/home/me/.nccl.conf", "NCCL_NET=IB\n").file("/x", "NCCL_NET=Socket\n");
        let named = |path| Settings::read(environment(&[("HOME", "/home/me"), (CONF_FILE, path)]), &files);
        assert_eq!(named("/x").get("NCCL_NET"), Some("Socket"));
        assert_eq!((named("/y").get("NCCL_NET"), named("/y").missing.as_deref()), (None, Some("/y")));
        assert_eq!(named("").get("NCCL_NET"), Some("IB"));
    }

    #[test]
    fn numbers() {
        for (text, value, rest) in [
            ("12", 12, ""),
            (" -2", -2, ""),
            ("0x10", 16, ""),
            ("010", 8, ""),
            ("0", 0, ""),
            ("1M", 1, "M"),
            ("true", 0, "true"),
            ("0x", 0, "x"),
            ("99999999999999999999", i64::MAX, ""),
            ("", 0, ""),
        ] {
            assert_eq!(number(text), (value, rest), "{text:?}");
        }
    }
}
