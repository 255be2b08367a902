//! What the bindings say, item by item. A thing that is not understood is an error: nothing is bound without proof.

use std::collections::BTreeMap;

use syn::{Expr, ForeignItem, ImplItem, Item as Rust, Lit, Stmt, Type};

/// One fact.
#[derive(Debug, Clone)]
pub enum Item {
    /// A function and the symbol that it is linked to.
    Function { name: String, symbol: String, signature: Signature },
    /// A variable of the library.
    Variable { name: String, symbol: String, of: Type },
    /// A struct or union; no fields where only pointers to it exist.
    Record { name: String, fields: Vec<(String, Type)>, opaque: bool },
    /// A C enum, and the integer that it is.
    Enum { name: String, integer: Type },
    /// Another name for a type; `None` where it is that of the type of the same item above.
    Alias { name: String, of: Type },
    /// A macro or an enumerator.
    Constant { name: String, value: Value },
    /// The number that the compiler of Rust checks.
    Size { name: String, bytes: u64 },
    /// As above.
    Align { name: String, bytes: u64 },
    /// As above.
    Offset { name: String, field: String, bytes: u64 },
}

/// The types of a function, of its pointer or of a callback.
#[derive(Debug, Clone)]
pub struct Signature {
    pub arguments: Vec<Type>,
    pub result: Option<Type>,
    pub variadic: bool,
}

/// The value of a constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Number(i128),
    Text(Vec<u8>),
}

/// Reads the whole text of bindings.
pub fn read(text: &str) -> Result<Vec<Item>, String> {
    let file = syn::parse_file(text).map_err(|error| format!("the bindings do not parse: {error}"))?;
    let mut items = Vec::new();
    for item in file.items {
        one(item, &mut items)?;
    }
    complete(&items)?;
    Ok(hoist(items))
}

fn one(item: Rust, items: &mut Vec<Item>) -> Result<(), String> {
    match item {
        Rust::ForeignMod(block) => {
            for inner in block.items {
                items.push(foreign(inner)?);
            }
        }
        Rust::Struct(record) => {
            let name = record.ident.to_string();
            let transparent = attribute(&record.attrs, "repr").is_some_and(|text| text == "transparent");
            let mut fields = Vec::new();
            for (at, field) in record.fields.iter().enumerate() {
                let label = field.ident.as_ref().map_or(at.to_string(), ToString::to_string);
                // Room for what is not bound: the size tells whether there is enough.
                if !label.starts_with("__bindgen_padding_") {
                    fields.push((label, field.ty.clone()));
                }
            }
            items.push(match fields.as_slice() {
                [(_, integer)] if transparent => Item::Enum { name, integer: integer.clone() },
                [(only, _)] if only == "_unused" => Item::Record { name, fields: Vec::new(), opaque: true },
                _ => Item::Record { name, fields, opaque: false },
            });
        }
        Rust::Union(record) => {
            let fields = record.fields.named.iter();
            let fields = fields.map(|field| (field.ident.as_ref().expect("named").to_string(), field.ty.clone()));
            items.push(Item::Record { name: record.ident.to_string(), fields: fields.collect(), opaque: false });
        }
        Rust::Type(alias) => items.push(Item::Alias { name: alias.ident.to_string(), of: *alias.ty }),
        Rust::Use(import) => items.push(renamed(&import.tree)?),
        Rust::Const(constant) if constant.ident == "_" => layout(&constant.expr, items)?,
        Rust::Const(constant) => {
            items.push(Item::Constant { name: constant.ident.to_string(), value: value(&constant.expr)? })
        }
        Rust::Impl(block) if block.trait_.is_none() => {
            for inner in block.items {
                match inner {
                    ImplItem::Const(constant) => {
                        items.push(Item::Constant { name: constant.ident.to_string(), value: value(&constant.expr)? });
                    }
                    other => return Err(format!("not understood within an impl: {other:?}")),
                }
            }
        }
        other => return Err(format!("not understood: {other:?}")),
    }
    Ok(())
}

fn foreign(item: ForeignItem) -> Result<Item, String> {
    let symbol = |attributes: &[syn::Attribute], name: &str| {
        let link = attribute(attributes, "link_name");
        // The first character tells LLVM to take the name as it is.
        link.map_or(name.to_string(), |link| link.trim_start_matches('\u{1}').to_string())
    };
    match item {
        ForeignItem::Fn(function) => {
            let name = function.sig.ident.to_string();
            let arguments = function.sig.inputs.iter().map(|input| match input {
                syn::FnArg::Typed(argument) => Ok((*argument.ty).clone()),
                syn::FnArg::Receiver(_) => Err(format!("{name} has a self")),
            });
            let signature = Signature {
                arguments: arguments.collect::<Result<_, _>>()?,
                result: result(&function.sig.output),
                variadic: function.sig.variadic.is_some(),
            };
            Ok(Item::Function { symbol: symbol(&function.attrs, &name), name, signature })
        }
        ForeignItem::Static(variable) => {
            let name = variable.ident.to_string();
            Ok(Item::Variable { symbol: symbol(&variable.attrs, &name), name, of: *variable.ty })
        }
        other => Err(format!("not understood within an extern block: {other:?}")),
    }
}

/// The type after `->`.
pub fn result(output: &syn::ReturnType) -> Option<Type> {
    match output {
        syn::ReturnType::Default => None,
        syn::ReturnType::Type(_, of) => Some((**of).clone()),
    }
}

/// What stands in `#[name(...)]` as a word, or in `#[name = "..."]`.
fn attribute(attributes: &[syn::Attribute], name: &str) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident(name)).find_map(|attribute| match &attribute.meta {
        syn::Meta::List(list) => Some(list.tokens.to_string()),
        syn::Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        syn::Meta::Path(_) => None,
    })
}

