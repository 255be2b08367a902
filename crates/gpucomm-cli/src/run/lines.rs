//! Bytes that come in pieces, as lines.

/// A line that is longer is shown in parts: nothing is kept without bound.
pub const LONGEST: usize = 64 << 10;

/// What one rank has written to one of its streams, and is not shown yet.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Adds `bytes`, and shows what is to be shown now: whole lines, with what ends them; of a line that is too long, a part.
    ///
    /// Progress bars go back to the start of their line again and again: what does so ends a line, too.
    pub fn push(&mut self, bytes: &[u8], mut show: impl FnMut(&[u8])) {
        self.rest.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(length) = line(&self.rest[from..]) {
            show(&self.rest[from..from + length]);
            from += length;
        }
        if self.rest.len() - from > LONGEST {
            show(&self.rest[from..]);
            from = self.rest.len();
        }
        self.rest.drain(..from);
    }

    /// Nothing more comes: what is left is a line.
    pub fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }
}

/// The length of the first line, if its end is there.
fn line(bytes: &[u8]) -> Option<usize> {
    let at = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
    match (bytes[at], bytes.get(at + 1)) {
        (b'\n', _) => Some(at + 1),
        (_, Some(b'\n')) => Some(at + 2),
        (_, Some(_)) => Some(at + 1),
        // What follows may be the rest of the end.
        (_, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Lines};

    fn shown(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, |line| all.push(line.to_vec()));
        }
        (all, lines.end())
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        let text = b"one\n\ntwo\r\n\x00\xff\n10%\r20%\rlast";
        let want: Vec<&[u8]> = vec![b"one\n", b"\n", b"two\r\n", b"\x00\xff\n", b"10%\r", b"20%\r"];
        for size in 1..=text.len() {
            let (all, rest) = shown(&text.chunks(size).collect::<Vec<_>>());
            assert_eq!(all, want, "in pieces of {size}");
            assert_eq!(rest, b"last");
        }
    }

    #[test]
    fn a_long_line_comes_in_parts() {
        let text = vec![b'x'; 3 * LONGEST];
        let (all, rest) = shown(&text.chunks(1000).collect::<Vec<_>>());
        assert!(all.len() > 1 && all.iter().all(|part| part.len() <= LONGEST + 1000));
        assert_eq!([all.concat(), rest].concat(), text);
    }
}
