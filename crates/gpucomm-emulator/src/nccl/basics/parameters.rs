//! The parameters of which NCCL tells, by the names of environment variables: those of NCCL 2.30.7 and 2.32.3, with their answers there,
//! against both of which the tests of the conformance suite ran that need no device.
//!
//! They are about what NCCL writes to its log, which the emulator does not have: it reads them, and that is all.

use std::any::Any;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{Failure, Outcome};
use super::variables;
use crate::bugs::Nccl;
use crate::report;
use crate::settings::settings;
use crate::sys::ncclParamHandle_t;

/// A name that a value may have.
#[derive(Debug)]
struct Named {
    name: &'static str,
    value: u64,
    first: Nccl,
}

const fn named(name: &'static str, value: u64) -> Named {
    Named { name, value, first: 0 }
}

const fn since(first: Nccl, name: &'static str, value: u64) -> Named {
    Named { name, value, first }
}

/// The first version with a level for what is to be noticed.
const ATTENTION: Nccl = 2_32_00;

const LEVELS: &[Named] = &[
    named("VERSION", 1),
    named("WARN", 2),
    since(ATTENTION, "ATTN", 6),
    named("INFO", 3),
    named("ABORT", 4),
    named("TRACE", 5),
];

/// A bit for each level; `ALL` is all that there are.
const LEVEL_BITS: &[Named] = &[
    named("VERSION", 1 << 1),
    named("WARN", 1 << 2),
    since(ATTENTION, "ATTN", 1 << 6),
    named("INFO", 1 << 3),
    named("ABORT", 1 << 4),
    named("TRACE", 1 << 5),
];

const PARTS: &[Named] = &[
    named("INIT", 0x1),
    named("COLL", 0x2),
    named("P2P", 0x4),
    named("SHM", 0x8),
    named("NET", 0x10),
    named("GRAPH", 0x20),
    named("TUNING", 0x40),
    named("ENV", 0x80),
    named("ALLOC", 0x100),
    named("ALLOC_HOST", 0x2_0000),
    named("CALL", 0x200),
    named("PROXY", 0x400),
    named("NVLS", 0x800),
    named("BOOTSTRAP", 0x1000),
    named("REG", 0x2000),
    named("PROFILE", 0x4000),
    named("RAS", 0x8000),
    named("DESTROY", 0x1_0000),
];

/// What a parameter may hold, and what it holds where nothing that it could be is said.
#[derive(Debug)]
enum Kind {
    /// One of the names, or 0, which has none: an enumeration of C.
    Choice(&'static [Named]),
    /// Any of them, in 32 bits: what is taken unless something is said.
    Levels(&'static [&'static str]),
    /// Any of them, in 64 bits.
    Parts(u64),
    Flag,
    Text(&'static str),
}

/// What a parameter that is read once was then.
type Kept = OnceLock<Option<String>>;

#[derive(Debug)]
pub(crate) struct Parameter {
    key: &'static CStr,
    kind: Kind,
    first: Nccl,
    /// Told to who asks for all.
    is_public: bool,
    /// Read once.
    kept: Option<&'static Kept>,
}

const fn public(key: &'static CStr, kind: Kind) -> Parameter {
    Parameter { key, kind, first: 0, is_public: true, kept: None }
}

const fn private(key: &'static CStr, kind: Kind) -> Parameter {
    Parameter { key, kind, first: 0, is_public: false, kept: None }
}

const DUMP_ALL: &CStr = c"NCCL_PARAM_DUMP_ALL";
const NO_CACHE: &CStr = c"NCCL_NO_CACHE";

static UNCACHED: Kept = Kept::new();
static THREAD_NAMES: Kept = Kept::new();

static ALL: [Parameter; 10] = [
    public(c"NCCL_DEBUG", Kind::Choice(LEVELS)),
    public(c"NCCL_DEBUG_FILE", Kind::Text("")),
    Parameter { first: ATTENTION, ..public(c"NCCL_DEBUG_LEVELS", Kind::Levels(&[])) },
    public(c"NCCL_DEBUG_SUBSYS", Kind::Parts(0x1081)),
    public(c"NCCL_DEBUG_TIMESTAMP_FORMAT", Kind::Text("[%F %T] ")),
    public(c"NCCL_DEBUG_TIMESTAMP_LEVELS", Kind::Levels(&["WARN", "ATTN"])),
    Parameter { kept: Some(&UNCACHED), ..private(NO_CACHE, Kind::Text("")) },
    private(DUMP_ALL, Kind::Flag),
    Parameter { kept: Some(&THREAD_NAMES), ..public(c"NCCL_SET_THREAD_NAME", Kind::Flag) },
    private(c"NCCL_WARN_ENABLE_DEBUG_INFO", Kind::Flag),
];

/// What a parameter holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Choice(u32),
    U32(u32),
    U64(u64),
    Flag(bool),
    Text(String),
}

