//! What the installed headers declare, from what the preprocessor makes of them (`cc -E -dD`).

use std::collections::{BTreeMap, BTreeSet};

use super::c_type::Tags;
use super::tokens::{Token, closing, tokens};

/// `/usr/include/nccl.h:351`.
pub type Place = String;

/// All that is declared.
#[derive(Debug, Default)]
pub struct Declared {
    /// Each name, where it stands first.
    words: BTreeMap<String, Place>,
    macros: BTreeMap<String, Place>,
    /// The declaration of a function, and where.
    functions: BTreeMap<String, (String, Place)>,
    /// Structs by the names that they have without `struct`.
    records: BTreeMap<String, Record>,
    /// Names that stand behind `struct`, `union` or `enum`.
    tags: Tags,
    /// The headers.
    pub files: BTreeSet<String>,
}

/// A struct.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its name behind `struct`. For `X_t` in `typedef X_v1 X_t;`, it is `X_v1` if that has none.
    pub name: Option<String>,
    /// What lies between its braces.
    members: Vec<String>,
}

impl Record {
    /// The declaration of a field, of the fields within fields as well.
    pub fn field(&self, name: &str) -> Option<&str> {
        let is = |member: &&String| tokens(member).iter().any(|token| token.text == name);
        self.members.iter().find(is).map(String::as_str)
    }
}

impl Declared {
    /// Reads what the preprocessor has written.
    pub fn read(text: &str) -> Self {
        let mut declared = Self::default();
        let (mut file, mut line, mut code, mut places) = (String::new(), 0usize, String::new(), Vec::new());
        for full in text.lines() {
            if let Some(mark) = full.strip_prefix("# ").or_else(|| full.strip_prefix("#line ")) {
                // `# 12 "/usr/include/nccl.h" 1`
                let mut parts = mark.splitn(2, ' ');
                line = parts.next().and_then(|number| number.parse().ok()).unwrap_or_default();
                file = parts.next().and_then(|rest| rest.split('"').nth(1)).unwrap_or_default().to_string();
                if file.starts_with('/') && !declared.files.contains(&file) {
                    declared.files.insert(file.clone());
                }
                continue;
            }
            if let Some(rest) = full.strip_prefix("#define ") {
                let name: String = rest.chars().take_while(|c| *c == '_' || c.is_ascii_alphanumeric()).collect();
                declared.macros.insert(name, format!("{file}:{line}"));
            } else if !full.starts_with('#') && !full.is_empty() {
                places.push((code.len(), file.clone(), line));
                code += full;
                code.push('\n');
            }
            line += 1;
        }
        declared.take(&tokens(&code), &|at| {
            let (_, file, line) = &places[places.partition_point(|(start, ..)| *start <= at).saturating_sub(1)];
            format!("{file}:{line}")
        });
        declared
    }

    fn take(&mut self, tokens: &[Token<'_>], place: &dyn Fn(usize) -> Place) {
        let mut start = 0;
        for (at, token) in tokens.iter().enumerate() {
            let next = tokens.get(at + 1);
            if matches!(token.text, ";" | "{" | "}") {
                start = at + 1;
            } else if matches!(token.text, "struct" | "union" | "enum") {
                self.record(token.text, at, tokens);
            } else if token.text == "typedef" {
                self.alias(&tokens[at + 1..]);
            } else if token.is_word() {
                if !self.words.contains_key(token.text) {
                    self.words.insert(token.text.into(), place(token.at));
                }
                if next.is_some_and(|next| next.text == "(") && !self.functions.contains_key(token.text) {
                    let end = closing(tokens, at + 1);
                    self.functions.insert(token.text.into(), (spaced(&tokens[start..=end]), place(token.at)));
                }
            }
        }
    }

    /// `struct X`, and what lies between its braces where it has some.
    fn record(&mut self, keyword: &str, at: usize, tokens: &[Token<'_>]) {
        let tag = tokens.get(at + 1).filter(|token| token.is_word()).map(|token| token.text.to_string());
        if let Some(tag) = &tag {
            self.tags.entry(tag.clone()).or_insert(keyword.into());
        }
        let open = at + 1 + usize::from(tag.is_some());
        if tokens.get(open).is_none_or(|token| token.text != "{") {
            return;
        }
        let end = closing(tokens, open);
        let members = tokens[open + 1..end].split(|token| matches!(token.text, ";" | "{" | "}"));
        let record = Record { name: tag.clone(), members: members.map(spaced).collect() };
        // `typedef struct X { … } X_v1, *X_t;`
        let names = tokens[end + 1..].iter().take_while(|token| token.text != ";");
        let names = names.filter(|token| token.is_word()).map(|token| token.text.to_string());
        for name in names.chain(tag).collect::<Vec<_>>() {
            self.records.entry(name).or_insert(record.clone());
        }
    }

    /// Reads `typedef X_v1 X_t;`, where `X_v1` is a struct.
    fn alias(&mut self, tokens: &[Token<'_>]) {
        if let [of, name, end, ..] = tokens
            && end.text == ";"
            && let Some(record) = self.records.get(of.text)
        {
            let versioned = record.name.clone().or(Some(of.text.into()));
            let record = Record { name: versioned, members: record.members.clone() };
            self.records.entry(name.text.into()).or_insert(record);
        }
    }

    /// Where a type, an enumerator or a macro is declared, if it is.
    pub fn place(&self, name: &str) -> Option<&Place> {
        self.macros.get(name).or_else(|| self.words.get(name))
    }

    /// The declaration of a function, and where it stands.
    pub fn function(&self, name: &str) -> Option<&(String, Place)> {
        self.functions.get(name)
    }

    pub fn record_of(&self, name: &str) -> Option<&Record> {
        self.records.get(name)
    }

    /// Those of `names` that need a word before them. Elsewhere a name may be that of a struct and that of another type.
    pub fn tags(&self, names: &BTreeSet<&str>) -> Tags {
        self.tags
            .iter()
            .filter(|(name, _)| names.contains(name.as_str()))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect()
    }
}

/// Tokens with spaces where people put them.
fn spaced(tokens: &[Token<'_>]) -> String {
    let mut text = String::new();
    for (at, token) in tokens.iter().enumerate() {
        let last = at.checked_sub(1).map(|last| tokens[last].text);
        let close = matches!(token.text, "(" | ")" | "," | "[" | "]") || matches!(last, None | Some("(" | "[" | "*"));
        text += if close { "" } else { " " };
        text += token.text;
    }
    text
}
