//! What has to hold of the headers for the committed bindings to be right, item by item.

use std::collections::{BTreeMap, BTreeSet};

use super::c_type::{self, Tags, Type};
use super::declared::{Declared, Place};
use super::items::{Constant, Field, Item, Kind};

/// Structs that grow at their end with the version of the library, which are told their own size.
const GROWING: &[&str] = &["ncclConfig_t", "ncclCollConfig_t", "ncclEncryptionConfig_t"];

/// Structs of NVSHMEM that state their version and keep their size. A new version takes the bytes for its fields from the last
/// field, which is named here.
const VERSIONED: &[(&str, &str)] =
    &[("nvshmemx_init_args_t", "content"), ("nvshmemx_init_attr_t", ""), ("nvshmem_team_config_t", "padding")];

/// Whether `field` is the last field of the versioned struct `of`, an array of all bytes that are not used yet.
pub fn reserve(of: &str, field: &str) -> bool {
    VERSIONED.contains(&(of, field))
}

/// Whether the name of a struct behind the alias `name` changes with the version.
fn versioned(name: &str) -> bool {
    GROWING.contains(&name) || VERSIONED.iter().any(|(of, _)| *of == name)
}

/// Constants that say which version it is, or count what it has.
const COUNTS: &[&str] = &[
    "CUDART_VERSION",
    "NCCL_MAJOR",
    "NCCL_MINOR",
    "NCCL_PATCH",
    "NCCL_VERSION_CODE",
    "ncclNumResults",
    "ncclNumTypes",
    "ncclNumOps",
    "NVSHMEM_VENDOR_MAJOR_VERSION",
    "NVSHMEM_VENDOR_MINOR_VERSION",
    "NVSHMEM_VENDOR_PATCH_VERSION",
    "NVSHMEM_MAJOR_VERSION",
    "NVSHMEM_MINOR_VERSION",
];

/// Whether a constant has the value of the headers, whatever that is.
pub fn counts(name: &str) -> bool {
    COUNTS.contains(&name)
}

/// One thing that the compiler is asked.
#[derive(Debug)]
pub struct Fact {
    /// `size of ncclConfig_t`.
    pub what: String,
    /// An integer of C and of C++.
    pub expression: String,
    pub wanted: Wanted,
    pub place: Place,
}

/// The answer.
#[derive(Debug)]
pub enum Wanted {
    Number(u64),
    /// 1, as the two are one type; both for people.
    Same {
        ours: String,
        theirs: String,
    },
    /// It is taken over.
    Any,
}

/// All facts, and what of the bindings the headers do not have.
#[derive(Debug, Default)]
pub struct Expected {
    pub facts: Vec<Fact>,
    /// What the expressions need.
    pub declarations: Vec<String>,
    /// Names of items, and of fields as `struct::field`.
    pub absent: BTreeSet<String>,
    /// The names in C of structs, where they differ.
    pub renamed: BTreeMap<String, String>,
}

