//! What a family of functions is: patterns of names, the types that they come in, and how a program of this crate reaches them.

/// Functions that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    pub title: &'static str,
    pub rows: &'static [Row],
    /// Whether equivalents are compared with what they stand for, by a test that calls both (`tests/pes/typed`).
    pub compared: Compared,
    /// Whether a run on GPUs went through it.
    pub seen: Seen,
}

/// Where equivalents were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    No,
    /// On the emulator alone, whose functions pass on to those that this crate calls: the test works, and waits for GPUs.
    Emulator,
    Yes,
}

impl Compared {
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Emulator => "emulator",
            Self::Yes => "yes",
        }
    }
}

/// How a run on GPUs went through functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    No,
    /// With one PE alone: several on one device have no such functions.
    Alone,
    Yes,
}

impl Seen {
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Alone => "1 PE",
            Self::Yes => "yes",
        }
    }
}

/// Functions of one pattern that are reached in one way.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Names: `TYPE` stands for each of the types, or sizes; `OP` for each of the operations.
    pub pattern: &'static str,
    pub types: &'static [&'static str],
    pub ops: &'static [&'static str],
    pub reach: Reach,
}

/// How a function is reached.
#[derive(Debug, Clone, Copy)]
pub enum Reach {
    /// These methods call it.
    Directly(&'static [&'static str]),
    /// Another function does the same, which is reached directly: a pattern, with `SAME` for the type of the same size and kind,
    /// `BITS` for the unsigned one of the same size, and `SIZE` for the number of its bits; and what is done beside that.
    As(&'static str, &'static str),
    /// These methods come to the same by other means: which.
    Otherwise(&'static [&'static str], &'static str),
    /// Not at all: why.
    Not(&'static str),
}

pub const fn row(pattern: &'static str, types: &'static [&'static str], reach: Reach) -> Row {
    Row { pattern, types, ops: &[], reach }
}

pub const fn one(pattern: &'static str, reach: Reach) -> Row {
    Row { pattern, types: &[], ops: &[], reach }
}

impl Row {
    /// Its functions, with the one that each is the same as.
    pub fn functions(&self) -> Vec<(String, Option<String>)> {
        let or_one = |list: &'static [&'static str]| if list.is_empty() { &[""][..] } else { list };
        let mut all = Vec::new();
        for of_type in or_one(self.types) {
            for op in or_one(self.ops) {
                let name = |pattern: &str| pattern.replace("TYPE", of_type).replace("OP", op);
                let as_pattern = match self.reach {
                    Reach::As(other, _) => Some(name(&by_size(other, of_type))),
                    _ => None,
                };
                all.push((name(self.pattern), as_pattern));
            }
        }
        all
    }

    pub fn methods(&self) -> &'static [&'static str] {
        match self.reach {
            Reach::Directly(methods) | Reach::Otherwise(methods, _) => methods,
            Reach::As(..) | Reach::Not(_) => &[],
        }
    }
}

/// A pattern with what depends on the size of a type filled in, as types are on 64-bit Linux.
fn by_size(pattern: &str, of_type: &str) -> String {
    let (bits, kind) = match of_type {
        "char" | "schar" | "int8" => (8, "int"),
        "uchar" | "uint8" | "8" => (8, "uint"),
        "short" | "int16" => (16, "int"),
        "ushort" | "uint16" | "16" => (16, "uint"),
        "half" => (16, "half"),
        "bfloat16" => (16, "bfloat16"),
        "int" | "int32" => (32, "int"),
        "uint" | "uint32" | "32" => (32, "uint"),
        "float" => (32, "float"),
        "double" => (64, "double"),
        "long" | "longlong" | "ptrdiff" | "int64" => (64, "int"),
        "ulong" | "ulonglong" | "size" | "uint64" | "64" => (64, "uint"),
        _ => return pattern.to_owned(),
    };
    let same = if kind.ends_with("int") { format!("{kind}{bits}") } else { kind.to_owned() };
    pattern.replace("SAME", &same).replace("BITS", &format!("uint{bits}")).replace("SIZE", &bits.to_string())
}

#[test]
fn patterns_are_filled_in() {
    let row = row("nvshmem_TYPE_iput", &["float", "size"], Reach::As("nvshmem_iputSIZE", ""));
    let filled = [("nvshmem_float_iput", "nvshmem_iput32"), ("nvshmem_size_iput", "nvshmem_iput64")];
    assert_eq!(row.functions(), filled.map(|(name, other)| (name.to_owned(), Some(other.to_owned()))));
    assert_eq!(by_size("nvshmem_SAME_p BITS", "half"), "nvshmem_half_p uint16");
}
