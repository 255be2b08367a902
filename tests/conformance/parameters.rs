//! What NCCL is set to, as it says itself.

use gpucomm::nccl::{Parameter, ParameterType, ParameterValue, version};
use gpucomm::version::Version;
use gpucomm::{Device, Error, Result, Stream};

use crate::support::each_version::{child as run_role, each_version, each_version_with};
use crate::support::random::rng;
use crate::support::{assert_argument, assert_names, watched};

const CHILD: &str = "parameters::child";

/// The first version that tells of any.
const FIRST: Version = Version::new(2, 30, 4);

/// What a child finds that it is to expect of `NCCL_DEBUG_SUBSYS`.
const EXPECTED: &str = "GPUCOMM_TEST_PARTS";

/// The parts of NCCL whose lines are chosen, by the bits of its header for plugins.
const PARTS: [(&str, u64); 18] = [
    ("INIT", 0),
    ("COLL", 1),
    ("P2P", 2),
    ("SHM", 3),
    ("NET", 4),
    ("GRAPH", 5),
    ("TUNING", 6),
    ("ENV", 7),
    ("ALLOC", 8),
    ("CALL", 9),
    ("PROXY", 10),
    ("NVLS", 11),
    ("BOOTSTRAP", 12),
    ("REG", 13),
    ("PROFILE", 14),
    ("RAS", 15),
    ("DESTROY", 16),
    ("ALLOC_HOST", 17),
];

#[test]
#[ignore = "the body of child processes"]
fn child() {
    run_role(&[
        ("finds what is set", finds_what_is_set),
        ("finds defaults", finds_defaults),
        ("finds parts", finds_parts),
        ("types and names", types_and_names),
        ("all", all),
        ("threads", threads),
        ("host function", host_function),
    ]);
}

/// Whether the version tells of any; else it has said so.
fn is_there() -> bool {
    let running = version().unwrap();
    if running >= FIRST {
        return true;
    }
    for error in [Parameter::all().unwrap_err(), Parameter::find("NCCL_DEBUG").unwrap_err()] {
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert_names(&error, &["Parameter::", "2.30.4 or newer", &format!("{running} is running")]);
    }
    false
}

/// Holds all that is told of one parameter against what it should be.
#[track_caller]
fn holds(name: &str, value: ParameterValue, text: &str) {
    let parameter = Parameter::find(name).unwrap();
    assert_eq!((parameter.name(), parameter.value().unwrap(), parameter.text().unwrap()), (name, value, text.into()));
}

const SET: [(&str, &str); 8] = [
    ("NCCL_DEBUG", " wArn "),
    ("NCCL_DEBUG_SUBSYS", "^INIT"),
    ("NCCL_DEBUG_TIMESTAMP_LEVELS", "trace,INFO"),
    ("NCCL_DEBUG_TIMESTAMP_FORMAT", "%T \u{2192} "),
    ("NCCL_DEBUG_FILE", "/dev/null"),
    ("NCCL_SET_THREAD_NAME", "t"),
    ("NCCL_WARN_ENABLE_DEBUG_INFO", "True"),
    ("NCCL_NO_CACHE", "NCCL_ALGO"),
];

fn finds_what_is_set(_: usize) {
    if !is_there() {
        return;
    }
    let text = |text: &str| ParameterValue::Text(text.into());
    holds("NCCL_DEBUG", ParameterValue::Other("WARN".into()), "WARN");
    let rest = "COLL,P2P,SHM,NET,GRAPH,TUNING,ENV,ALLOC,ALLOC_HOST,CALL,PROXY,NVLS,BOOTSTRAP,REG,PROFILE,RAS,DESTROY";
    holds("NCCL_DEBUG_SUBSYS", ParameterValue::U64(!1), rest);
    holds("NCCL_DEBUG_TIMESTAMP_LEVELS", ParameterValue::U32(1 << 3 | 1 << 5), "INFO,TRACE");
    holds("NCCL_DEBUG_TIMESTAMP_FORMAT", text("%T \u{2192} "), "%T \u{2192} ");
    holds("NCCL_DEBUG_FILE", text("/dev/null"), "/dev/null");
    holds("NCCL_SET_THREAD_NAME", ParameterValue::Bool(true), "TRUE");
    holds("NCCL_WARN_ENABLE_DEBUG_INFO", ParameterValue::Bool(true), "TRUE");
    holds("NCCL_NO_CACHE", text("NCCL_ALGO"), "NCCL_ALGO");
}

