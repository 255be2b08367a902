//! Where lines of many ranks go: one of our own streams.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Shared by whoever writes to the same stream.
#[derive(Clone)]
pub struct Sink(Arc<Mutex<Inner>>);

struct Inner {
    /// `None` where the stream was closed before we came.
    file: Option<File>,
    /// Whose line has begun, and has no end yet.
    open: Option<usize>,
    block: Vec<u8>,
}

impl Sink {
    /// Our output and our error stream: one sink where both are the same file, so that no line is within another.
    pub fn both() -> (Self, Self) {
        let (out, err) = (own(io::stdout().as_fd()), own(io::stderr().as_fd()));
        let same = match (&out, &err) {
            (Some(out), Some(err)) => out
                .metadata()
                .and_then(|out| err.metadata().map(|err| (out.dev(), out.ino()) == (err.dev(), err.ino())))
                .unwrap_or(false),
            _ => false,
        };
        let sink = |file| Self(Arc::new(Mutex::new(Inner { file, open: None, block: Vec::new() })));
        let out = sink(out);
        let err = if same { out.clone() } else { sink(err) };
        (out, err)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `f` put lines, and writes them in one piece.
    pub fn write(&self, f: impl FnOnce(&mut Block)) -> io::Result<()> {
        let mut inner = self.lock();
        let mut block = Block { open: inner.open, bytes: std::mem::take(&mut inner.block) };
        f(&mut block);
        inner.open = block.open;
        let done = inner.file.as_mut().map_or(Ok(()), |file| write_all(file, &block.bytes));
        block.bytes.clear();
        inner.block = block.bytes;
        done
    }

    /// A line of our own.
    pub fn note(&self, text: &str) {
        // Nowhere to write to is no reason to fail.
        let _ = self.write(|block| block.put(usize::MAX, b"", format!("gpucomm: {text}\n").as_bytes()));
    }
}

/// What is written in one piece.
pub struct Block {
    open: Option<usize>,
    bytes: Vec<u8>,
}

impl Block {
    /// Adds a line of the stream `who`, or a part of one.
    pub fn put(&mut self, who: usize, prefix: &[u8], text: &[u8]) {
        if self.open != Some(who) {
            if self.open.is_some() {
                self.bytes.push(b'\n');
            }
            self.bytes.extend_from_slice(prefix);
        }
        self.bytes.extend_from_slice(text);
        self.open = (!matches!(text.last(), Some(b'\n' | b'\r'))).then_some(who);
    }

    /// The stream `who` has ended, with `rest`, which has no end of a line.
    pub fn end(&mut self, who: usize, prefix: &[u8], rest: &[u8]) {
        if !rest.is_empty() {
            self.put(who, prefix, rest);
        }
        if self.open == Some(who) {
            self.bytes.push(b'\n');
            self.open = None;
        }
    }
}

fn own(stream: BorrowedFd<'_>) -> Option<File> {
    stream.try_clone_to_owned().ok().map(File::from)
}

fn write_all(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Whoever has given us the stream, or shares it, does not wait when it writes; a rank that is prefixed does.
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Block;

    #[test]
    fn lines_begin_with_their_rank_and_are_not_within_others() {
        let mut block = Block { open: None, bytes: Vec::new() };
        block.put(0, b"[0] ", b"a\n");
        block.put(0, b"[0] ", b"part");
        block.put(0, b"[0] ", b" of it");
        block.put(2, b"[1] ", b"b\n");
        block.put(0, b"[0] ", b"more");
        block.end(2, b"[1] ", b"");
        block.end(0, b"[0] ", b"");
        block.end(2, b"[1] ", b"last");
        let text = String::from_utf8(block.bytes).unwrap();
        assert_eq!(text, "[0] a\n[0] part of it\n[1] b\n[0] more\n[1] last\n");
    }
}
