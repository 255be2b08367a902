//! What well-known variables may say.

use super::super::super::settings::number;

/// How NCCL reads a value.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A number of this range.
    Number(i64, i64),
    /// One of these numbers.
    Numbers(&'static [i64]),
    /// One of these words, however they are written.
    Word(&'static [&'static str]),
    /// One of these words, as they are written here.
    Exactly(&'static [&'static str]),
    /// How far apart two devices may be: a word, or a number as of old.
    Level,
    /// Which of these functions may use which of these ways: `ring,tree;allreduce:^tree`.
    Ways(&'static [&'static str]),
    /// A file that must be there.
    File,
}

use Kind::{Exactly, File, Level, Number, Numbers, Ways, Word};

const FLAG: Kind = Number(0, 1);
const MOST: i64 = i64::MAX;
const LEVELS: [&str; 12] = ["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"];
const FUNCTIONS: [&str; 8] =
    ["broadcast", "reduce", "allgather", "reducescatter", "allreduce", "allgatherv", "sendrecv", "alltoall"];
const ALGORITHMS: [&str; 7] = ["tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"];

const TABLE: [(&str, Kind); 54] = [
    ("NCCL_ALGO", Ways(&ALGORITHMS)),
    ("NCCL_PROTO", Ways(&["ll", "ll128", "simple"])),
    ("NCCL_BUFFSIZE", Number(1, MOST)),
    ("NCCL_CGA_CLUSTER_SIZE", Number(0, 8)),
    ("NCCL_CHECK_POINTERS", FLAG),
    ("NCCL_COLLNET_ENABLE", FLAG),
    ("NCCL_COMM_BLOCKING", FLAG),
    ("NCCL_CROSS_NIC", Number(0, 2)),
    ("NCCL_CTA_POLICY", Number(0, 3)),
    ("NCCL_CUMEM_ENABLE", Number(-2, 1)),
    ("NCCL_CUMEM_HOST_ENABLE", Number(-1, 1)),
    ("NCCL_DEBUG", Word(&["VERSION", "WARN", "INFO", "ABORT", "TRACE"])),
    ("NCCL_DMABUF_ENABLE", FLAG),
    ("NCCL_GRAPH_FILE", File),
    ("NCCL_GRAPH_MIXING_SUPPORT", FLAG),
    ("NCCL_GRAPH_REGISTER", FLAG),
    ("NCCL_IB_ADDR_FAMILY", Exactly(&["AF_INET", "AF_INET6"])),
    ("NCCL_IB_DISABLE", FLAG),
    ("NCCL_IB_GID_INDEX", Number(-1, 255)),
    ("NCCL_IB_MERGE_NICS", FLAG),
    ("NCCL_IB_PCI_RELAXED_ORDERING", Number(0, 2)),
    ("NCCL_IB_PKEY", Number(0, 65535)),
    ("NCCL_IB_QPS_PER_CONNECTION", Number(1, 128)),
    ("NCCL_IB_RETRY_CNT", Number(0, 7)),
    ("NCCL_IB_ROCE_VERSION_NUM", Number(1, 2)),
    ("NCCL_IB_SL", Number(-1, 15)),
    ("NCCL_IB_TC", Number(-1, 255)),
    ("NCCL_IB_TIMEOUT", Number(1, 31)),
    ("NCCL_IGNORE_CPU_AFFINITY", FLAG),
    ("NCCL_LAUNCH_MODE", Exactly(&["PARALLEL", "GROUP"])),
    ("NCCL_LOCAL_REGISTER", FLAG),
    ("NCCL_MAX_CTAS", Number(1, 64)),
    ("NCCL_MIN_CTAS", Number(1, 64)),
    ("NCCL_MAX_NCHANNELS", Number(1, 64)),
    ("NCCL_MIN_NCHANNELS", Number(1, 64)),
    ("NCCL_MNNVL_ENABLE", Number(0, 2)),
    ("NCCL_MULTI_RANK_GPU_ENABLE", FLAG),
    ("NCCL_NET_GDR_LEVEL", Level),
    ("NCCL_NET_GDR_READ", FLAG),
    ("NCCL_NSOCKS_PERTHREAD", Number(1, 64)),
    ("NCCL_NTHREADS", Numbers(&[64, 128, 256, 512])),
    ("NCCL_NVB_DISABLE", FLAG),
    ("NCCL_NVLS_ENABLE", Number(0, 2)),
    ("NCCL_P2P_DIRECT_DISABLE", FLAG),
    ("NCCL_P2P_DISABLE", FLAG),
    ("NCCL_P2P_LEVEL", Level),
    ("NCCL_PXN_DISABLE", FLAG),
    ("NCCL_RAS_ENABLE", FLAG),
    ("NCCL_RUNTIME_CONNECT", FLAG),
    ("NCCL_SHM_DISABLE", FLAG),
    ("NCCL_SOCKET_FAMILY", Exactly(&["AF_INET", "AF_INET6"])),
    ("NCCL_SOCKET_NTHREADS", Number(1, 16)),
    ("NCCL_TOPO_FILE", File),
    ("NCCL_WIN_ENABLE", FLAG),
];

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// NCCL does not start with it.
    pub is_fatal: bool,
    /// Why, as what follows the variable.
    pub why: String,
    pub expected: String,
}