#[test]
fn what_is_set_is_found() {
    watched(200.0, || each_version_with(CHILD, "finds what is set", &SET));
}

/// What cannot be read is taken for nothing.
const NONSENSE: [(&str, &str); 7] = [
    ("NCCL_DEBUG", "much"),
    ("NCCL_DEBUG_SUBSYS", "INIT,NONE"),
    ("NCCL_DEBUG_TIMESTAMP_LEVELS", "4"),
    // One byte, with the NUL, as flags have.
    ("NCCL_DEBUG_TIMESTAMP_FORMAT", ""),
    // Seven characters: as many bytes as a number.
    ("NCCL_DEBUG_FILE", "/dev/ff"),
    ("NCCL_SET_THREAD_NAME", "yes"),
    ("NCCL_WARN_ENABLE_DEBUG_INFO", ""),
];

fn finds_defaults(_: usize) {
    if !is_there() {
        return;
    }
    let text = |text: &str| ParameterValue::Text(text.into());
    holds("NCCL_DEBUG", ParameterValue::Other("<unknown>".into()), "<unknown>");
    holds("NCCL_DEBUG_SUBSYS", ParameterValue::U64(1 | 1 << 7 | 1 << 12), "INIT,ENV,BOOTSTRAP");
    // There is one level more since.
    let (bits, names) = if version().unwrap() < Version::new(2, 32, 0) { (4, "WARN") } else { (0x44, "WARN,ATTN") };
    holds("NCCL_DEBUG_TIMESTAMP_LEVELS", ParameterValue::U32(bits), names);
    holds("NCCL_DEBUG_TIMESTAMP_FORMAT", text(""), "");
    holds("NCCL_DEBUG_FILE", text("/dev/ff"), "/dev/ff");
    holds("NCCL_SET_THREAD_NAME", ParameterValue::Bool(false), "FALSE");
    holds("NCCL_WARN_ENABLE_DEBUG_INFO", ParameterValue::Bool(false), "FALSE");
}

#[test]
fn what_cannot_be_read_is_the_default() {
    watched(200.0, || each_version_with(CHILD, "finds defaults", &NONSENSE));
}

fn finds_parts(_: usize) {
    if !is_there() {
        return;
    }
    let expected: u64 = std::env::var(EXPECTED).unwrap().parse().unwrap();
    assert_eq!(Parameter::find("NCCL_DEBUG_SUBSYS").unwrap().get::<u64>().unwrap(), expected);
}

#[test]
fn bits_of_names() {
    watched(200.0, || {
        let mut rng = rng("bits of names");
        for round in 0..3 {
            let mut expected = 0_u64;
            let mut words: Vec<String> = Vec::new();
            for (name, bit) in PARTS {
                if rng.bool() {
                    expected |= 1 << bit;
                    let written = |c: char| if rng.bool() { c.to_ascii_lowercase() } else { c };
                    words.push(name.chars().map(written).collect());
                }
            }
            rng.shuffle(&mut words);
            let separators = [",", ", ", " ,", ",,"];
            let mut text = words.join(separators[rng.usize(..separators.len())]);
            if round == 0 {
                (text, expected) = (format!("^{text}"), !expected);
            }
            each_version_with(CHILD, "finds parts", &[("NCCL_DEBUG_SUBSYS", &text), (EXPECTED, &expected.to_string())]);
        }
    });
}

/// What is of type `is` is not given as a `T`.
#[track_caller]
fn refused<T: ParameterType + std::fmt::Debug>(name: &str, is: &str) {
    let got = Parameter::find(name).unwrap().get::<T>();
    assert_argument(got, "Parameter::get", &format!("{is}, as {name} is"), std::any::type_name::<T>());
}