/// Goes through the bindings.
pub fn expected(items: &[Item<'_>], declared: &Declared) -> Expected {
    let mut names = BTreeSet::new();
    let mut all = Expected::default();
    for item in items {
        match &item.kind {
            Kind::Opaque { name } | Kind::Record { name, .. } | Kind::Enum { name, .. } => {
                names.insert(name.as_str());
            }
            // The name behind `struct` changes with the version.
            Kind::Alias { name, of: Type::Named(of) } if versioned(name) => {
                all.renamed.insert(of.clone(), name.clone());
            }
            _ => {}
        }
    }
    let tags = declared.tags(&names);
    let mut walk = Walk { all, declared, tags: &tags, opaque: opaque(items) };
    for item in items {
        walk.item(&item.kind);
    }
    walk.all
}

fn opaque<'a>(items: &'a [Item<'_>]) -> BTreeSet<&'a str> {
    items
        .iter()
        .filter_map(|item| if let Kind::Opaque { name } = &item.kind { Some(name.as_str()) } else { None })
        .collect()
}

struct Walk<'a> {
    all: Expected,
    declared: &'a Declared,
    tags: &'a Tags,
    opaque: BTreeSet<&'a str>,
}

impl Walk<'_> {
    fn fact(&mut self, what: String, place: &str, expression: String, wanted: Wanted) {
        self.all.facts.push(Fact { what, expression, wanted, place: place.into() });
    }

    /// Each as an expression has it, and for people.
    fn same(&mut self, what: String, place: &str, theirs: (String, String), ours: (String, String)) {
        let expression = format!("gpucomm_same({}, {})", theirs.0, ours.0);
        self.fact(what, place, expression, Wanted::Same { ours: ours.1, theirs: theirs.1 });
    }

    /// Where `name` is declared; where it is not, that is noted.
    fn place(&mut self, name: &str) -> Option<Place> {
        let place = self.declared.place(name).cloned();
        if place.is_none() {
            self.all.absent.insert(name.into());
        }
        place
    }

    fn item(&mut self, kind: &Kind<'_>) {
        match kind {
            Kind::Opaque { .. } => {}
            Kind::Alias { name, of } => self.alias(name, of),
            Kind::Record { name, fields } => self.record(name, fields),
            Kind::Enum { name, integer } => {
                let Some(place) = self.place(name) else { return };
                let ours = c_type::declare(integer, "", self.tags);
                let theirs = (c_type::spelled(name, self.tags), "another integer".into());
                self.same(format!("the integer of {name}"), &place, theirs, (ours.clone(), ours));
            }
            Kind::Constant(constant) => self.constant(constant),
            Kind::Enumerators { of, all } => {
                if !self.all.absent.contains(of) {
                    all.iter().for_each(|constant| self.constant(constant));
                }
            }
            Kind::Layout { of, size, align, offsets } => self.layout(of, *size, *align, offsets),
            Kind::Functions(all) => {
                for function in all {
                    let Some((text, place)) = self.declared.function(&function.name).cloned() else {
                        self.all.absent.insert(function.name.clone());
                        continue;
                    };
                    let ours = c_type::function(&function.of, "(*)", self.tags);
                    let shown = c_type::function(&function.of, &function.name, self.tags);
                    let theirs = (format!("__typeof__(&{})", function.name), text);
                    self.same(function.name.clone(), &place, theirs, (ours, shown));
                }
            }
        }
    }

    fn alias(&mut self, name: &str, of: &Type) {
        let Some(place) = self.place(name) else { return };
        if versioned(name) {
            return;
        }
        if let Type::Pointer { to, .. } = of
            && let Type::Named(to) = &**to
            && self.opaque.contains(to.as_str())
            && self.declared.place(to).is_none()
        {
            // The struct that nobody looks into has another name there; a pointer it must be.
            self.all.declarations.push(format!("extern __typeof__(*({name})0) *gpucomm_{name}"));
            return self.fact(name.into(), &place, format!("sizeof({name}) == sizeof(void *)"), Wanted::Number(1));
        }
        let ours = c_type::declare(of, "", self.tags);
        self.same(name.into(), &place, (name.into(), line(&place)), (ours.clone(), ours));
    }

    fn record(&mut self, name: &str, fields: &[Field<'_>]) {
        // A struct without a name is known by the field that it is the type of, and there where that is.
        if self.is_of_absent(name) {
            self.all.absent.insert(name.into());
            return;
        }
        if !nameless(name) && self.place(&self.in_c(name)).is_none() {
            self.all.absent.insert(name.into());
            return;
        }
        let record = self.declared.record_of(&self.in_c(name)).cloned();
        let c = self.spelled(name);
        let place = self.declared.place(&self.in_c(name)).cloned().unwrap_or_default();
        for field in fields {
            let theirs = record.as_ref().map(|record| record.field(in_c(&field.name)).map(String::from));
            if let Some(None) = theirs {
                self.all.absent.insert(format!("{name}::{}", field.name));
                continue;
            }
            let there = format!("__typeof__((({c} *)0)->{})", in_c(&field.name));
            if let Type::Named(of) = &field.of
                && nameless(of)
            {
                self.all.declarations.push(format!("typedef {there} {of}"));
                continue;
            }
            let theirs = theirs.flatten().unwrap_or_else(|| "another type".into());
            let rest = match &field.of {
                Type::Array { of, .. } if reserve(&self.in_c(name), &field.name) => {
                    let length = format!("sizeof({c}) - offsetof({c}, {})", field.name);
                    Some(Type::Array { of: of.clone(), length })
                }
                _ => None,
            };
            let of = rest.as_ref().unwrap_or(&field.of);
            let ours = (c_type::declare(of, "", self.tags), c_type::declare(of, in_c(&field.name), self.tags));
            self.same(format!("{}.{}", self.in_c(name), in_c(&field.name)), &place, (there, theirs), ours);
        }
        if self.all.renamed.contains_key(name)
            && let Some(last) = fields.iter().rfind(|field| {
                let absent = self.all.absent.contains(&format!("{name}::{}", field.name));
                !absent && !reserve(&self.in_c(name), &field.name)
            })
        {
            let last = in_c(&last.name);
            let end = format!("offsetof({c}, {last}) + sizeof((({c} *)0)->{last})");
            self.fact(format!("end of {}", self.in_c(name)), &place, end, Wanted::Any);
        }
    }

    /// Whether it has no name, and what it is a part of is not there.
    fn is_of_absent(&self, name: &str) -> bool {
        name.split_once(NAMELESS).is_some_and(|(whole, _)| self.declared.place(&self.in_c(whole)).is_none())
    }

    fn layout(&mut self, of: &str, size: u64, align: u64, offsets: &[(String, u64)]) {
        if self.all.absent.contains(of) || self.is_of_absent(of) {
            return;
        }
        let (c, shown) = (self.spelled(of), self.in_c(of));
        let place = self.declared.place(&shown).cloned().unwrap_or_default();
        let wanted = if GROWING.contains(&shown.as_str()) { Wanted::Any } else { Wanted::Number(size) };
        self.fact(format!("size of {shown}"), &place, format!("sizeof({c})"), wanted);
        // Without some of its fields, a struct may have a smaller alignment.
        let lacks = |(field, _): &(String, u64)| self.all.absent.contains(&format!("{of}::{field}"));
        let shorter = self.all.renamed.contains_key(of) && offsets.iter().any(lacks);
        let wanted = if shorter { Wanted::Any } else { Wanted::Number(align) };
        self.fact(format!("alignment of {shown}"), &place, format!("alignof({c})"), wanted);
        for (field, bytes) in offsets {
            if !self.all.absent.contains(&format!("{of}::{field}")) && !reserve(&shown, field) {
                let (what, field) = (format!("offset of {shown}.{}", in_c(field)), in_c(field));
                self.fact(what, &place, format!("offsetof({c}, {field})"), Wanted::Number(*bytes));
            }
        }
    }

    fn constant(&mut self, constant: &Constant<'_>) {
        let Some(place) = self.place(&constant.name) else { return };
        let wanted = if counts(&constant.name) { Wanted::Any } else { Wanted::Number(constant.value.cast_unsigned()) };
        self.fact(constant.name.clone(), &place, constant.name.clone(), wanted);
    }

    /// The name in C.
    fn in_c(&self, name: &str) -> String {
        self.all.renamed.get(name).cloned().unwrap_or_else(|| name.into())
    }

    fn spelled(&self, name: &str) -> String {
        c_type::spelled(&self.in_c(name), self.tags)
    }
}

/// What follows the name of what it is a part of.
const NAMELESS: &str = "__bindgen_ty_";

/// How bindgen calls a struct that has no name in C.
fn nameless(name: &str) -> bool {
    name.contains(NAMELESS)
}

/// The name of a field that is a keyword of Rust.
pub fn in_c(field: &str) -> &str {
    match field.strip_suffix('_') {
        Some(word) if ["type", "ref", "fn", "mod", "in", "move", "match", "use"].contains(&word) => word,
        _ => field,
    }
}

/// The line of a header that declares something.
fn line(place: &str) -> String {
    let read = |(file, line): (&str, &str)| {
        let text = std::fs::read_to_string(file).ok()?;
        Some(text.lines().nth(line.parse::<usize>().ok()?.checked_sub(1)?)?.trim().to_string())
    };
    place.rsplit_once(':').and_then(read).unwrap_or_else(|| "another type".into())
}
