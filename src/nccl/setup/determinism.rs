//! What makes two runs equal bit by bit, as far as it can be asked for. `docs/determinism.md` has the reasons.
//!
//! Some of it NCCL takes from a configuration, and the rest from its environment only, where it reads most variables once in a process. So
//! they are looked at when NCCL is first used, and that is what counts.

use std::ffi::c_int;
use std::sync::OnceLock;

use super::environment::{files, is_zero, number, seen};
use super::numbers::Numbers;
use crate::error::{Error, Result};
use crate::sys;
use crate::version::{self, Version};

/// The first version that can be told to load no tuner.
const FIRST: Version = Version::new(2, 28, 3);

/// What a variable of NCCL has to say.
struct Rule {
    name: &'static str,
    expected: &'static str,
    fits: fn(&str) -> bool,
    /// What it is set to; `None` where nothing has to be said.
    value: Option<&'static str>,
    /// NCCL reads it once in a process.
    once: bool,
}

const ENV_PLUGIN: &str = "NCCL_ENV_PLUGIN";

const RULES: [Rule; 6] = [
    // The first, as one may answer for all others.
    Rule {
        name: ENV_PLUGIN,
        expected: "none, as a plugin may tell NCCL other values than the environment has",
        fits: is_none,
        value: Some("none"),
        once: true,
    },
    Rule {
        name: "NCCL_NVLS_ENABLE",
        expected: "0, as NVLink switches add up in no order that is known",
        fits: is_zero,
        value: Some("0"),
        once: true,
    },
    Rule {
        name: "NCCL_TUNER_PLUGIN",
        expected: "none, as a plugin may choose otherwise each time",
        fits: is_none,
        value: Some("none"),
        once: true,
    },
    Rule {
        name: "NCCL_GRAPH_REGISTER",
        expected: "0, as memory that is registered goes through other channels",
        fits: is_zero,
        value: Some("0"),
        once: true,
    },
    Rule {
        name: "NCCL_COLLNET_ENABLE",
        expected: "0, or that it is not set: switches of the network add up in no order that is known",
        fits: is_zero,
        value: None,
        once: false,
    },
    Rule {
        name: "NCCL_CTA_POLICY",
        expected: "0, or that it is not set: with others NCCL chooses by what is registered",
        fits: |value| number(value) == Some(0) && !value.contains('|') && !has_policy(value),
        value: None,
        once: true,
    },
];

/// Whether a value names no plugin.
fn is_none(value: &str) -> bool {
    value.eq_ignore_ascii_case("none")
}

/// Whether a value names a policy, all but one of which choose otherwise.
fn has_policy(value: &str) -> bool {
    ["EFFICIENCY", "ZERO"].iter().any(|name| value.eq_ignore_ascii_case(name))
}

/// A value, and where it stands.
type Said = Option<(String, String)>;

/// What all of them say; an empty value is none, to NCCL as well.
fn said() -> Vec<Said> {
    let files = files();
    let of = |rule: &Rule| seen(rule.name, |name| std::env::var_os(name), &files).filter(|(text, _)| !text.is_empty());
    RULES.iter().map(of).collect()
}

/// What they said when NCCL was first used.
static READ: OnceLock<Vec<Said>> = OnceLock::new();

/// NCCL is about to be used.
pub(super) fn remember() {
    READ.get_or_init(said);
}

impl Rule {
    /// Whether it is met by what is `said`, if all that must be has to be said.
    fn is_met(&self, said: &Said, strictly: bool) -> bool {
        match said {
            _ if self.is_unknown() => true,
            Some((value, _)) => (self.fits)(value),
            None => self.value.is_none() || !strictly || self.is_configured(),
        }
    }

    /// Whether the NCCL that runs knows nothing of it: it has had plugins that answer for the environment since 2.28.7.
    fn is_unknown(&self) -> bool {
        self.name == ENV_PLUGIN && version::running_nccl().is_ok_and(|running| running < Version::new(2, 28, 7))
    }

    /// Whether the configuration says it.
    fn is_configured(&self) -> bool {
        cfg!(nccl_ge_2_32)
            && self.name == "NCCL_NVLS_ENABLE"
            && version::running_nccl().is_ok_and(|running| running >= Version::new(2, 32, 3))
    }

    /// What is wrong with what is `said` now, and what was when NCCL has read it, if anything is.
    fn complaint(&self, now: &Said, read: Option<&Said>, strictly: bool) -> Option<String> {
        const READ_ONCE: &str = "when NCCL was first used, which reads it once";
        let is_wrong = !self.is_met(now, strictly);
        let late = read.filter(|read| self.once && !self.is_met(read, true));
        match (is_wrong, late) {
            (false, None) => None,
            (true, None) => Some(text_of(now)),
            (false, Some(read)) => Some(format!("{} {READ_ONCE}", text_of(read))),
            (true, Some(read)) => Some(format!("{}, and {} {READ_ONCE}", text_of(now), text_of(read))),
        }
    }
}