fn types_and_names(_: usize) {
    if !is_there() {
        return;
    }
    let (parts, levels) = ("NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_TIMESTAMP_LEVELS");
    refused::<i8>(parts, "u64");
    refused::<i64>(parts, "u64");
    refused::<u32>(parts, "u64");
    refused::<bool>(parts, "u64");
    let parameter = Parameter::find(levels).unwrap();
    let value: u32 = parameter.get().unwrap();
    assert_eq!(parameter.get::<u64>().unwrap(), u64::from(value));
    assert_eq!(parameter.get::<i64>().unwrap(), i64::from(value));
    refused::<i32>(levels, "u32");
    refused::<u16>(levels, "u32");
    let got = parameter.get::<String>();
    assert_argument(got, "Parameter::get", "u32, as NCCL_DEBUG_TIMESTAMP_LEVELS is", "String");
    refused::<u8>("NCCL_SET_THREAD_NAME", "bool");
    refused::<i16>("NCCL_SET_THREAD_NAME", "bool");
    refused::<u8>("NCCL_DEBUG_FILE", "String");
    refused::<bool>("NCCL_DEBUG_TIMESTAMP_FORMAT", "String");
    refused::<u32>("NCCL_DEBUG", "String");
    let texts: Result<Vec<String>> =
        ["NCCL_DEBUG", "NCCL_DEBUG_FILE"].iter().map(|name| Parameter::find(name)?.get()).collect();
    assert_eq!(texts.unwrap(), ["INFO", "/dev/null"]);
    // It has one of that name, but tells of none.
    for name in ["NCCL_ALGO", "nccl_debug", "", "NCCL_DEBUG ", "NCCL_DEBUG\0", "\u{fffd}"] {
        assert_argument(Parameter::find(name), "Parameter::find", "tells: NCCL_DEBUG, ", &format!("{name:?}"));
    }
}

#[test]
fn types_that_do_not_fit_and_names_that_there_are_not() {
    // A flag, and a text of one byte.
    let environment = [
        ("NCCL_SET_THREAD_NAME", "1"),
        ("NCCL_DEBUG_TIMESTAMP_FORMAT", ""),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_DEBUG_FILE", "/dev/null"),
    ];
    watched(200.0, move || each_version_with(CHILD, "types and names", &environment));
}

fn all(_: usize) {
    if !is_there() {
        return;
    }
    let found = Parameter::all().unwrap();
    let names: Vec<_> = found.iter().map(Parameter::name).collect();
    assert!(names.is_sorted() && names.iter().all(|name| name.starts_with("NCCL_")), "{names:?}");
    let known = ["NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_SET_THREAD_NAME"];
    assert!(known.iter().all(|name| names.contains(name)), "{names:?}");
    let of_all = std::env::var("NCCL_PARAM_DUMP_ALL").is_ok_and(|value| value == "T");
    assert_eq!(names.contains(&"NCCL_PARAM_DUMP_ALL"), of_all, "{names:?}");
    assert_eq!(names.contains(&"NCCL_DEBUG_LEVELS"), version().unwrap() >= Version::new(2, 32, 0), "{names:?}");
    for parameter in &found {
        assert_eq!(&Parameter::find(parameter.name()).unwrap(), parameter);
        parameter.value().unwrap();
    }
}

#[test]
fn all_that_are_told_of() {
    watched(200.0, || {
        each_version_with(CHILD, "all", &[("NCCL_PARAM_DUMP_ALL", "F")]);
        each_version_with(CHILD, "all", &[("NCCL_PARAM_DUMP_ALL", "T")]);
    });
}

/// Nothing but this crate keeps those apart that ask.
fn threads(_: usize) {
    if !is_there() {
        return;
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let parts = Parameter::find("NCCL_DEBUG_SUBSYS").unwrap();
                    assert_eq!((parts.get::<u64>().unwrap(), parts.text().unwrap()), (0x30, "NET,GRAPH".into()));
                    assert!(Parameter::all().unwrap().contains(&parts));
                    Parameter::find("NCCL_NO_SUCH_THING").unwrap_err();
                }
            });
        }
    });
}

#[test]
fn several_threads_ask() {
    watched(200.0, || each_version_with(CHILD, "threads", &[("NCCL_DEBUG_SUBSYS", "GRAPH,NET")]));
}

fn host_function(_: usize) {
    if !is_there() {
        return;
    }
    let known = Parameter::find("NCCL_DEBUG").unwrap();
    let stream = Stream::new(Device::new(0).unwrap()).unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    let ask = move || {
        let found = [Parameter::all().map(drop), Parameter::find("NCCL_DEBUG").map(drop), known.text().map(drop)];
        sender.send(found).unwrap();
    };
    stream.launch_host(ask).unwrap();
    stream.synchronize().unwrap();
    for result in told.recv().unwrap() {
        assert_names(&result.expect_err("it asks"), &["Parameter::", "host function"]);
    }
}

#[test]
fn not_within_host_functions() {
    watched(200.0, || each_version(CHILD, "host function"));
}
