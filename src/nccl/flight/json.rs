//! Text of JSON, written as it comes.

use std::fmt::{self, Write};

/// An object that is written. Values of any kind have a method of their own; names need no escapes.
pub(super) struct Object<'t> {
    text: &'t mut String,
    empty: bool,
}

impl<'t> Object<'t> {
    pub(super) fn begin(text: &'t mut String) -> Self {
        text.push('{');
        Self { text, empty: true }
    }

    pub(super) fn end(self) {
        self.text.push('}');
    }

    fn name(&mut self, name: &str) -> &mut String {
        if !std::mem::take(&mut self.empty) {
            self.text.push_str(", ");
        }
        let _ = write!(self.text, "\"{name}\": ");
        self.text
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        let _ = write!(self.name(name), "{value}");
    }

    pub(super) fn text(&mut self, name: &str, value: impl fmt::Display) {
        quoted(self.name(name), &value.to_string());
    }

    /// `null` where there is none.
    pub(super) fn text_if(&mut self, name: &str, value: Option<impl fmt::Display>) {
        match value {
            Some(value) => self.text(name, value),
            None => self.name(name).push_str("null"),
        }
    }

    /// `null` where there is none.
    pub(super) fn number_if(&mut self, name: &str, value: Option<u64>) {
        match value {
            Some(value) => self.number(name, value),
            None => self.name(name).push_str("null"),
        }
    }

    pub(super) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        let mut inner = Object::begin(self.name(name));
        fill(&mut inner);
        inner.end();
    }

    /// A list of objects, each on a line of its own.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        fill: impl Fn(&T, &mut Object<'_>),
    ) {
        let text = self.name(name);
        text.push('[');
        for (at, item) in items.into_iter().enumerate() {
            text.push_str(if at == 0 { "\n  " } else { ",\n  " });
            let mut object = Object::begin(text);
            fill(&item, &mut object);
            object.end();
        }
        text.push(']');
    }
}

/// A string of JSON.
fn quoted(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            c if u32::from(c) < 0x20 => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_all_kinds() {
        let mut text = String::new();
        let mut object = Object::begin(&mut text);
        object.number("a", 1);
        object.text("b", "say \"no\\\"\n\tto it, naïve");
        object.text_if("c", None::<&str>);
        object.number_if("d", Some(u64::MAX));
        object.object("e", |inner| inner.number_if("f", None));
        object.list("g", [1, 2], |item, inner| inner.number("h", *item));
        object.list("i", [0; 0], |_, _| ());
        object.end();
        let expected = "{\"a\": 1, \"b\": \"say \\\"no\\\\\\\"\\n\\u0009to it, naïve\", \"c\": null, \"d\": 18446744073709551615, \
                        \"e\": {\"f\": null}, \"g\": [\n  {\"h\": 1},\n  {\"h\": 2}], \"i\": []}";
        assert_eq!(text, expected);
    }
}
