//! What one place holds: a header and a library that belong together, or why not.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::elf;
use super::find::Found;
use super::headers::{self, Version};
use super::layout::Layout;
use super::library::Library;

/// Whether the directories hold a header and a library that belong together, are new enough, and are for `target`.
pub fn inspect(library: &Library, layout: &Layout, target: &str, fixed: bool, origin: &str) -> Result<Found, String> {
    let (include, version) = header(library, layout)?;
    let soname = (library.soname)(version);
    let names = match fixed {
        true => vec![format!("lib{}_static.a", library.stem)],
        false => vec![soname.clone(), format!("lib{}.so", library.stem)],
    };
    let mut refused = None;
    let all = layout.libs.iter().flat_map(|lib| names.iter().map(move |name| lib.join(name)));
    for path in all {
        if !path.is_file() {
            refused = refused.or_else(|| trouble(&path));
            continue;
        }
        let file = match fixed {
            true => elf::archive(&path, target).map(|()| path),
            false => elf::library(&path, target).and_then(|file| {
                if library.numbered {
                    agrees(&file, version)?;
                }
                run_path(&file)?;
                Ok(file)
            }),
        };
        match file {
            Ok(file) => {
                let lib = file.parent().map(Path::to_path_buf).unwrap_or_default();
                let mut companions = layout.companions.clone();
                companions.retain(|at| *at != include && at.is_dir());
                let (origin, warnings) = (origin.to_string(), Vec::new());
                let Library { key, stem, .. } = *library;
                return Ok(Found {
                    include,
                    companions,
                    lib,
                    file,
                    soname,
                    fixed,
                    version,
                    key,
                    stem,
                    origin,
                    warnings,
                });
            }
            Err(reason) => refused = refused.or(Some(reason)),
        }
    }
    Err(refused.unwrap_or_else(|| match fixed {
        true => format!("headers of {version}, but no {} beside them", names[0]),
        false => {
            let major = soname.rsplit('.').next().unwrap_or_default();
            format!("headers of {version}, but no lib{}.so[.{major}] beside them", library.stem)
        }
    }))
}

/// The directory of the header, and its version.
fn header(library: &Library, layout: &Layout) -> Result<(PathBuf, Version), String> {
    let header = library.header;
    let Some(include) = layout.includes.iter().find(|include| include.join(header).is_file()) else {
        let refused = layout.includes.iter().find_map(|include| trouble(&include.join(header)));
        return Err(refused.unwrap_or_else(|| match layout.includes.first() {
            Some(first) => format!("{} missing", shown(first, header)),
            None => format!("{header} missing"),
        }));
    };
    let path = include.join(header);
    let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let Some(version) = (library.version)(&String::from_utf8_lossy(&text)) else {
        return Err(format!("{} does not say its version", path.display()));
    };
    if version < library.minimum {
        return Err(format!("{version} (too old)"));
    }
    Ok((include.clone(), version))
}

/// An older library under newer headers is undefined symbols later: the file name usually tells.
fn agrees(file: &Path, version: Version) -> Result<(), String> {
    let Ok(real) = file.canonicalize() else { return Ok(()) };
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let parts = headers::of_file_name(&name);
    let older = match parts.as_slice() {
        [major, ..] if *major != version.0 => true,
        [_, minor, ..] => *minor < version.1,
        _ => false,
    };
    if older { Err(format!("headers of {version}, but the library is {}", real.display())) } else { Ok(()) }
}

/// A run path has colons between its directories, and the option that sets it commas between its parts.
fn run_path(file: &Path) -> Result<(), String> {
    let lib = file.parent().unwrap_or(file);
    let Some(text) = lib.to_str() else { return Err(format!("{} is not UTF-8, as cargo needs it", lib.display())) };
    match text.chars().find(|c| matches!(c, ':' | ',' | '\n')) {
        Some(c) => Err(format!("{text} has a {c:?}, which the run path of a program cannot hold")),
        None => Ok(()),
    }
}

/// Why `path` is not a file, where it is more than that there is none: a link that leads nowhere, a file in the place of
/// a directory, a directory that must not be read.
fn trouble(path: &Path) -> Option<String> {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    for at in ancestors {
        match std::fs::metadata(at) {
            Ok(data) if at == path => return (!data.is_file()).then(|| format!("{} is not a file", at.display())),
            Ok(data) if data.is_dir() => (),
            Ok(_) => return Some(format!("{} is not a directory", at.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return at.is_symlink().then(|| format!("{} is a link to nothing", at.display()));
            }
            Err(error) => return Some(format!("{}: {error}", at.display())),
        }
    }
    None
}

/// Why `path` is not a directory that can be read.
pub fn no_directory(path: &Path) -> Option<String> {
    let relative = if path.is_absolute() { "" } else { ": an absolute path is needed" };
    match std::fs::read_dir(path) {
        Ok(_) if relative.is_empty() => None,
        Ok(_) => Some(format!("a relative path{relative}")),
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => Some("a link to nothing".into()),
        Err(error) if error.kind() == ErrorKind::NotFound => Some(format!("no such directory{relative}")),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Some("not a directory".into()),
        Err(error) => Some(error.to_string()),
    }
}

/// `include/nccl.h`: the header with the last part of its directory.
fn shown(include: &Path, header: &str) -> String {
    match include.file_name() {
        Some(last) => format!("{}/{header}", last.to_string_lossy()),
        None => format!("{}/{header}", include.display()),
    }
}