/// What was said, as part of a sentence.
fn text_of(said: &Said) -> String {
    match said {
        Some((value, place)) => format!("{value:?} in {place}"),
        None => "that it is not set".to_owned(),
    }
}

/// Refuses all variables at once that do not say what they have to, or did not when NCCL was first used.
fn check_variables(operation: &'static str, now: &[Said], strictly: bool) -> Result<()> {
    check_said(operation, now, READ.get().map(|read| &read[..]), strictly)
}

/// The same of what they say now, and said then.
fn check_said(operation: &'static str, now: &[Said], read: Option<&[Said]>, strictly: bool) -> Result<()> {
    let complaint = |(at, rule): (usize, &'static Rule)| {
        let complaint = rule.complaint(&now[at], read.map(|read| &read[at]), strictly)?;
        Some((rule, complaint))
    };
    let wrong: Vec<_> = RULES.iter().enumerate().filter_map(complaint).collect();
    let list = |text: fn(&(&Rule, String)) -> String| wrong.iter().map(text).collect::<Vec<_>>().join("; ");
    let (what, expected, got) = match &wrong[..] {
        [] => return Ok(()),
        [(rule, complaint)] => (rule.name, rule.expected.to_owned(), complaint.clone()),
        _ => (
            "the environment",
            list(|(rule, _)| format!("{}: {}", rule.name, rule.expected)),
            list(|(rule, complaint)| format!("{}: {complaint}", rule.name)),
        ),
    };
    Err(Error::argument(operation, what, format_args!("{expected}; see nccl::prepare_determinism"), got))
}

/// Refuses what cannot be had: a version that is too old, and an environment that says something else, or did when NCCL has read it.
pub(super) fn check(operation: &'static str) -> Result<()> {
    version::needs(operation, FIRST).map_err(|error| error.noted("for deterministic"))?;
    check_variables(operation, &said(), true)
}

