//! Which files the running libraries came from. That may be others than those linked: the loader decides at start.

/// The file that this process has mapped and whose name starts with `library`, such as `libnccl.so`.
pub fn path(library: &str) -> Option<String> {
    find(&std::fs::read_to_string("/proc/self/maps").ok()?, library)
}

fn find(maps: &str, library: &str) -> Option<String> {
    all(maps, library).next().map(str::to_owned)
}

/// Looks through the lines of `/proc/self/maps`, whose last field is a path. A file comes once for each part that is mapped.
pub fn all<'a>(maps: &'a str, library: &'a str) -> impl Iterator<Item = &'a str> {
    let path = |line: &'a str| line.find('/').map(|start| &line[start..]);
    maps.lines()
        .filter_map(path)
        .filter(move |path| path.rsplit('/').next().is_some_and(|name| name.starts_with(library)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn maps() {
        let maps = "\
7f00-7f01 r--p 00000000 fe:01 12                         /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 r-xp 00000000 fe:01 13                         /opt/my libs/libnccl.so.2
7f04-7f05 rw-p 00000000 00:00 0 
7f06-7f07 rw-p 00000000 00:00 0                          [heap]
";
        assert_eq!(super::find(maps, "libnccl.so"), Some("/opt/my libs/libnccl.so.2".to_owned()));
        assert_eq!(super::find(maps, "libcudart.so"), None);
        assert_eq!(super::all(maps, "lib").count(), 2);
    }
}
