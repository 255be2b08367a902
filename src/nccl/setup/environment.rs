//! What the environment says, and NCCL's files: NCCL is told there what a program does not tell it.
//!
//! Its variables override what a communicator is made with, and its files set variables that the environment does not. Two of them
//! cannot be borne. `NCCL_COMM_BLOCKING=0` makes communicators whose calls return before they are done: they are made, and the first
//! operation fails. `NCCL_CTA_POLICY=ZERO`, or 2, has copy engines move the data, for which ranks agree on
//! too little, see `Config::check`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};

use crate::cuda::Device;
use crate::deadline;
use crate::error::{Error, Result};
use crate::version::{self, Version};

const BLOCKING: &str = "NCCL_COMM_BLOCKING";
const POLICY: &str = "NCCL_CTA_POLICY";
const MULTI_RANK: &str = "NCCL_MULTI_RANK_GPU_ENABLE";
const DEVICES_ONCE: &str =
    "each device once; NCCL 2.30.3 and newer have several ranks on one where NCCL_MULTI_RANK_GPU_ENABLE=1 is set";
const CHECKED: &str = "GPUCOMM_CHECKED";
const SHARE: &str = "NCCL_COMM_SPLIT_SHARE_RESOURCES";

/// Refuses an environment in which NCCL would make communicators that do not block, or whose work copy engines do, or one that says
/// nonsense to this crate.
pub(crate) fn check(operation: &'static str) -> Result<()> {
    deadline::check_environment(operation)?;
    let files = files();
    let refused = |name, is_refused: fn(&str) -> bool, expected: &str| {
        let value = seen(name, |name| std::env::var_os(name), &files).filter(|(value, _)| is_refused(value));
        value.map_or(Ok(()), |(value, place)| {
            Err(Error::argument(operation, name, expected, format!("{value:?} in {place}")))
        })
    };
    refused(
        BLOCKING,
        is_zero,
        "1, or that it is not set: communicators block here, and keep their deadlines otherwise",
    )?;
    refused(POLICY, has_copy_engines, NO_COPY_ENGINES)
}

/// Whether communicators that are made over an exchange are checked, though the program does not say so.
pub(crate) fn checked(operation: &'static str) -> Result<bool> {
    match std::env::var_os(CHECKED) {
        None => Ok(false),
        Some(value) => match value.to_str() {
            Some("1") => Ok(true),
            Some("" | "0") => Ok(false),
            _ => Err(Error::argument(operation, CHECKED, "0 or 1, or that it is not set", format!("{value:?}"))),
        },
    }
}

/// Says once that ranks which start by an id alone compare nothing, where the environment wants them to: there is nothing to compare over.
pub(crate) fn cannot_check(operation: &'static str) -> Result<()> {
    static SAID: Once = Once::new();
    if checked(operation)? {
        SAID.call_once(|| {
            eprintln!(
                "gpucomm: {CHECKED}=1: ranks of {operation} have no exchange to compare over, and are not checked; those of \
                 Communicator::init_rank_over are"
            );
        });
    }
    Ok(())
}

/// Refuses `NCCL_COMM_ID` for a start by several ids: NCCL takes the first of them where rank 0 is, and all on the other ranks.
#[cfg(nccl_ge_2_23_4)]
pub(crate) fn check_ids(operation: &'static str) -> Result<()> {
    const ID: &str = "NCCL_COMM_ID";
    match seen(ID, |name| std::env::var_os(name), &files()) {
        None => Ok(()),
        Some((value, place)) => {
            Err(Error::argument(operation, ID, "that it is not set, with several ids", format!("{value:?} in {place}")))
        }
    }
}

/// Whether communicators split from one that says `configured` share its resources: the environment and the files come first, and what
/// is neither 0 nor 1 there counts as 0. Read once, as NCCL does.
pub(crate) fn shares(configured: bool) -> bool {
    static SAID: OnceLock<Option<bool>> = OnceLock::new();
    SAID.get_or_init(|| is_one(SHARE)).unwrap_or(configured)
}

/// The same of those that are shrunk from it.
#[cfg(nccl_ge_2_27)]
pub(crate) fn shrinks_share(configured: bool) -> bool {
    static SAID: OnceLock<Option<bool>> = OnceLock::new();
    SAID.get_or_init(|| is_one("NCCL_COMM_SHRINK_SHARE_RESOURCES")).unwrap_or(configured)
}