/// `use self::cudaError as cudaError_t`.
fn renamed(tree: &syn::UseTree) -> Result<Item, String> {
    match tree {
        syn::UseTree::Path(path) => renamed(&path.tree),
        syn::UseTree::Rename(pair) => {
            let of = Type::Path(syn::TypePath { attrs: Vec::new(), qself: None, path: pair.ident.clone().into() });
            Ok(Item::Alias { name: pair.rename.to_string(), of })
        }
        other => Err(format!("not understood: use {other:?}")),
    }
}

/// A number, `Type(number)`, or bytes with a null at the end.
fn value(expression: &Expr) -> Result<Value, String> {
    let negative = |of: Value| match of {
        Value::Number(number) => Ok(Value::Number(-number)),
        Value::Text(_) => Err("a negative text".to_string()),
    };
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().map(Value::Number).map_err(|error| error.to_string()),
            Lit::Bool(truth) => Ok(Value::Number(i128::from(truth.value))),
            Lit::ByteStr(bytes) => Ok(Value::Text(bytes.value())),
            Lit::CStr(text) => Ok(Value::Text(text.value().into_bytes_with_nul())),
            other => Err(format!("a constant that is not understood: {other:?}")),
        },
        Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Neg(_)) => negative(value(&unary.expr)?),
        Expr::Call(call) if call.args.len() == 1 => value(&call.args[0]),
        other => Err(format!("a constant that is not understood: {other:?}")),
    }
}

/// The block of assertions that bindgen writes: `["Size of X"][size_of::<X>() - 8usize];` and the like.
fn layout(block: &Expr, items: &mut Vec<Item>) -> Result<(), String> {
    let wrong = || format!("a layout assertion that is not understood: {block:?}");
    let Expr::Block(block) = block else { return Err(wrong()) };
    for statement in &block.block.stmts {
        let Stmt::Expr(Expr::Index(index), _) = statement else { return Err(wrong()) };
        let Expr::Binary(difference) = &*index.index else { return Err(wrong()) };
        let Value::Number(bytes) = value(&difference.right)? else { return Err(wrong()) };
        let bytes = u64::try_from(bytes).map_err(|error| error.to_string())?;
        items.push(match &*difference.left {
            Expr::Call(call) => {
                let Expr::Path(path) = &*call.func else { return Err(wrong()) };
                let last = path.path.segments.last().ok_or_else(wrong)?;
                let syn::PathArguments::AngleBracketed(of) = &last.arguments else { return Err(wrong()) };
                let Some(syn::GenericArgument::Type(Type::Path(of))) = of.args.first() else { return Err(wrong()) };
                let name = of.path.segments.last().ok_or_else(wrong)?.ident.to_string();
                match last.ident.to_string().as_str() {
                    "size_of" => Item::Size { name, bytes },
                    "align_of" => Item::Align { name, bytes },
                    _ => return Err(wrong()),
                }
            }
            Expr::Macro(invocation) => {
                let text = invocation.mac.tokens.to_string().replace(' ', "");
                let (name, field) = text.split_once(',').ok_or_else(wrong)?;
                Item::Offset { name: name.to_string(), field: field.to_string(), bytes }
            }
            _ => return Err(wrong()),
        });
    }
    Ok(())
}

/// How bindgen calls what has no name in C.
const NAMELESS: &str = "__bindgen_anon_";

/// In C, members of a struct or union that has no name are those of what it is a part of. Bindgen does not say where in that it lies; the
/// sizes, and the offsets of all around it, do.
fn hoist(items: Vec<Item>) -> Vec<Item> {
    let ident = |of: &Type| match of {
        Type::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    };
    let mut parts = BTreeMap::new();
    for item in &items {
        let Item::Record { fields, .. } = item else { continue };
        parts.extend(
            fields
                .iter()
                .filter(|(label, _)| label.starts_with(NAMELESS))
                .filter_map(|(_, of)| ident(of))
                .map(|of| (of, Vec::new())),
        );
    }
    for item in &items {
        if let Item::Record { name, fields, .. } = item
            && let Some(members) = parts.get_mut(name)
        {
            members.clone_from(fields);
        }
    }
    let members = |(label, of): (String, Type)| match ident(&of).and_then(|of| parts.get(&of)) {
        Some(members) if label.starts_with(NAMELESS) => members.clone(),
        _ => vec![(label, of)],
    };
    let whole = |item: Item| match item {
        Item::Record { name, .. } | Item::Size { name, .. } | Item::Align { name, .. } | Item::Offset { name, .. }
            if parts.contains_key(&name) =>
        {
            None
        }
        Item::Record { name, fields, opaque } => {
            Some(Item::Record { name, fields: fields.into_iter().flat_map(members).collect(), opaque })
        }
        other => Some(other),
    };
    items.into_iter().filter_map(whole).collect()
}

/// Every struct must have its size, its alignment and all its offsets.
fn complete(items: &[Item]) -> Result<(), String> {
    for item in items {
        let Item::Record { name, fields, opaque: false } = item else { continue };
        let about = |wanted: &dyn Fn(&Item) -> bool, what: &str| match items.iter().any(wanted) {
            true => Ok(()),
            false => Err(format!("{name}: the bindings do not assert its {what}")),
        };
        about(&|item| matches!(item, Item::Size { name: of, .. } if of == name), "size")?;
        about(&|item| matches!(item, Item::Align { name: of, .. } if of == name), "alignment")?;
        for (label, _) in fields.iter().filter(|(label, _)| !label.starts_with(NAMELESS)) {
            let offset =
                |item: &Item| matches!(item, Item::Offset { name: of, field, .. } if of == name && field == label);
            about(&offset, &format!("offset of {label}"))?;
        }
    }
    Ok(())
}
