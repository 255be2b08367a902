//! What a library exports, and what an archive needs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The symbols that a shared library, or an archive, defines for others.
pub fn defined(library: &Path) -> Result<BTreeSet<String>, String> {
    let dynamic = library.extension().is_none_or(|extension| extension != "a");
    let arguments: &[&str] = if dynamic { &["-D", "--defined-only"] } else { &["-g", "--defined-only"] };
    let symbols = names(library, arguments)?;
    match symbols.is_empty() {
        true => Err(format!("{} exports nothing", library.display())),
        false => Ok(symbols),
    }
}

/// The symbols that an archive takes from others.
pub fn undefined(archive: &Path) -> Result<BTreeSet<String>, String> {
    names(archive, &["-u"])
}

fn names(file: &Path, arguments: &[&str]) -> Result<BTreeSet<String>, String> {
    let run = Command::new("nm").args(arguments).arg(file).output().map_err(|error| format!("nm: {error}"))?;
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&run.stdout);
    let named = text.lines().filter(|line| !line.ends_with(':')).filter_map(|line| line.split_whitespace().last());
    // A version of a symbol follows its name: cudaMalloc@@libcudart.so.13.
    Ok(named.filter_map(|name| name.split('@').next()).map(String::from).collect())
}