/// Whether several ranks of a communicator may be on one device: NCCL 2.30.3 and newer let them, where this says so.
pub(crate) fn ranks_share_devices() -> bool {
    static SAID: OnceLock<bool> = OnceLock::new();
    let said = || seen(MULTI_RANK, |name| std::env::var_os(name), &files()).and_then(|(value, _)| number(&value));
    *SAID.get_or_init(|| said().is_some_and(|number| number != 0))
        && version::running_nccl().is_ok_and(|running| running >= Version::new(2, 30, 3))
}

/// Refuses a device that is there twice, unless ranks may share devices.
pub(crate) fn check_devices(operation: &'static str, argument: &'static str, devices: &[Device]) -> Result<()> {
    let twice = devices.iter().enumerate().find(|(at, device)| devices[..*at].contains(device));
    let Some((_, device)) = twice.filter(|_| !ranks_share_devices()) else { return Ok(()) };
    Err(Error::argument(operation, argument, DEVICES_ONCE, format!("{device} twice")))
}

/// Whether graphs and other operations may be mixed, where the environment or the files say so. Read once, as NCCL does.
pub(crate) fn mixes_graphs() -> Option<bool> {
    static SAID: OnceLock<Option<bool>> = OnceLock::new();
    *SAID.get_or_init(|| is_one("NCCL_GRAPH_MIXING_SUPPORT"))
}

/// Whether NCCL registers memory of `cudaMalloc` by itself, too, where the environment or the files say so. Read once, as NCCL does.
pub(crate) fn registers_allocated() -> bool {
    static SAID: OnceLock<bool> = OnceLock::new();
    let said = || seen("NCCL_LEGACY_CUDA_REGISTER", |name| std::env::var_os(name), &files());
    *SAID.get_or_init(|| said().is_some_and(|(value, _)| !is_zero(&value)))
}

/// Whether NCCL makes the local memory of its kernels when a communicator starts. Read once, as NCCL does.
pub(crate) fn sets_stack_size() -> bool {
    static SAID: OnceLock<bool> = OnceLock::new();
    *SAID.get_or_init(|| is_one("NCCL_SET_STACK_SIZE") == Some(true))
}

/// What stands for this host, where the environment or the files say so.
pub(crate) fn host_id() -> Option<String> {
    seen("NCCL_HOSTID", |name| std::env::var_os(name), &files()).map(|(value, _)| value)
}

/// What the environment or the files say, if it is anything.
pub(crate) fn said(name: &str) -> Option<String> {
    seen(name, |name| std::env::var_os(name), &files()).map(|(value, _)| value).filter(|value| !value.is_empty())
}

/// Whether a number that is said is 1.
fn is_one(name: &str) -> Option<bool> {
    let (value, _) = seen(name, |name| std::env::var_os(name), &files())?;
    number(&value).map(|number| number == 1)
}

/// What is expected of a policy.
pub(crate) const NO_COPY_ENGINES: &str = "0 or 1: copy engines, the policy 2, take from each rank alone where the others' memory is, and no abort reaches them";

/// The value of `name` that counts, and where it stands: the environment comes before the files, an earlier file before a later one, and
/// in a file an earlier line before a later one.
pub(super) fn seen(
    name: &str,
    read: impl Fn(&str) -> Option<std::ffi::OsString>,
    files: &[PathBuf],
) -> Option<(String, String)> {
    if let Some(value) = read(name) {
        return Some((value.to_string_lossy().into_owned(), "the environment".to_owned()));
    }
    files.iter().find_map(|file| {
        let text = std::fs::read(file).ok()?;
        let value = line_of(name, &String::from_utf8_lossy(&text), is_portable())?.to_owned();
        Some((value, file.display().to_string()))
    })
}

/// The files that NCCL reads, in its order.
pub(super) fn files() -> Vec<PathBuf> {
    let named = std::env::var_os("NCCL_CONF_FILE").filter(|name| !name.is_empty()).map(PathBuf::from);
    let user = named.or_else(|| {
        let mut file = if is_portable() { std::env::var_os("HOME")? } else { home()?.into_os_string() };
        file.push("/.nccl.conf");
        Some(PathBuf::from(file))
    });
    user.into_iter().chain([PathBuf::from("/etc/nccl.conf")]).collect()
}

/// Whether NCCL reads its files as on any system, which it does since 2.30.3: it goes by `HOME`, and lines may end with `\r\n`.
fn is_portable() -> bool {
    version::running_nccl().is_ok_and(|running| running >= Version::new(2, 30, 3))
}

/// The home directory as NCCL finds it before that: that of the user, whatever `HOME` says.
fn home() -> Option<PathBuf> {
    let user = std::fs::metadata("/proc/self").ok()?.uid().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own =
        users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields.get(2) == Some(&&*user));
    match own {
        Some(fields) => fields.get(5).map(|home| Path::new(home).to_owned()),
        None => std::env::home_dir(),
    }
}

