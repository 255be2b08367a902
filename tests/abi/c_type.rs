//! A type of the bindings in the words of C.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Expr, GenericArgument, Lit, PathArguments, PointerMutability, Type};

use crate::items::{Signature, result};

/// Names that C has only behind `struct`, `union` or `enum`.
#[derive(Debug, Default)]
pub struct Tags(BTreeMap<String, &'static str>);

impl Tags {
    /// Collects those of `types` from headers that the preprocessor has been over. Elsewhere, a name may be that of a
    /// struct and that of another type.
    pub fn read(text: &str, types: &BTreeSet<String>) -> Self {
        let mut tags = BTreeMap::new();
        let word = |c: char| c == '_' || c.is_ascii_alphanumeric();
        let mut words = text.split(|c: char| !word(c)).filter(|word| !word.is_empty()).peekable();
        while let Some(first) = words.next() {
            let Some(keyword) = ["struct", "union", "enum"].into_iter().find(|keyword| *keyword == first) else {
                continue;
            };
            if let Some(name) = words.peek().filter(|name| types.contains(**name)) {
                tags.entry((*name).to_string()).or_insert(keyword);
            }
        }
        Self(tags)
    }

    /// `struct X`, `enum X` or `X`.
    pub fn spelled(&self, name: &str) -> String {
        self.0.get(name).map_or(name.to_string(), |keyword| format!("{keyword} {name}"))
    }
}

/// `of` as C writes it.
pub fn spell(of: &Type, tags: &Tags) -> Result<String, String> {
    declare(of, false, "", tags)
}

/// A pointer to a function.
pub fn pointer(signature: &Signature, tags: &Tags) -> Result<String, String> {
    function(signature, "(*)", tags)
}

/// The declaration of `declarator` as a `of`, from the inside to the outside as C wants it.
fn declare(of: &Type, constant: bool, declarator: &str, tags: &Tags) -> Result<String, String> {
    let qualified = |name: &str| {
        let text = format!("{name}{} {declarator}", if constant { " const" } else { "" });
        text.trim_end().to_string()
    };
    match of {
        Type::Ptr(inner) => {
            let star = if constant { "*const " } else { "*" };
            declare(
                &inner.elem,
                matches!(inner.mutability, PointerMutability::Const(_)),
                &format!("{star}{declarator}"),
                tags,
            )
        }
        Type::Array(array) => {
            let Expr::Lit(literal) = &array.len else { return Err("an array without a length".into()) };
            let Lit::Int(length) = &literal.lit else { return Err("an array without a length".into()) };
            let inner = if declarator.is_empty() { String::new() } else { format!("({declarator})") };
            declare(&array.elem, constant, &format!("{inner}[{}]", length.base10_digits()), tags)
        }
        Type::Path(path) => {
            let last = path.path.segments.last().ok_or("a path without a name")?;
            match (&last.arguments, last.ident.to_string()) {
                (PathArguments::None, name) => Ok(qualified(primitive(&name).unwrap_or(&tags.spelled(&name)))),
                (PathArguments::AngleBracketed(of), name) if name == "Option" => match of.args.first() {
                    Some(GenericArgument::Type(Type::FnPtr(callback))) => {
                        let signature = Signature {
                            arguments: callback.inputs.iter().map(|argument| argument.ty.clone()).collect(),
                            result: result(&callback.output),
                            variadic: callback.variadic.is_some(),
                        };
                        function(&signature, &format!("(*{declarator})"), tags)
                    }
                    _ => Err("an Option that is no function".into()),
                },
                (_, name) => Err(format!("the type {name} is not understood")),
            }
        }
        other => Err(format!("a type that is not understood: {other:?}")),
    }
}

fn function(signature: &Signature, declarator: &str, tags: &Tags) -> Result<String, String> {
    let mut arguments = Vec::new();
    for argument in &signature.arguments {
        arguments.push(spell(argument, tags)?);
    }
    if signature.variadic {
        arguments.push("...".into());
    } else if arguments.is_empty() {
        arguments.push("void".into());
    }
    let declarator = format!("{declarator}({})", arguments.join(", "));
    match &signature.result {
        None => Ok(format!("void {declarator}")),
        Some(of) => declare(of, false, &declarator, tags),
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
