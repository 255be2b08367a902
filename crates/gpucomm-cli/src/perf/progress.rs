//! What is going on just now.

use std::io::IsTerminal;

/// The progress line on standard error, if that is a terminal.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
}

impl Progress {
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal() }
    }

    pub fn show(&self, text: &str) {
        if self.terminal {
            // Carriage return and "erase to the end of the line".
            eprint!("\r\x1b[K{text}");
        }
    }
}
