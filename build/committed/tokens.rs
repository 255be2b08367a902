//! Words, numbers, texts in quotes and punctuation: as much as the bindings and declarations of C have in common.

/// One of them, and where it starts.
#[derive(Debug, Clone, Copy)]
pub struct Token<'a> {
    pub text: &'a str,
    pub at: usize,
}

impl Token<'_> {
    pub fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
    }
}

/// All of `text`, without comments of Rust and without spaces.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = match first {
            '"' => quoted(rest, '"'),
            // A character of C; in the bindings there are no lifetimes.
            '\'' => quoted(rest, '\''),
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("::") || rest.starts_with("->") => 2,
            '_' | 'a'..='z' | 'A'..='Z' | '0'..='9' => {
                rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len())
            }
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() && !rest.starts_with("//") {
            all.push(Token { text: &rest[..length], at });
        }
        at += length;
    }
    all
}

/// How long a text in quotes is, the quotes included.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The token that closes what the one at `open` opens; the last one where nothing does.
pub fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len().saturating_sub(1)
}
