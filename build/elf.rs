//! Whether a file is a library for the target, from its first bytes.
//!
//! A linker says "file in wrong format" and goes on to the next directory: what is found here is what is linked, so it
//! has to be looked at.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::layout;

const MAGIC: &[u8] = b"\x7fELF";
const ARCHIVES: [&[u8]; 2] = [b"!<arch>\n", b"!<thin>\n"];
/// Longer texts are no linker scripts.
const SCRIPT: u64 = 64 << 10;

/// The library itself, where `file` is one for `target`; where it is a linker script, the library that it names first.
pub fn library(file: &Path, target: &str) -> Result<PathBuf, String> {
    let head = head(file)?;
    if head.starts_with(MAGIC) {
        return machine(file, &head, target).map(|()| file.to_path_buf());
    }
    if ARCHIVES.iter().any(|magic| head.starts_with(magic)) {
        return Err(format!("{} is an archive, not a shared library", file.display()));
    }
    let script = File::open(file).and_then(|opened| {
        let mut text = Vec::new();
        opened.take(SCRIPT).read_to_end(&mut text)?;
        Ok(String::from_utf8(text).unwrap_or_default())
    });
    let Some(name) = script.ok().as_deref().and_then(named) else {
        return Err(format!("{} is no ELF file and no linker script", file.display()));
    };
    let real = file.parent().unwrap_or(Path::new("/")).join(&name);
    let head = head_of(&real).map_err(|error| format!("{} names {}: {error}", file.display(), real.display()))?;
    if !head.starts_with(MAGIC) {
        return Err(format!("{} names {}, which is no ELF file", file.display(), real.display()));
    }
    machine(&real, &head, target).map(|()| real)
}

/// Whether `file` is an archive of objects for `target`.
pub fn archive(file: &Path, target: &str) -> Result<(), String> {
    let fail = |error: io::Error| format!("{}: {error}", file.display());
    let head = head(file)?;
    if !ARCHIVES.iter().any(|magic| head.starts_with(magic)) {
        return Err(format!("{} is no archive", file.display()));
    }
    let mut opened = File::open(file).map_err(fail)?;
    let mut at = 8;
    loop {
        let mut member = Vec::new();
        opened.seek(SeekFrom::Start(at)).map_err(fail)?;
        Read::by_ref(&mut opened).take(80).read_to_end(&mut member).map_err(fail)?;
        // Tables of symbols and of names are members too; an archive without objects is for every machine.
        let Some((header, object)) = member.split_at_checked(60) else { return Ok(()) };
        if object.starts_with(MAGIC) {
            return machine(file, object, target);
        }
        let size = std::str::from_utf8(&header[48..58]).ok().and_then(|size| size.trim().parse::<u64>().ok());
        let Some(size) = size else { return Err(format!("{} is a broken archive", file.display())) };
        at += 60 + size + size % 2;
    }
}

fn head(file: &Path) -> Result<Vec<u8>, String> {
    head_of(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn head_of(file: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(file)?.take(20).read_to_end(&mut head)?;
    Ok(head)
}

/// Compares class and machine of an ELF header with the target.
fn machine(file: &Path, head: &[u8], target: &str) -> Result<(), String> {
    let Some(head) = head.first_chunk::<20>() else {
        return Err(format!("{} ends within its ELF header", file.display()));
    };
    let bits = |class| if class == 1 { 32 } else { 64 };
    let (class, code) = (head[4], u16::from_le_bytes([head[18], head[19]]));
    let arch = layout::arch(target);
    let wanted = match arch {
        "x86_64" => (2, 62),
        "aarch64" => (2, 183),
        "powerpc64le" => (2, 21),
        "riscv64gc" => (2, 243),
        // Whoever builds for another machine knows why.
        _ => return Ok(()),
    };
    if (class, code) == wanted {
        return Ok(());
    }
    let name = match code {
        3 => "x86".to_string(),
        21 => "powerpc64".into(),
        40 => "arm".into(),
        62 => "x86_64".into(),
        183 => "aarch64".into(),
        243 => "riscv".into(),
        other => format!("machine {other}"),
    };
    Err(format!("{} is a {}-bit library for {name}, the target is {arch}", file.display(), bits(class)))
}

/// What a linker script links first: `INPUT(libnccl.so.2)`, `GROUP ( /lib/libnccl.so.2 AS_NEEDED ( … ) )`.
fn named(script: &str) -> Option<String> {
    let mut code = String::new();
    let mut rest = script;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        code.push(' ');
        rest = comment.split_once("*/")?.1;
    }
    code.push_str(rest);
    let starts = ["INPUT", "GROUP"].into_iter().filter_map(|command| {
        let at = code.find(command)?;
        let list = code[at + command.len()..].trim_start().strip_prefix('(')?;
        Some((at, list))
    });
    let (_, list) = starts.min_by_key(|(at, _)| *at)?;
    let word =
        list.split([' ', '\t', '\r', '\n', ',', '(', ')']).find(|word| !word.is_empty() && *word != "AS_NEEDED")?;
    let word = word.trim_matches('"');
    Some(word.strip_prefix("-l").map_or_else(|| word.to_string(), |name| format!("lib{name}.so")))
}
