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

const RULES: [Rule; 5] = [
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
        fits: |value| value.eq_ignore_ascii_case("none"),
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
            Some((value, _)) => (self.fits)(value),
            None => self.value.is_none() || !strictly || self.is_configured(),
        }
    }

    /// Whether the configuration says it.
    fn is_configured(&self) -> bool {
        cfg!(nccl_ge_2_32)
            && self.name == "NCCL_NVLS_ENABLE"
            && version::running_nccl().is_ok_and(|running| running >= Version::new(2, 32, 3))
    }

    fn refusal(&self, operation: &'static str, said: &Said, when: &str) -> Error {
        let got = match said {
            Some((value, place)) => format!("{value:?} in {place}"),
            None => "that it is not set".to_owned(),
        };
        let expected = format!("{}; see nccl::prepare_determinism", self.expected);
        Error::argument(operation, self.name, expected, format_args!("{got}{when}"))
    }
}

/// Refuses what cannot be had: a version that is too old, and an environment that says something else, or did when NCCL has read it.
pub(super) fn check(operation: &'static str) -> Result<()> {
    version::needs(operation, FIRST).map_err(|error| error.noted("for deterministic"))?;
    let now = said();
    for (rule, said) in RULES.iter().zip(&now) {
        if !rule.is_met(said, true) {
            return Err(rule.refusal(operation, said, ""));
        }
    }
    for (rule, said) in RULES.iter().zip(READ.get().into_iter().flatten()) {
        if rule.once && !rule.is_met(said, true) {
            return Err(rule.refusal(operation, said, " when NCCL was first used, which reads it once"));
        }
    }
    Ok(())
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

/// Sets the variables of the environment that [`Config::deterministic`](crate::nccl::Config::deterministic) needs and that are not set:
/// `NCCL_NVLS_ENABLE=0`, `NCCL_TUNER_PLUGIN=none` and `NCCL_GRAPH_REGISTER=0`. Wraps nothing. It comes before NCCL is first used in the
/// process, by whomever; who sets them outside of the program needs it not.
///
/// ```
/// use gpucomm::nccl::{self, Config, InitOptions};
/// use gpucomm::{Clique, Device};
///
/// # fn main() -> gpucomm::Result<()> {
/// // SAFETY: the program has just begun, and has one thread.
/// unsafe { nccl::prepare_determinism()? };
///
/// let options = InitOptions { config: Config::new().deterministic(true), ..InitOptions::default() };
/// let clique = Clique::init_all_with(&Device::all()?, &options)?;
/// # drop(clique);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`InvalidArgument`](crate::Error::InvalidArgument), which names the variable, where one says something else, or where NCCL was used before one of them
/// was set. Then nothing is set.
///
/// # Safety
/// No other thread reads or writes the environment meanwhile, but by `std::env`: as [`std::env::set_var`].
pub unsafe fn prepare_determinism() -> Result<()> {
    const OPERATION: &str = "prepare_determinism";
    let (now, used) = (said(), READ.get());
    for (at, rule) in RULES.iter().enumerate() {
        if !rule.is_met(&now[at], false) {
            return Err(rule.refusal(OPERATION, &now[at], ""));
        }
        if let Some(used) = used
            && rule.once
            && !rule.is_met(&used[at], true)
        {
            return Err(rule.refusal(OPERATION, &used[at], " when NCCL was first used, which reads it once"));
        }
    }
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
            ("NCCL_GRAPH_REGISTER", None),
            ("NCCL_COLLNET_ENABLE", Some("1")),
            ("NCCL_CTA_POLICY", Some("1")),
            ("NCCL_CTA_POLICY", Some("efficiency")),
            ("NCCL_CTA_POLICY", Some("DEFAULT|EFFICIENCY")),
        ] {
            assert!(!met(name, value), "{name} {value:?}");
        }
    }
}
