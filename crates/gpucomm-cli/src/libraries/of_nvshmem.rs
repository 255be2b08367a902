//! By what NVSHMEM does its collectives: it loads a `libnccl.so.2` where it finds one, as the loader does.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use gpucomm::{Backend, backend};

use super::loaded;

const FILE: &str = "libnccl.so.2";
const OFF: &str = "NVSHMEM_DISABLE_NCCL";

/// Which NCCL a start of NVSHMEM would load, in words.
pub fn collectives() -> String {
    if backend() == Backend::Emulator {
        return "no NCCL: the emulator's own".to_owned();
    }
    let off = std::env::var_os(OFF).is_some_and(|value| is_on(&value));
    let found = if off { None } else { loaded::path("libnccl.so") };
    let beside = loaded::path("libnvshmem_host.so").and_then(|path| Some(Path::new(&path).parent()?.to_owned()));
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    say(off, found, || search(beside.into_iter().chain(std::env::split_paths(&listed))))
}

fn say(off: bool, loaded: Option<String>, search: impl FnOnce() -> Option<PathBuf>) -> String {
    if off {
        return format!("no NCCL: {OFF} is set");
    }
    // A library that is there already is the one that the loader gives to whoever asks for its name.
    if let Some(path) = loaded {
        return format!("{path}, which this program has loaded; {OFF}=1 keeps NVSHMEM from it");
    }
    match search() {
        Some(path) => format!("{}, which NVSHMEM loads; {OFF}=1 keeps it from that", path.display()),
        None => format!("{FILE}, if there is one where the loader looks by itself; {OFF}=1 keeps NVSHMEM from it"),
    }
}

/// The first of these folders that has it: first that of NVSHMEM itself, which its run path names.
fn search(mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.find_map(|folder| Some(folder.join(FILE)).filter(|path| path.is_file()))
}

/// How NVSHMEM reads a variable that says yes or no: to be set is to say yes.
fn is_on(value: &OsStr) -> bool {
    !value.to_string_lossy().starts_with(['0', 'n', 'N', 'f', 'F'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_loaded_comes_first() {
        let nowhere = || None;
        assert!(say(true, Some("/a/libnccl.so.2".to_owned()), nowhere).starts_with("no NCCL"));
        assert!(say(false, Some("/a/libnccl.so.2".to_owned()), nowhere).starts_with("/a/libnccl.so.2, which this"));
        assert!(
            say(false, None, || Some(PathBuf::from("/b/libnccl.so.2"))).starts_with("/b/libnccl.so.2, which NVSHMEM")
        );
        assert!(say(false, None, nowhere).contains("if there is one"));
    }

    #[test]
    fn folders_are_searched_in_their_order() {
        let root = std::env::temp_dir().join(format!("gpucomm-nccl-{}", std::process::id()));
        let [first, second] = ["first", "second"].map(|name| root.join(name));
        std::fs::create_dir_all(&first).unwrap();
        std::fs::create_dir_all(&second).unwrap();
        let both = || [first.clone(), second.clone()].into_iter();
        assert_eq!(search(both()), None);
        std::fs::write(second.join(FILE), "").unwrap();
        assert_eq!(search(both()), Some(second.join(FILE)));
        std::fs::write(first.join(FILE), "").unwrap();
        assert_eq!(search(both()), Some(first.join(FILE)));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn yes_and_no() {
        for (value, on) in [("1", true), ("0", false), ("no", false), ("FALSE", false), ("yes", true), ("", true)] {
            assert_eq!(is_on(OsStr::new(value)), on, "{value:?}");
        }
    }
}
