//! The variables of NCCL: from the environment, and from its files where the environment has none.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::settings::settings;

/// The file of the machine.
const MACHINE: &str = "/etc/nccl.conf";

/// The first version that finds the file of the user by `HOME`, and whose lines may end with `\r\n`.
const PORTABLE: u32 = 23003;

/// The lines of the files, in the order in which NCCL reads them.
static LINES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let named = std::env::var_os("NCCL_CONF_FILE").filter(|name| !name.is_empty()).map(PathBuf::from);
    let of_user = named.or_else(|| Some(home()?.join(".nccl.conf")));
    let files = of_user.into_iter().chain([PathBuf::from(MACHINE)]);
    files.filter_map(|file| std::fs::read(file).ok()).flat_map(|text| lines(&String::from_utf8_lossy(&text))).collect()
});

/// The home directory: before [`PORTABLE`] that of the user database, whatever `HOME` says.
fn home() -> Option<PathBuf> {
    if settings().nccl >= PORTABLE {
        return std::env::var_os("HOME").map(PathBuf::from);
    }
    let user = std::fs::metadata("/proc/self").ok()?.uid().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let own = users.lines().map(|line| line.split(':')).find(|line| line.clone().nth(2) == Some(&*user));
    own?.nth(5).map(PathBuf::from)
}

/// The value of a variable. In the files, the first line counts.
pub(crate) fn value(name: &str) -> Option<String> {
    let set = std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    set.or_else(|| LINES.iter().find(|(line, _)| line == name).map(|(_, value)| value.clone()))
}

/// Whether a variable that is a number is on. `None` if it is not set, or is no number.
pub(crate) fn switch(name: &str) -> Option<bool> {
    Some(value(name)?.trim().parse::<i64>().ok()? != 0)
}

/// The lines `NAME=value` of a file, without spaces around `=`.
fn lines(text: &str) -> Vec<(String, String)> {
    let whole = |line: &str| line.strip_suffix('\r').filter(|_| settings().nccl >= PORTABLE).unwrap_or(line).to_owned();
    let line = |line: String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.split('\n').map(whole).filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolated::isolated;

    #[test]
    fn the_environment_counts_more_than_a_file() {
        // The same in the other process.
        let file = std::env::temp_dir().join("gpucomm-emulator-test-nccl.conf");
        std::fs::write(&file, "# of a user\nNCCL_NVLS_ENABLE=0\nNCCL_ALGO=Ring\nNCCL_ALGO=Tree\n").unwrap();
        let name = file.to_string_lossy();
        isolated!(&[("NCCL_CONF_FILE", &*name), ("NCCL_GRAPH_MIXING_SUPPORT", "1")], || {
            assert_eq!((switch("NCCL_NVLS_ENABLE"), value("NCCL_ALGO").as_deref()), (Some(false), Some("Ring")));
            assert_eq!((switch("NCCL_GRAPH_MIXING_SUPPORT"), value("# of a user")), (Some(true), None));
        });
    }
}
