//! Every public function is called by an example that runs.
//!
//! The examples are those of the documentation: of the function, of its type, of a function beside it, or of a module that it is in.
//! A function whose name none of them calls is an error, unless it stands among the exceptions, with the reason; so is an
//! exception that none is needed for. Examples that are only compiled (`no_run`) do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, TraitItem, Type, UseTree, Visibility};

/// What has no example that runs: a function, as `Type::name` or `name`, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("SharedStream::lend", CUDARC),
    ("SharedStream::new", CUDARC),
    ("SharedStream::theirs", CUDARC),
    ("Context::collective_launch", KERNELS),
    ("Context::collective_launch_config", KERNELS),
    ("Context::collective_launch_grid", KERNELS),
    ("Context::finalize_cumodule", KERNELS),
    ("Context::finalize_culibrary", KERNELS),
    ("Context::init_cumodule", KERNELS),
    ("Context::init_culibrary", KERNELS),
];

const KERNELS: &str = "takes kernels in which NVSHMEM's device functions are linked, which nvcc makes";

const CUDARC: &str = "cudarc takes a driver: tests/cudarc gives it one, and runs examples/cudarc.rs";

/// Where the public interface is not: what stands in for libraries, the C interface, the program.
const APART: &[&str] = &["emulator", "sys", "bin"];

/// A public function.
struct Function {
    /// The type or trait that it belongs to; empty where there is none.
    of: String,
    name: String,
    file: PathBuf,
}

/// What was read of the sources.
#[derive(Default)]
struct Read {
    functions: Vec<Function>,
    /// Texts by type.
    of_types: BTreeMap<String, String>,
    /// Texts of functions without a type, and of modules, by file.
    of_files: BTreeMap<PathBuf, String>,
    /// What modules that are public show.
    names: BTreeSet<String>,
}

fn parse(file: &Path) -> syn::File {
    let text = std::fs::read_to_string(file).expect("a source that can be read");
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The text of documentation; `None` where it is hidden.
fn text(attributes: &[Attribute]) -> Option<String> {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        match &attribute.meta {
            Meta::NameValue(pair) => {
                if let Expr::Lit(literal) = &pair.value
                    && let Lit::Str(line) = &literal.lit
                {
                    text.push_str(&line.value());
                    text.push('\n');
                }
            }
            Meta::List(list) if list.tokens.to_string() != "hidden" => {}
            _ => return None,
        }
    }
    Some(text)
}

/// The words that examples in `text` call, or name behind `::`.
fn called(text: &str) -> BTreeSet<String> {
    let (mut called, mut runs, mut inside) = (BTreeSet::new(), false, false);
    for line in text.lines() {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            runs = inside && matches!(kind.trim(), "" | "rust" | "should_panic");
        } else if runs {
            words(line, &mut called);
        }
    }
    called
}

/// The words of a line of code that are called, or stand behind `::`.
fn words(line: &str, called: &mut BTreeSet<String>) {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let code = line.split(" // ").next().unwrap_or(line);
    if code.trim_start().starts_with("//") {
        return;
    }
    let mut at = 0;
    while let Some(start) = code[at..].find(is_word).map(|found| at + found) {
        let end = code[start..].find(|c| !is_word(c)).map_or(code.len(), |found| start + found);
        if code[end..].starts_with('(') || code[end..].starts_with("::<") || code[..start].ends_with("::") {
            called.insert(code[start..end].to_owned());
        }
        at = end;
    }
}

/// The file of a module that `file` declares.
fn module(file: &Path, name: &str) -> PathBuf {
    let folder = file.parent().expect("sources lie in a folder");
    let is_top = file.file_name().is_some_and(|name| name == "mod.rs" || name == "lib.rs");
    let folder = if is_top { folder.to_owned() } else { file.with_extension("") };
    let plain = folder.join(name).with_extension("rs");
    if plain.exists() { plain } else { folder.join(name).join("mod.rs") }
}

fn leaves(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => leaves(&path.tree, names),
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Rename(name) => drop(names.insert(name.rename.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, names)),
        UseTree::Glob(_) => {}
    }
}

/// What the module in `file` shows to everybody.
fn shown(file: &Path, names: &mut BTreeSet<String>) {
    for item in parse(file).items {
        match item {
            Item::Use(item) if is_public(&item.vis) => leaves(&item.tree, names),
            // A hidden module is not part of the interface.
            Item::Mod(item) if is_public(&item.vis) && text(&item.attrs).is_none() => {}
            Item::Mod(item) if is_public(&item.vis) && !APART.iter().any(|apart| item.ident == apart) => {
                shown(&module(file, &item.ident.to_string()), names);
            }
            Item::Fn(item) if is_public(&item.vis) => drop(names.insert(item.sig.ident.to_string())),
            Item::Struct(item) if is_public(&item.vis) => drop(names.insert(item.ident.to_string())),
            Item::Enum(item) if is_public(&item.vis) => drop(names.insert(item.ident.to_string())),
            Item::Trait(item) if is_public(&item.vis) => drop(names.insert(item.ident.to_string())),
            _ => {}
        }
    }
}