/// What a user says besides must not contradict.
#[cfg_attr(not(nccl_ge_2_27), allow(unused_variables))]
pub(super) fn check_numbers(operation: &'static str, numbers: &Numbers) -> Result<()> {
    let wrong: &[(&'static str, &str, Option<c_int>, c_int)] = &[
        #[cfg(nccl_ge_2_27)]
        ("collnet_enable", "false", numbers.collnet_enable, 0),
        #[cfg(nccl_ge_2_27)]
        ("cta_policy", "CtaPolicy::Default", numbers.cta_policy, 0),
        #[cfg(nccl_ge_2_32)]
        ("nvls_host", "NvlsHost::OFF", numbers.nvls_host, NO_NVLS),
    ];
    for &(name, expected, value, wanted) in wrong {
        if let Some(value) = value.filter(|value| *value != wanted) {
            return Err(Error::argument(operation, name, format_args!("{expected}, with deterministic"), value));
        }
    }
    Ok(())
}

#[cfg(nccl_ge_2_32)]
const NO_NVLS: c_int = sys::ncclNvlsHostMode_t::ncclNvlsHostModeDisable.0;

/// What a configuration says.
#[cfg_attr(not(nccl_ge_2_27), allow(unused_variables))]
pub(super) fn write(raw: &mut sys::ncclConfig_t) {
    #[cfg(nccl_ge_2_27)]
    {
        raw.collnetEnable = 0;
        raw.CTAPolicy = 0;
    }
    #[cfg(nccl_ge_2_32)]
    {
        raw.nvlsHostMode = NO_NVLS;
    }
}

/// Refuses a change of what [`write`] has set.
#[cfg_attr(not(nccl_ge_2_27), allow(unused_variables))]
pub(super) fn check_kept(operation: &'static str, raw: &sys::ncclConfig_t) -> Result<()> {
    let fields: &[(&'static str, c_int, c_int)] = &[
        #[cfg(nccl_ge_2_27)]
        ("collnetEnable", raw.collnetEnable, 0),
        #[cfg(nccl_ge_2_27)]
        ("CTAPolicy", raw.CTAPolicy, 0),
        #[cfg(nccl_ge_2_32)]
        ("nvlsHostMode", raw.nvlsHostMode, NO_NVLS),
    ];
    for &(name, got, wanted) in fields {
        if got != wanted {
            return Err(Error::argument(operation, name, format_args!("{wanted}, with deterministic"), got));
        }
    }
    Ok(())
}

/// Sets the variables of the environment that [`Config::with_deterministic`](crate::nccl::Config::with_deterministic) needs and that are not set:
/// `NCCL_NVLS_ENABLE=0`, `NCCL_TUNER_PLUGIN=none`, `NCCL_GRAPH_REGISTER=0` and `NCCL_ENV_PLUGIN=none`. Wraps nothing. It comes before NCCL is
/// first used in the process, by whomever; who sets them outside of the program needs it not.
///
/// ```
/// use gpucomm::nccl::{self, Config, InitOptions};
/// use gpucomm::{Clique, Device};
///
/// # fn main() -> gpucomm::Result<()> {
/// // SAFETY: the program has just begun, and has one thread.
/// unsafe { nccl::prepare_determinism()? };
///
/// let options = InitOptions::new().with_config(Config::new().with_deterministic(true));
/// let clique = Clique::init_all_with(&Device::all()?, &options)?;
/// # drop(clique);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`InvalidArgument`](crate::Error::InvalidArgument), which names all variables that say something else, and those that were not yet set when NCCL was
/// first used. Then nothing is set.
///
/// # Safety
/// No other thread reads or writes the environment meanwhile, but by `std::env`: as [`std::env::set_var`].
pub unsafe fn prepare_determinism() -> Result<()> {
    const OPERATION: &str = "prepare_determinism";
    let now = said();
    check_variables(OPERATION, &now, false)?;
    for (rule, _) in RULES.iter().zip(now).filter(|(_, said)| said.is_none()) {
        if let Some(value) = rule.value {
            // SAFETY: the caller promises that nobody else is at it.
            unsafe { std::env::set_var(rule.name, value) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_variable_may_say() {
        let met = |name: &str, value: Option<&str>| {
            let rule = RULES.iter().find(|rule| rule.name == name).unwrap();
            rule.is_met(&value.map(|value| (value.to_owned(), String::new())), true)
        };
        for (name, value) in [
            ("NCCL_NVLS_ENABLE", Some("0")),
            ("NCCL_TUNER_PLUGIN", Some("NONE")),
            ("NCCL_ENV_PLUGIN", Some("None")),
            ("NCCL_GRAPH_REGISTER", Some("0")),
            ("NCCL_COLLNET_ENABLE", Some("0")),
            ("NCCL_COLLNET_ENABLE", None),
            ("NCCL_CTA_POLICY", None),
            ("NCCL_CTA_POLICY", Some("0")),
            ("NCCL_CTA_POLICY", Some("DEFAULT")),
        ] {
            assert!(met(name, value), "{name} {value:?}");
        }
        for (name, value) in [
            ("NCCL_NVLS_ENABLE", Some("1")),
            ("NCCL_NVLS_ENABLE", Some("2")),
            ("NCCL_TUNER_PLUGIN", None),
            ("NCCL_TUNER_PLUGIN", Some("libnccl-tuner.so")),
            ("NCCL_ENV_PLUGIN", None),
            ("NCCL_ENV_PLUGIN", Some("none.so")),
            ("NCCL_GRAPH_REGISTER", None),
            ("NCCL_COLLNET_ENABLE", Some("1")),
            ("NCCL_CTA_POLICY", Some("1")),
            ("NCCL_CTA_POLICY", Some("efficiency")),
            ("NCCL_CTA_POLICY", Some("DEFAULT|EFFICIENCY")),
        ] {
            assert!(!met(name, value), "{name} {value:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_named_at_once() {
        // Where nothing has used NCCL before, a value that fits is right.
        let right = |rule: &Rule| rule.value.map(|value| (value.to_owned(), "the environment".to_owned()));
        let mut now: Vec<Said> = RULES.iter().map(right).collect();
        check_said("a test", &now, None, true).unwrap();
        now[1] = Some(("1".to_owned(), "/etc/nccl.conf".to_owned()));
        let one = check_said("a test", &now, None, true).unwrap_err();
        assert!(matches!(one, Error::InvalidArgument { what: "NCCL_NVLS_ENABLE", .. }), "{one}");
        now[2] = None;
        now[5] = Some(("2".to_owned(), "the environment".to_owned()));
        let all = check_said("a test", &now, None, true).unwrap_err().to_string();
        for part in [
            "NCCL_NVLS_ENABLE: \"1\" in /etc/nccl.conf",
            "NCCL_TUNER_PLUGIN: that it is not set",
            "NCCL_CTA_POLICY: \"2\" in the environment",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        assert!(!all.contains("NCCL_GRAPH_REGISTER") && !all.contains("NCCL_ENV_PLUGIN"), "{all}");
        // Those that are not set are no matter where they are about to be.
        let some = check_said("a test", &now, None, false).unwrap_err().to_string();
        assert!(!some.contains("NCCL_TUNER_PLUGIN"), "{some}");
    }

    #[test]
    fn what_was_said_at_first_counts_as_well() {
        let rule = &RULES[0];
        let said = |value: &str| Some((value.to_owned(), "the environment".to_owned()));
        let complaint = |now: Said, read: Said| rule.complaint(&now, Some(&read), true);
        assert_eq!(complaint(said("none"), said("none")), None);
        let late = complaint(said("none"), None).unwrap();
        assert!(late.starts_with("that it is not set when NCCL was first used"), "{late}");
        let both = complaint(said("some"), None).unwrap();
        assert!(both.starts_with("\"some\" in the environment, and that it is not set when NCCL was first"), "{both}");
    }
}