/// The value in the text of a file: lines of `NAME=value`, without any spaces around, of which `is_portable` says how they may end.
fn line_of<'a>(name: &str, text: &'a str, is_portable: bool) -> Option<&'a str> {
    let whole = |line: &'a str| if is_portable { line.strip_suffix('\r').unwrap_or(line) } else { line };
    text.split('\n').map(whole).find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// Whether NCCL takes a value for zero.
pub(super) fn is_zero(value: &str) -> bool {
    number(value) == Some(0)
}

/// Whether some NCCL takes a value for the policy of copy engines: up to 2.29 it is a number; since 2.30 the first digit, or words with
/// bars between them.
fn has_copy_engines(value: &str) -> bool {
    number(value) == Some(2) || value.starts_with('2') || value.split('|').any(|word| word.eq_ignore_ascii_case("ZERO"))
}

/// The number that NCCL takes a value for. It reads it in the way of C: a word that is none counts as zero, one that is too large and an
/// empty one as not set.
pub(super) fn number(value: &str) -> Option<i32> {
    if value.is_empty() {
        return None;
    }
    let text = value.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let (negative, text) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (radix, digits) = match hex.filter(|rest| rest.starts_with(|first: char| first.is_ascii_hexdigit())) {
        Some(rest) => (16, rest),
        None => (if text.starts_with('0') { 8 } else { 10 }, text),
    };
    let end = digits.find(|digit: char| !digit.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return Some(0);
    }
    let sign = if negative { "-" } else { "" };
    // NCCL keeps the lower half.
    i64::from_str_radix(&format!("{sign}{}", &digits[..end]), radix).ok().map(|number| number as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nccl_takes_for_zero() {
        for zero in ["0", " 0", "00", "0x0", "-0", "no", "false", "0, please", "x1", " ", "4294967296", "0x"] {
            assert!(is_zero(zero), "{zero:?}");
        }
        for other in ["", "1", " 1", "+1", "-1", "2", "0x1", "01", "1x", "99999999999999999999"] {
            assert!(!is_zero(other), "{other:?}");
        }
    }

    #[test]
    fn what_nccl_takes_for_copy_engines() {
        for engines in
            ["2", " 2", "+2", "0x2", "02", "20", "2x", "ZERO", "zero", "EFFICIENCY|ZERO", "|Zero|", "4294967298"]
        {
            assert!(has_copy_engines(engines), "{engines:?}");
        }
        for other in ["", "0", "1", "3", "-2", "12", "DEFAULT", "EFFICIENCY|DEFAULT", "ZEROS"] {
            assert!(!has_copy_engines(other), "{other:?}");
        }
    }

    #[test]
    fn lines_of_a_file() {
        let with = line_of;
        let line_of = |text: &'static str| with(BLOCKING, text, true);
        assert_eq!(line_of("NCCL_DEBUG=INFO\nNCCL_COMM_BLOCKING=0\n"), Some("0"));
        assert_eq!(line_of("NCCL_COMM_BLOCKING=1\nNCCL_COMM_BLOCKING=0"), Some("1"));
        for other in
            ["", "#NCCL_COMM_BLOCKING=0", " NCCL_COMM_BLOCKING=0", "NCCL_COMM_BLOCKING =0", "NCCL_COMM_BLOCKING"]
        {
            assert_eq!(line_of(other), None, "{other:?}");
        }
        let text = "NCCL_DEBUG=INFO\r\nNCCL_CTA_POLICY=ZERO\r\n";
        assert_eq!([true, false].map(|portable| with(POLICY, text, portable)), [Some("ZERO"), Some("ZERO\r")]);
    }

    #[test]
    fn the_environment_comes_before_the_files() {
        let directory = std::env::temp_dir().join(format!("gpucomm-conf-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let files: Vec<_> = ["none", "first", "second"].iter().map(|name| directory.join(name)).collect();
        std::fs::write(&files[1], "NCCL_COMM_BLOCKING=0\n").unwrap();
        std::fs::write(&files[2], "NCCL_COMM_BLOCKING=1\n").unwrap();
        let (value, place) = seen(BLOCKING, |_| None, &files).unwrap();
        assert_eq!((&*value, place), ("0", files[1].display().to_string()));
        assert_eq!(seen(BLOCKING, |_| Some("1".into()), &files).unwrap().0, "1");
        assert_eq!(seen(BLOCKING, |_| None, &files[..1]), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