impl Read {
    fn of_type(&mut self, name: &str, attributes: &[Attribute]) {
        self.of_types.entry(name.to_owned()).or_default().push_str(&text(attributes).unwrap_or_default());
    }

    fn of_file(&mut self, file: &Path, attributes: &[Attribute]) {
        self.of_files.entry(file.to_owned()).or_default().push_str(&text(attributes).unwrap_or_default());
    }

    /// A function of `of`, which is public.
    fn function(&mut self, file: &Path, of: &str, name: &syn::Ident, attributes: &[Attribute]) {
        if text(attributes).is_some() {
            self.functions.push(Function { of: of.to_owned(), name: name.to_string(), file: file.to_owned() });
        }
    }

    fn item(&mut self, file: &Path, item: &Item) {
        match item {
            Item::Struct(item) => self.of_type(&item.ident.to_string(), &item.attrs),
            Item::Enum(item) => self.of_type(&item.ident.to_string(), &item.attrs),
            Item::Fn(item) if is_public(&item.vis) && self.names.contains(&item.sig.ident.to_string()) => {
                self.of_file(file, &item.attrs);
                self.function(file, "", &item.sig.ident, &item.attrs);
            }
            Item::Trait(item) if is_public(&item.vis) && self.names.contains(&item.ident.to_string()) => {
                let of = item.ident.to_string();
                self.of_type(&of, &item.attrs);
                for item in &item.items {
                    if let TraitItem::Fn(item) = item {
                        self.of_type(&of, &item.attrs);
                        self.function(file, &of, &item.sig.ident, &item.attrs);
                    }
                }
            }
            Item::Impl(item) if item.trait_.is_none() => {
                let Type::Path(path) = &*item.self_ty else { return };
                let of = path.path.segments.last().expect("a path has a part").ident.to_string();
                if !self.names.contains(&of) {
                    return;
                }
                self.of_type(&of, &item.attrs);
                for item in &item.items {
                    if let ImplItem::Fn(item) = item
                        && is_public(&item.vis)
                    {
                        self.of_type(&of, &item.attrs);
                        self.function(file, &of, &item.sig.ident, &item.attrs);
                    }
                }
            }
            _ => {}
        }
    }

    fn folder(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            let is_apart = APART.iter().any(|apart| path.file_name().is_some_and(|name| name == *apart));
            if path.is_dir() && !is_apart {
                self.folder(&path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let source = parse(&path);
                self.of_file(&path, &source.attrs);
                source.items.iter().for_each(|item| self.item(&path, item));
            }
        }
    }

    /// Whether an example that runs calls `function`.
    fn is_called(&self, function: &Function, sources: &Path) -> bool {
        let mut texts: Vec<_> = self.of_files.get(&function.file).into_iter().collect();
        if !function.of.is_empty() {
            texts.extend(self.of_types.get(&function.of));
        }
        let above = function.file.ancestors().skip(1).take_while(|folder| *folder != sources);
        texts.extend(above.filter_map(|folder| self.of_files.get(&folder.join("mod.rs"))));
        texts.into_iter().any(|text| called(text).contains(&function.name))
    }
}

#[test]
fn every_public_function_has_an_example() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    if !sources.exists() {
        println!("skipped: {} is not on this machine", sources.display());
        return;
    }
    let mut read = Read::default();
    shown(&sources.join("lib.rs"), &mut read.names);
    read.folder(&sources);
    assert!(read.functions.len() > 400, "only {} functions were found", read.functions.len());

    let mut excepted: BTreeSet<_> = EXCEPTIONS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut without = Vec::new();
    for function in &read.functions {
        let Function { of, name, file } = function;
        let whole = if of.is_empty() { name.clone() } else { format!("{of}::{name}") };
        let is_excepted = excepted.remove(&whole);
        match (read.is_called(function, &sources), is_excepted) {
            (false, false) => without.push(format!("{whole} of {} is called by no example", file.display())),
            (true, true) => without.push(format!("{whole} needs no exception")),
            _ => {}
        }
    }
    without.extend(excepted.into_iter().map(|name| format!("there is no {name}, which is an exception")));
    without.sort();
    assert!(without.is_empty(), "{} of {}:\n{}", without.len(), read.functions.len(), without.join("\n"));
}

#[test]
fn calls_are_told_from_other_words() {
    let text = " ```\n # let a = x.one(2);\n x.two::<u8>(); // .three()\n // .four()\n map(X::five) + six\n ```\n seven()\n ```no_run\n eight()\n ```";
    let expected = ["five", "map", "one", "two"].map(str::to_owned);
    assert_eq!(called(text), BTreeSet::from(expected));
}