/// Those names that the version has.
fn there(all: &'static [Named]) -> impl Iterator<Item = &'static Named> {
    all.iter().filter(|one| one.first <= settings().nccl)
}

fn find(all: &'static [Named], name: &str) -> Option<u64> {
    there(all).find(|one| one.name.eq_ignore_ascii_case(name)).map(|one| one.value)
}

/// The bits of names with commas between; of all others with `^` in front. `None` where one is unknown.
fn bits(all: &'static [Named], whole: u64, text: &str) -> Option<u64> {
    let (names, is_inverse) = text.strip_prefix('^').map_or((text, false), |rest| (rest, true));
    let mut found = 0;
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        found |= if name.eq_ignore_ascii_case("ALL") { whole } else { find(all, name)? };
    }
    Some(if is_inverse { !found } else { found })
}

/// The same the other way round.
fn names(all: &'static [Named], whole: u64, value: u64) -> String {
    if value == whole {
        return "ALL".to_owned();
    }
    let names: Vec<_> = there(all).filter(|one| value & one.value != 0).map(|one| one.name).collect();
    if names.is_empty() { "NONE".to_owned() } else { names.join(",") }
}

/// The bits of all levels that there are.
fn all_levels() -> u64 {
    there(LEVEL_BITS).fold(0, |all, one| all | one.value)
}

fn flag(text: &str) -> Option<bool> {
    let is = |words: [&str; 3]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is(["1", "T", "TRUE"]) {
        Some(true)
    } else if is(["0", "F", "FALSE"]) {
        Some(false)
    } else {
        None
    }
}

impl Parameter {
    fn name(&self) -> &'static str {
        self.key.to_str().expect("names are ASCII")
    }

    /// Returns the text of the environment or of a file: as it is now, or as it was when it was first read.
    fn said(&self) -> Option<String> {
        let read = || variables::value(self.name());
        match self.kept {
            Some(kept) if self.key == NO_CACHE || !is_read_anew(self.name()) => kept.get_or_init(read).clone(),
            _ => read(),
        }
    }

    fn value(&self) -> Value {
        let said = self.said();
        let said = said.as_deref();
        match self.kind {
            Kind::Choice(all) => Value::Choice(said.and_then(|text| find(all, text.trim())).unwrap_or(0) as u32),
            Kind::Levels(unless) => {
                let read = said.and_then(|text| bits(LEVEL_BITS, all_levels(), text));
                let unless = || unless.iter().filter_map(|name| find(LEVEL_BITS, name)).fold(0, |all, bit| all | bit);
                Value::U32(read.unwrap_or_else(unless) as u32)
            }
            Kind::Parts(unless) => Value::U64(said.and_then(|text| bits(PARTS, !0, text)).unwrap_or(unless)),
            Kind::Flag => Value::Flag(said.and_then(flag).unwrap_or(false)),
            Kind::Text(unless) => Value::Text(said.unwrap_or(unless).to_owned()),
        }
    }

    /// As NCCL writes it.
    fn text(&self) -> String {
        match (self.value(), &self.kind) {
            (Value::Choice(value), Kind::Choice(all)) => {
                let name = there(all).find(|one| one.value == u64::from(value));
                name.map_or("<unknown>", |one| one.name).to_owned()
            }
            (Value::U64(value), _) => names(PARTS, !0, value),
            (Value::Choice(value) | Value::U32(value), _) => names(LEVEL_BITS, all_levels(), value.into()),
            (Value::Flag(value), _) => if value { "TRUE" } else { "FALSE" }.to_owned(),
            (Value::Text(text), _) => text,
        }
    }

    /// As it lies in memory.
    fn bytes(&self) -> Vec<u8> {
        match self.value() {
            Value::Choice(value) | Value::U32(value) => value.to_ne_bytes().to_vec(),
            Value::U64(value) => value.to_ne_bytes().to_vec(),
            Value::Flag(value) => vec![value.into()],
            Value::Text(text) => CString::new(text).unwrap_or_default().into_bytes_with_nul(),
        }
    }
}

/// Whether what is usually read once is read each time.
fn is_read_anew(name: &str) -> bool {
    let named = ALL.iter().find(|one| one.key == NO_CACHE).and_then(Parameter::said).unwrap_or_default();
    named.split(',').map(str::trim).any(|one| one == name || one == "ALL")
}

/// Set while a thread is in a function that looks into a set of NCCL which no lock guards.
static BUSY: AtomicBool = AtomicBool::new(false);

