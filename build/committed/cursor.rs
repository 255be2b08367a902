//! A place within the text of bindings.

use super::tokens::{Token, closing};

/// What is next, and what was.
#[derive(Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str, tokens: &'a [Token<'a>]) -> Self {
        Self { text, tokens, at: 0 }
    }

    /// The token that is `ahead` of the next one.
    pub fn peek(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).map(|token| token.text)
    }

    pub fn next(&mut self) -> Result<&'a str, String> {
        let token = self.peek(0).ok_or("the bindings end within an item")?;
        self.at += 1;
        Ok(token)
    }

    pub fn word(&mut self) -> Result<String, String> {
        match self.tokens.get(self.at) {
            Some(token) if token.is_word() => self.next().map(String::from),
            _ => Err(self.wrong("a name")),
        }
    }

    /// Whether `text` was next; if so, it no longer is.
    pub fn take(&mut self, text: &str) -> bool {
        let taken = self.peek(0) == Some(text);
        self.at += usize::from(taken);
        taken
    }

    pub fn expect(&mut self, text: &str) -> Result<(), String> {
        if self.take(text) { Ok(()) } else { Err(self.wrong(&format!("`{text}`"))) }
    }

    /// Goes past what opens here, and returns what lies within.
    pub fn block(&mut self) -> &'a [Token<'a>] {
        let end = closing(self.tokens, self.at);
        let within = self.tokens.get(self.at + 1..end).unwrap_or_default();
        self.at = (end + 1).min(self.tokens.len());
        within
    }

    /// Where the next token starts.
    pub fn position(&self) -> usize {
        self.tokens.get(self.at).map_or(self.text.len(), |token| token.at)
    }

    /// The text from `start` to the last token that was taken.
    pub fn since(&self, start: usize) -> &'a str {
        let end = self.at.checked_sub(1).map_or(start, |last| self.tokens[last].at + self.tokens[last].text.len());
        &self.text[start..end.max(start)]
    }

    /// An error that says where it is.
    pub fn wrong(&self, expected: &str) -> String {
        let line = self.text[..self.position()].matches('\n').count() + 1;
        format!("line {line}: expected {expected}, got {}", self.peek(0).unwrap_or("the end"))
    }
}