/// What is wrong with the value of a variable, if it is one of those that are known here.
pub fn wrong(name: &str, value: &str, exists: impl Fn(&str) -> bool) -> Option<Wrong> {
    let (_, kind) = TABLE.iter().find(|(known, _)| *known == name)?;
    let odd = |why: String, expected: String| Some(Wrong { is_fatal: false, why, expected });
    match *kind {
        Number(first, last) => {
            let expected = match last {
                MOST => format!("a number from {first} on"),
                _ => format!("a number from {first} to {last}"),
            };
            of_number(value, expected, |number| (first..=last).contains(&number))
        }
        Numbers(all) => {
            let words: Vec<_> = all.iter().map(i64::to_string).collect();
            of_number(value, format!("one of {}", words.join(", ")), |number| all.contains(&number))
        }
        Word(words) if words.iter().any(|word| word.eq_ignore_ascii_case(value)) => None,
        Exactly(words) if words.contains(&value) => None,
        Word(words) | Exactly(words) => odd("is none of its words".to_owned(), format!("one of {}", words.join(", "))),
        Level if LEVELS.contains(&value) => None,
        Level => {
            let expected = format!("one of {}, or a number from 0 to 5", LEVELS.join(", "));
            of_number(value, expected, |number| (0..=5).contains(&number))
        }
        Ways(ways) => {
            let why = ways_of(value, ways)?;
            let expected = format!("some of {}, such as `{},{}`", ways.join(", "), ways[0], ways[1]);
            Some(Wrong { is_fatal: true, why, expected })
        }
        File if exists(value) => None,
        File => odd("names no file".to_owned(), "a file that is there".to_owned()),
    }
}

/// NCCL reads the digits in front, and a 0 where there are none: `true` is no.
fn of_number(value: &str, expected: String, is_right: impl Fn(i64) -> bool) -> Option<Wrong> {
    let (number, rest) = number(value);
    let why = match rest.trim() {
        "" if is_right(number) => return None,
        "" => "is out of range".to_owned(),
        _ => format!("is read as {number}"),
    };
    Some(Wrong { is_fatal: false, why, expected })
}

fn ways_of(value: &str, ways: &[&str]) -> Option<String> {
    let is_one = |all: &[&str], word: &str| all.iter().any(|known| known.eq_ignore_ascii_case(word));
    for (at, part) in value.split(';').filter(|part| !part.is_empty()).enumerate() {
        let (function, list) = match part.split_once(':') {
            Some((function, list)) => (Some(function), list),
            None if at > 0 => return Some(format!("has no function before `{part}`")),
            None => (None, part),
        };
        if let Some(function) = function.filter(|function| !is_one(&FUNCTIONS, function)) {
            return Some(format!("names `{function}`, which is no function"));
        }
        let list = list.strip_prefix('^').unwrap_or(list);
        if let Some(word) = list.split(',').find(|word| !word.is_empty() && !is_one(ways, word)) {
            return Some(format!("names `{word}`, which NCCL does not know"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(name: &str, value: &str) -> Option<String> {
        wrong(name, value, |path| path == "/there").map(|wrong| wrong.why)
    }

    #[test]
    fn right_and_wrong() {
        for (name, value) in [
            ("NCCL_P2P_DISABLE", "1"),
            ("NCCL_P2P_DISABLE", "0x1"),
            ("NCCL_P2P_LEVEL", "NVL"),
            ("NCCL_P2P_LEVEL", "3"),
            ("NCCL_DEBUG", "warn"),
            ("NCCL_NTHREADS", "256"),
            ("NCCL_BUFFSIZE", "8388608"),
            ("NCCL_ALGO", "Ring,Tree;allreduce:^NVLSTree"),
            ("NCCL_PROTO", "^LL128"),
            ("NCCL_TOPO_FILE", "/there"),
            ("NCCL_IB_SL", "-1"),
            ("NCCL_UNKNOWN", "anything"),
        ] {
            assert_eq!(why(name, value), None, "{name}={value}");
        }
        for (name, value, says) in [
            ("NCCL_P2P_DISABLE", "true", "is read as 0"),
            ("NCCL_P2P_DISABLE", "2", "is out of range"),
            ("NCCL_BUFFSIZE", "8M", "is read as 8"),
            ("NCCL_P2P_LEVEL", "nvl", "is read as 0"),
            ("NCCL_DEBUG", "DEBUG", "is none of its words"),
            ("NCCL_SOCKET_FAMILY", "af_inet", "is none of its words"),
            ("NCCL_NTHREADS", "100", "is out of range"),
            ("NCCL_ALGO", "rings", "`rings`, which NCCL does not know"),
            ("NCCL_ALGO", "ring;tree", "no function before `tree`"),
            ("NCCL_ALGO", "allsum:ring", "`allsum`, which is no function"),
            ("NCCL_TOPO_FILE", "/nowhere", "names no file"),
        ] {
            let text = why(name, value).unwrap_or_default();
            assert!(text.contains(says), "{name}={value}: {text}");
        }
        assert!(wrong("NCCL_ALGO", "x", |_| true).is_some_and(|wrong| wrong.is_fatal));
    }

    #[test]
    fn each_variable_is_there_once() {
        for (at, (name, _)) in TABLE.iter().enumerate() {
            assert!(!TABLE[..at].iter().any(|(other, _)| other == name), "{name}");
        }
    }
}
