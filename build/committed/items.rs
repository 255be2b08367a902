//! The committed bindings, item by item. What is not understood is an error: nothing is bound without being held against
//! the headers.

use super::c_type::{self, Signature, Type};
use super::cursor::Cursor;
use super::tokens::Token;

/// One item, and its text with its attributes.
#[derive(Debug)]
pub struct Item<'a> {
    pub text: &'a str,
    pub kind: Kind<'a>,
}

/// What it is.
#[derive(Debug)]
pub enum Kind<'a> {
    Alias {
        name: String,
        of: Type,
    },
    /// A type of which only pointers exist.
    Opaque {
        name: String,
    },
    Record {
        name: String,
        fields: Vec<Field<'a>>,
    },
    /// A C enum is the integer that it is.
    Enum {
        name: String,
        integer: Type,
    },
    Constant(Constant<'a>),
    Enumerators {
        of: String,
        all: Vec<Constant<'a>>,
    },
    Layout {
        of: String,
        size: u64,
        align: u64,
        offsets: Vec<(String, u64)>,
    },
    Functions(Vec<Function<'a>>),
}

/// Of a struct.
#[derive(Debug)]
pub struct Field<'a> {
    pub name: String,
    pub of: Type,
    pub text: &'a str,
}

/// A macro or an enumerator.
#[derive(Debug)]
pub struct Constant<'a> {
    pub name: String,
    pub value: i64,
    pub text: &'a str,
}

/// A function of the library or of the shim.
#[derive(Debug)]
pub struct Function<'a> {
    pub name: String,
    pub of: Signature,
    pub text: &'a str,
}

/// Reads them all; `tokens` are those of `text`.
pub fn read<'a>(text: &'a str, tokens: &'a [Token<'a>]) -> Result<Vec<Item<'a>>, String> {
    let mut from = Cursor::new(text, tokens);
    let mut items = Vec::new();
    while from.peek(0).is_some() {
        let start = from.position();
        let kind = one(text, &mut from)?;
        items.push(Item { text: from.since(start), kind });
    }
    Ok(items)
}

fn attributes(from: &mut Cursor<'_>) {
    while from.take("#") {
        from.block();
    }
}

fn one<'a>(text: &'a str, from: &mut Cursor<'a>) -> Result<Kind<'a>, String> {
    attributes(from);
    if from.take("const") {
        return layout(from);
    }
    if from.take("impl") {
        let of = from.word()?;
        let within = from.block();
        let mut inner = Cursor::new(text, within);
        let mut all = Vec::new();
        while inner.peek(0).is_some() {
            let start = inner.position();
            inner.expect("pub")?;
            inner.expect("const")?;
            all.push(constant(start, &mut inner)?);
        }
        return Ok(Kind::Enumerators { of, all });
    }
    if from.take("unsafe") {
        from.expect("extern")?;
        from.expect("\"C\"")?;
        let within = from.block();
        return functions(Cursor::new(text, within)).map(Kind::Functions);
    }
    let start = from.position();
    from.expect("pub")?;
    match from.next()? {
        "type" => {
            let name = from.word()?;
            from.expect("=")?;
            let of = c_type::read(from)?;
            from.expect(";")?;
            Ok(Kind::Alias { name, of })
        }
        "use" => {
            from.expect("self")?;
            from.expect("::")?;
            let of = Type::Named(from.word()?);
            from.expect("as")?;
            let name = from.word()?;
            from.expect(";")?;
            Ok(Kind::Alias { name, of })
        }
        "const" => constant(start, from).map(Kind::Constant),
        "struct" | "union" => record(text, from),
        other => Err(from.wrong(&format!("an item that is understood, not {other}"))),
    }
}

/// `NAME: TYPE = 1;` or `NAME: TYPE = TYPE(1,);`, with what stands before it from `start`.
fn constant<'a>(start: usize, from: &mut Cursor<'a>) -> Result<Constant<'a>, String> {
    let name = from.word()?;
    from.expect(":")?;
    c_type::read(from)?;
    from.expect("=")?;
    let wrapped = from.peek(1) == Some("(");
    if wrapped {
        from.word()?;
        from.expect("(")?;
    }
    let sign = if from.take("-") { -1 } else { 1 };
    let value: i64 = from.next()?.parse().map_err(|_| from.wrong(&format!("a number for {name}")))?;
    if wrapped {
        from.take(",");
        from.expect(")")?;
    }
    from.expect(";")?;
    Ok(Constant { name, value: sign * value, text: from.since(start) })
}

fn record<'a>(text: &'a str, from: &mut Cursor<'a>) -> Result<Kind<'a>, String> {
    let name = from.word()?;
    if from.take("(") {
        from.expect("pub")?;
        let integer = c_type::read(from)?;
        from.expect(")")?;
        from.expect(";")?;
        return Ok(Kind::Enum { name, integer });
    }
    let mut inner = Cursor::new(text, from.block());
    if inner.peek(0) == Some("_unused") {
        return Ok(Kind::Opaque { name });
    }
    let mut fields = Vec::new();
    while inner.peek(0).is_some() {
        let start = inner.position();
        inner.expect("pub")?;
        let name = inner.word()?;
        inner.expect(":")?;
        let of = c_type::read(&mut inner)?;
        fields.push(Field { name, of, text: inner.since(start) });
        inner.take(",");
    }
    Ok(Kind::Record { name, fields })
}

/// `_: () = { ["Size of X"][size_of::<X>() - 8usize]; … };`: the text says what it is, the number before the bracket closes how much.
fn layout<'a>(from: &mut Cursor<'a>) -> Result<Kind<'a>, String> {
    for text in ["_", ":", "(", ")", "="] {
        from.expect(text)?;
    }
    let within = from.block();
    from.expect(";")?;
    let (mut of, mut size, mut align, mut offsets) = (String::new(), None, None, Vec::new());
    for part in within.split(|token| token.text == ";").filter(|part| !part.is_empty()) {
        let wrong = || from.wrong("assertions of a layout that are understood");
        let what = part.iter().find(|token| token.text.starts_with('"')).ok_or_else(wrong)?.text.trim_matches('"');
        let number = part.iter().rev().find_map(|token| token.text.strip_suffix("usize")).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        if let Some(name) = what.strip_prefix("Size of ") {
            (of, size) = (name.to_string(), Some(number));
        } else if what.starts_with("Alignment of ") {
            align = Some(number);
        } else {
            let field = what.strip_prefix("Offset of field: ").and_then(|what| what.split_once("::"));
            offsets.push((field.ok_or_else(wrong)?.1.to_string(), number));
        }
    }
    match (size, align) {
        (Some(size), Some(align)) => Ok(Kind::Layout { of, size, align, offsets }),
        _ => Err(from.wrong("the size and the alignment of a struct")),
    }
}

fn functions<'a>(mut from: Cursor<'a>) -> Result<Vec<Function<'a>>, String> {
    let mut all = Vec::new();
    while from.peek(0).is_some() {
        let start = from.position();
        attributes(&mut from);
        from.expect("pub")?;
        from.expect("fn")?;
        let name = from.word()?;
        let of = c_type::signature(&mut from)?;
        from.expect(";")?;
        all.push(Function { name, of, text: from.since(start) });
    }
    Ok(all)
}