/// The parameter of that name, as two functions find it, of which NCCL 2.30.7 lets no two run at a time.
pub(crate) fn by_name(name: &CStr) -> Outcome<&'static Parameter> {
    if BUSY.swap(true, Ordering::AcqRel) {
        report::violation("two threads ask for parameters by their names: NCCL has no lock there");
    }
    let found = ALL.iter().find(|one| one.first <= settings().nccl && one.key == name);
    BUSY.store(false, Ordering::Release);
    found.ok_or_else(|| Failure::argument(format!("key {name:?} not found in registry")))
}

/// The parameter behind a handle.
pub(crate) fn of(handle: ncclParamHandle_t) -> Outcome<&'static Parameter> {
    if handle.is_null() {
        return Err(Failure::argument("the handle is null"));
    }
    let found = ALL.iter().find(|one| ptr::from_ref(*one).addr() == handle.addr());
    found.ok_or_else(|| Failure::unnoticed("what is no handle of a parameter was passed for one"))
}

/// The handle of a parameter.
pub(crate) fn handle(parameter: &'static Parameter) -> ncclParamHandle_t {
    ptr::from_ref(parameter).cast_mut().cast()
}

/// What it holds, if it is of that very type: `u32`, `u64` and `String` are there.
pub(crate) fn typed<T: Clone + 'static>(parameter: &Parameter) -> Outcome<T> {
    let found = match parameter.value() {
        Value::U32(value) => Box::new(value) as Box<dyn Any>,
        Value::U64(value) => Box::new(value),
        Value::Text(text) => Box::new(text),
        Value::Choice(_) | Value::Flag(_) => Box::new(()),
    };
    let found = found.downcast::<T>().map(|value| *value);
    found.map_err(|_| Failure::argument(format!("type mismatch for key \"{}\"", parameter.name())))
}

/// What it holds, byte by byte, which takes no more than `longest` of them.
pub(crate) fn bytes(parameter: &Parameter, longest: usize) -> Outcome<Vec<u8>> {
    let bytes = parameter.bytes();
    if bytes.len() > longest {
        return Err(Failure::argument(format!("{} takes {} bytes, not {longest}", parameter.name(), bytes.len())));
    }
    Ok(bytes)
}

/// What it holds, as NCCL writes it.
pub(crate) fn text(parameter: &Parameter) -> String {
    parameter.text()
}

/// The names of those of which NCCL tells without being asked for all.
pub(crate) fn keys() -> Vec<*const c_char> {
    let shows_all = ALL.iter().any(|one| one.key == DUMP_ALL && one.value() == Value::Flag(true));
    let there = ALL.iter().filter(|one| one.first <= settings().nccl && (one.is_public || shows_all));
    there.map(|one| one.key.as_ptr()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What NCCL 2.30.7 answers to these texts, whatever version the emulator stands for.
    #[test]
    fn bits_are_read_as_nccl_reads_them() {
        let parts = |text| bits(PARTS, !0, text);
        assert_eq!(parts("INIT,COLL"), Some(3));
        assert_eq!(parts(" init , Coll,"), Some(3));
        assert_eq!(parts("^INIT"), Some(!1));
        assert_eq!((parts("ALL"), parts("^all"), parts(""), parts("^")), (Some(!0), Some(0), Some(0), Some(!0)));
        assert_eq!((parts("INIT,NONE"), parts("2"), parts("INIT COLL")), (None, None, None));
    }

    #[test]
    fn bits_are_written_as_nccl_writes_them() {
        let parts = |value| names(PARTS, !0, value);
        assert_eq!(parts(0x1081), "INIT,ENV,BOOTSTRAP");
        let rest =
            "COLL,P2P,SHM,NET,GRAPH,TUNING,ENV,ALLOC,ALLOC_HOST,CALL,PROXY,NVLS,BOOTSTRAP,REG,PROFILE,RAS,DESTROY";
        assert_eq!(parts(!1), rest);
        assert_eq!((parts(!0).as_str(), parts(0).as_str(), parts(1 << 63).as_str()), ("ALL", "NONE", "NONE"));
    }

    #[test]
    fn flags_have_three_words_each() {
        for (text, want) in [("1", Some(true)), ("t", Some(true)), ("True", Some(true)), ("0", Some(false))] {
            assert_eq!(flag(text), want, "{text}");
        }
        for text in ["", "yes", "2", " 1"] {
            assert_eq!(flag(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_there_once() {
        for one in &ALL {
            assert_eq!(ALL.iter().filter(|other| other.key == one.key).count(), 1, "{one:?}");
        }
    }
}
