//! What options of `gpucomm perf` may say, and how it is read.

use gpucomm::{ElementKind, ReduceOp};

use crate::size;

/// Several values of one option. (Clap would take a `Vec` for an option given several times.)
#[derive(Debug, Clone)]
pub struct List<T>(pub Vec<T>);

/// What `-R` chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    Plain,
    /// Each rank has told NCCL of its own.
    Registered,
    /// Symmetric windows.
    Windows,
}

impl Buffers {
    const ALL: [Self; 3] = [Self::Plain, Self::Registered, Self::Windows];

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Registered => "registered",
            Self::Windows => "windows",
        }
    }
}

/// How the operations of one table are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub buffers: Buffers,
    /// How often a graph of them is launched; 0 where there is none.
    pub launches: usize,
}

/// A reduction, by nccl-tests' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedOp {
    Op(ReduceOp),
    /// Each rank's values times a factor of that rank, summed.
    MulSum,
}

impl RedOp {
    pub const ALL: [Self; 6] = [
        Self::Op(ReduceOp::Sum),
        Self::Op(ReduceOp::Prod),
        Self::Op(ReduceOp::Max),
        Self::Op(ReduceOp::Min),
        Self::Op(ReduceOp::Avg),
        Self::MulSum,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Op(op) => op.name(),
            Self::MulSum => "mulsum",
        }
    }
}

/// Which ranks are root, in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    Rank(usize),
    All,
}

/// How the times of the ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Average {
    First,
    Mean,
    Min,
    Max,
}

impl Average {
    pub fn of(self, times: &[f64]) -> f64 {
        match self {
            Self::First => times[0],
            Self::Mean => times.iter().sum::<f64>() / times.len() as f64,
            Self::Min => times.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => times.iter().copied().fold(0.0, f64::max),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::First => "rank 0",
            Self::Mean => "average",
            Self::Min => "minimum",
            Self::Max => "maximum",
        }
    }
}

/// The name that nccl-tests uses for a type.
pub fn kind_name(kind: ElementKind) -> &'static str {
    KINDS.iter().find(|(_, k)| *k == kind).map_or(kind.name(), |(name, _)| name)
}

const KINDS: &[(&str, ElementKind)] = &[
    ("int8", ElementKind::I8),
    ("uint8", ElementKind::U8),
    ("int32", ElementKind::I32),
    ("uint32", ElementKind::U32),
    ("int64", ElementKind::I64),
    ("uint64", ElementKind::U64),
    ("half", ElementKind::F16),
    ("float", ElementKind::F32),
    ("double", ElementKind::F64),
    ("bfloat16", ElementKind::Bf16),
    #[cfg(nccl_ge_2_24)]
    ("f8e4m3", ElementKind::F8E4M3),
    #[cfg(nccl_ge_2_24)]
    ("f8e5m2", ElementKind::F8E5M2),
];

pub fn kinds(text: &str) -> Result<List<ElementKind>, String> {
    if text == "all" {
        return Ok(List(KINDS.iter().map(|(_, kind)| *kind).collect()));
    }
    match KINDS.iter().find(|(name, kind)| *name == text || kind.name() == text) {
        Some((_, kind)) => Ok(List(vec![*kind])),
        None => {
            Err(format!("expected one of {}, all", KINDS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")))
        }
    }
}

pub fn redops(text: &str) -> Result<List<RedOp>, String> {
    if text == "all" {
        return Ok(List(RedOp::ALL.to_vec()));
    }
    match RedOp::ALL.into_iter().find(|op| op.name() == text) {
        Some(op) => Ok(List(vec![op])),
        None => Err(format!("expected one of {}, all", RedOp::ALL.map(RedOp::name).join(", "))),
    }
}

pub fn root(text: &str) -> Result<Root, String> {
    if text == "all" || text == "-1" {
        return Ok(Root::All);
    }
    natural(text).map(Root::Rank).map_err(|_| "expected a rank, or all".to_owned())
}

pub fn natural(text: &str) -> Result<usize, String> {
    text.parse::<u32>().map(|n| n as usize).map_err(|_| format!("expected a number from 0 to {}", u32::MAX))
}

pub fn positive(text: &str) -> Result<usize, String> {
    natural(text).ok().filter(|&n| n > 0).ok_or_else(|| format!("expected a number from 1 to {}", u32::MAX))
}

pub fn factor(text: &str) -> Result<usize, String> {
    match natural(text) {
        Ok(n) if n >= 2 => Ok(n),
        _ => Err("expected a whole factor of at least 2; for equal steps use -i".to_owned()),
    }
}

pub fn increment(text: &str) -> Result<usize, String> {
    match size::parse(text)? {
        0 => Err("an increment of 0 never gets anywhere".to_owned()),
        bytes => Ok(bytes),
    }
}

pub fn buffers(text: &str) -> Result<List<Buffers>, String> {
    const EXPECTED: &str =
        "expected 0 (plain buffers), 1 (registered) or 2 (symmetric windows), or several with commas between";
    let one = |text: &str| text.parse().ok().and_then(|at: usize| Buffers::ALL.get(at).copied());
    each_once(text, one, EXPECTED)
}

pub fn launches(text: &str) -> Result<List<usize>, String> {
    const EXPECTED: &str = "expected 0 (no graphs) or a number of launches, or several with commas between";
    each_once(text, |text| natural(text).ok(), EXPECTED)
}

/// Values with commas between, none of them twice.
fn each_once<T: PartialEq>(text: &str, read: impl Fn(&str) -> Option<T>, expected: &str) -> Result<List<T>, String> {
    let mut values = Vec::new();
    for word in text.split(',') {
        let value = read(word).ok_or_else(|| expected.to_owned())?;
        if values.contains(&value) {
            return Err(format!("{word} is there twice"));
        }
        values.push(value);
    }
    Ok(List(values))
}

pub fn average(text: &str) -> Result<Average, String> {
    match text {
        "0" => Ok(Average::First),
        "1" => Ok(Average::Mean),
        "2" => Ok(Average::Min),
        "3" => Ok(Average::Max),
        _ => Err("expected 0 (rank 0), 1 (average), 2 (minimum) or 3 (maximum)".to_owned()),
    }
}
