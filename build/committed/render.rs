//! The committed bindings as they are for the installed headers: without what these lack, with the numbers that they state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::expected;
use super::items::{Constant, Field, Item, Kind};

/// What the headers say.
#[derive(Debug)]
pub struct Headers<'a> {
    /// What they lack: names of items, and of fields as `struct::field`.
    pub absent: &'a BTreeSet<String>,
    /// Answers of the compiler by their names.
    pub values: &'a BTreeMap<&'a str, u64>,
    /// Structs that change with the version, and their names in C.
    pub renamed: &'a BTreeMap<String, String>,
}

/// Writes them.
pub fn bindings(items: &[Item<'_>], headers: &Headers<'_>) -> String {
    let mut text = String::new();
    let newer = items.iter().any(|item| headers.are_newer(item));
    for item in items {
        match &item.kind {
            Kind::Alias { name, .. } | Kind::Enum { name, .. } if headers.has(name) => keep(&mut text, item.text),
            Kind::Constant(constant) if headers.has(&constant.name) => keep(&mut text, &headers.constant(constant)),
            Kind::Record { name, fields } if headers.has(name) => match headers.renamed.get(name) {
                Some(c) => keep(&mut text, &headers.grown(name, c, fields, item.text, newer)),
                None => keep(&mut text, item.text),
            },
            Kind::Layout { of, offsets, .. } if headers.has(of) => match headers.renamed.get(of) {
                Some(c) => keep(&mut text, &headers.layout(of, c, offsets)),
                None => keep(&mut text, item.text),
            },
            Kind::Enumerators { of, all } if headers.has(of) => {
                let all: Vec<String> = headers.those(all).map(|constant| headers.constant(constant)).collect();
                keep(&mut text, &format!("impl {of} {{\n    {}\n}}", all.join("\n    ")));
            }
            Kind::Functions(all) => {
                let kept = all.iter().filter(|function| headers.has(&function.name));
                let all: Vec<&str> = kept.map(|function| function.text).collect();
                keep(&mut text, &format!("unsafe extern \"C\" {{\n    {}\n}}", all.join("\n    ")));
            }
            Kind::Opaque { .. } => keep(&mut text, item.text),
            _ => {}
        }
    }
    text
}

fn keep(text: &mut String, item: &str) {
    writeln!(text, "{item}").expect("a String takes all");
}

impl Headers<'_> {
    fn has(&self, name: &str) -> bool {
        !self.absent.contains(name)
    }

    fn those<'a>(&self, all: &'a [Constant<'a>]) -> impl Iterator<Item = &'a Constant<'a>> {
        all.iter().filter(|constant| self.has(&constant.name))
    }

    fn value(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or_default()
    }

    fn constant(&self, constant: &Constant<'_>) -> String {
        match expected::counts(&constant.name) {
            true => replaced_number(constant.text, self.value(&constant.name)),
            false => constant.text.into(),
        }
    }

    /// Whether they belong to a newer NCCL than these bindings, of which this is the item that says so.
    fn are_newer(&self, item: &Item<'_>) -> bool {
        const VERSION: &str = "NCCL_VERSION_CODE";
        match &item.kind {
            Kind::Constant(constant) if constant.name == VERSION => {
                let number =
                    constant.text.rsplit_once('=').map_or("", |(_, number)| number.trim().trim_end_matches(';'));
                number.parse().is_ok_and(|own: u64| self.value(VERSION) > own)
            }
            _ => false,
        }
    }

    /// The fields that the headers have, and room for those that they have beyond. Those of a newer version may lie where these
    /// bindings have padding, which does not come along when a struct is moved.
    fn grown(&self, name: &str, c: &str, fields: &[Field<'_>], text: &str, newer: bool) -> String {
        let head = text.split_once('{').map_or(text, |(head, _)| head);
        let (size, align) = (self.value(&format!("size of {c}")), self.value(&format!("alignment of {c}")));
        let room = size.saturating_sub(self.value(&format!("end of {c}")));
        let kept = fields.iter().filter(|field| self.has(&format!("{name}::{}", field.name)));
        let mut all: Vec<String> = kept
            .map(|field| match field.text.rsplit_once(';') {
                Some((head, _)) if expected::reserve(c, &field.name) => format!("{head}; {room}usize]"),
                _ => field.text.to_string(),
            })
            .collect();
        let has_more = room >= align || room > 0 && newer;
        if has_more && !fields.iter().any(|field| expected::reserve(c, &field.name)) {
            all.push(format!("pub {ROOM}: ::std::mem::MaybeUninit<[u8; {room}usize]>"));
        }
        format!("{head}{{\n    {},\n}}", all.join(",\n    "))
    }

    fn layout(&self, of: &str, c: &str, offsets: &[(String, u64)]) -> String {
        let (size, align) = (self.value(&format!("size of {c}")), self.value(&format!("alignment of {c}")));
        let mut text = format!(
            "const _: () = {{\n    [\"Size of {of}\"][::std::mem::size_of::<{of}>() - {size}usize];\n    \
             [\"Alignment of {of}\"][::std::mem::align_of::<{of}>() - {align}usize];\n"
        );
        for (field, bytes) in offsets.iter().filter(|(field, _)| self.has(&format!("{of}::{field}"))) {
            let what = format!("[\"Offset of field: {of}::{field}\"]");
            let bytes = if expected::reserve(c, field) { self.value(&format!("end of {c}")) } else { *bytes };
            writeln!(text, "    {what}[::std::mem::offset_of!({of}, {field}) - {bytes}usize];")
                .expect("a String takes all");
        }
        text + "};"
    }
}

/// The field for what is newer than these bindings. Bindgen has the same start for what it fills up.
const ROOM: &str = "__bindgen_padding_0";

/// `pub const X: T = T(1);` with another number.
fn replaced_number(text: &str, number: u64) -> String {
    let Some((head, value)) = text.split_once('=') else { return text.into() };
    let tail = value.trim_start_matches(|c: char| !c.is_ascii_digit());
    let wrapper = value.split_once('(').map(|(name, _)| name);
    match wrapper {
        Some(name) => format!("{head}={name}({number});"),
        None => format!("{head}= {number}{}", tail.trim_start_matches(|c: char| c.is_ascii_digit())),
    }
}
