//! A type of the bindings, and how C writes it.

use std::collections::BTreeMap;

use super::cursor::Cursor;

/// As much of the types of Rust as bindings have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Named(String),
    Pointer { constant: bool, to: Box<Type> },
    Array { of: Box<Type>, length: String },
    Callback(Box<Signature>),
}

/// Of a function or of a pointer to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub arguments: Vec<Type>,
    pub result: Option<Type>,
}

/// Names that C has only behind `struct`, `union` or `enum`, with that word.
pub type Tags = BTreeMap<String, String>;

/// Reads a type.
pub fn read(from: &mut Cursor<'_>) -> Result<Type, String> {
    if from.take("*") {
        let constant = from.take("const");
        if !constant {
            from.expect("mut")?;
        }
        return Ok(Type::Pointer { constant, to: Box::new(read(from)?) });
    }
    if from.take("[") {
        let of = Box::new(read(from)?);
        from.expect(";")?;
        let length = from.next()?.trim_end_matches("usize").to_string();
        from.expect("]")?;
        return Ok(Type::Array { of, length });
    }
    from.take("::");
    let mut name = from.word()?;
    while from.take("::") {
        name = from.word()?;
    }
    if name != "Option" {
        return Ok(Type::Named(name));
    }
    for text in ["<", "unsafe", "extern", "\"C\"", "fn"] {
        from.expect(text)?;
    }
    let signature = signature(from)?;
    from.take(",");
    from.expect(">")?;
    Ok(Type::Callback(Box::new(signature)))
}

/// Reads `(name: type, …) -> type`; names may be missing.
pub fn signature(from: &mut Cursor<'_>) -> Result<Signature, String> {
    from.expect("(")?;
    let mut arguments = Vec::new();
    while !from.take(")") {
        if from.peek(1) == Some(":") {
            from.next()?;
            from.next()?;
        }
        arguments.push(read(from)?);
        from.take(",");
    }
    let result = if from.take("->") { Some(read(from)?) } else { None };
    Ok(Signature { arguments, result })
}

/// `struct X`, `enum X` or `X`.
pub fn spelled(name: &str, tags: &Tags) -> String {
    tags.get(name).map_or(name.to_string(), |keyword| format!("{keyword} {name}"))
}

/// `of` as C writes it; with a name, as C declares that.
pub fn declare(of: &Type, name: &str, tags: &Tags) -> String {
    within(of, false, name, tags)
}

/// A function of that type; `(*)` for `name` makes it a pointer to one.
pub fn function(of: &Signature, name: &str, tags: &Tags) -> String {
    let mut arguments: Vec<String> = of.arguments.iter().map(|of| declare(of, "", tags)).collect();
    if arguments.is_empty() {
        arguments.push("void".into());
    }
    let declarator = format!("{name}({})", arguments.join(", "));
    match &of.result {
        None => format!("void {declarator}"),
        Some(of) => declare(of, &declarator, tags),
    }
}

/// From the inside to the outside, as C wants it.
fn within(of: &Type, constant: bool, declarator: &str, tags: &Tags) -> String {
    match of {
        Type::Pointer { constant: inner, to } => {
            let star = if constant { "*const " } else { "*" };
            within(to, *inner, &format!("{star}{declarator}"), tags)
        }
        Type::Array { of, length } => {
            let inner = if declarator.starts_with('*') { format!("({declarator})") } else { declarator.into() };
            within(of, constant, &format!("{inner}[{length}]"), tags)
        }
        Type::Callback(signature) => function(signature, &format!("(*{declarator})"), tags),
        Type::Named(name) => {
            let name = primitive(name).map_or_else(|| spelled(name, tags), String::from);
            format!("{name}{} {declarator}", if constant { " const" } else { "" }).trim_end().to_string()
        }
    }
}

fn primitive(name: &str) -> Option<&'static str> {
    Some(match name {
        "c_void" => "void",
        "c_char" => "char",
        "c_schar" => "signed char",
        "c_uchar" => "unsigned char",
        "c_short" => "short",
        "c_ushort" => "unsigned short",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_long" => "long",
        "c_ulong" => "unsigned long",
        "c_longlong" => "long long",
        "c_ulonglong" => "unsigned long long",
        "i8" => "int8_t",
        "u8" => "uint8_t",
        "i16" => "int16_t",
        "u16" => "uint16_t",
        "i32" => "int32_t",
        "u32" => "uint32_t",
        "i64" => "int64_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "isize" => "ptrdiff_t",
        "f32" => "float",
        "f64" => "double",
        "bool" => "bool",
        _ => return None,
    })
}
