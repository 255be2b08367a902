//! Fake machines.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::find::{Failure, Found, Package, Search, find};
use crate::headers::Version;
use crate::library::Library;

pub const X86: &str = "x86_64-unknown-linux-gnu";
pub const ARM: &str = "aarch64-unknown-linux-gnu";

/// A machine: a directory as `/`, an environment and pkg-config's packages.
pub struct Machine {
    pub root: PathBuf,
    pub env: HashMap<String, String>,
    pub packages: HashMap<String, Package>,
    pub target: &'static str,
    pub host: &'static str,
}

impl Machine {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("gpucomm-discovery-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        std::fs::create_dir(&root).expect("a fresh directory");
        let root = root.canonicalize().expect("the directory exists");
        Self { root, env: HashMap::new(), packages: HashMap::new(), target: X86, host: X86 }
    }

    pub fn on(target: &'static str) -> Self {
        let mut machine = Self::new();
        (machine.target, machine.host) = (target, target);
        machine
    }

    pub fn at(&self, path: &str) -> String {
        self.root.join(path).display().to_string()
    }

    pub fn file(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }

    /// The beginning of a shared library for the machine's target.
    pub fn library(&self, path: &str) {
        let machine = if self.target == ARM { 183 } else { 62 };
        self.bytes(path, &elf(2, machine));
    }

    pub fn bytes(&self, path: &str, bytes: &[u8]) {
        self.file(path, "");
        std::fs::write(self.root.join(path), bytes).expect("a file");
    }

    pub fn link(&self, path: &str, to: &str) {
        std::os::unix::fs::symlink(to, self.root.join(path)).expect("a link");
    }

    /// Headers of NCCL in `include`, and its library, of the same version, with all names in `lib`.
    pub fn nccl(&self, include: &str, lib: &str, version: Version) {
        self.file(&format!("{include}/nccl.h"), &nccl_h(version));
        self.library(&format!("{lib}/libnccl.so.{version}"));
        self.link(&format!("{lib}/libnccl.so.2"), &format!("libnccl.so.{version}"));
        self.link(&format!("{lib}/libnccl.so"), "libnccl.so.2");
    }

    /// The same for the CUDA runtime, such as 13.0.
    pub fn cuda(&self, include: &str, lib: &str, major: u32, minor: u32) {
        self.file(&format!("{include}/cuda_runtime_api.h"), &cuda_h(major, minor));
        self.library(&format!("{lib}/libcudart.so.{major}.{minor}.96"));
        self.link(&format!("{lib}/libcudart.so.{major}"), &format!("libcudart.so.{major}.{minor}.96"));
        self.link(&format!("{lib}/libcudart.so"), &format!("libcudart.so.{major}"));
    }

    pub fn set(&mut self, name: &str, path: &str) {
        let value = self.at(path);
        self.env.insert(name.into(), value);
    }

    pub fn find(&self, library: &Library) -> Result<Found, Failure> {
        let package = |name: &str| self.packages.get(name).cloned().ok_or_else(|| "not installed".to_string());
        let env = |name: &str| self.env.get(name).cloned();
        find(library, &Search { env: &env, package: &package, root: &self.root, target: self.target, host: self.host })
    }

    /// What is found, as paths below the root: include, library, origin.
    pub fn found(&self, library: &Library) -> (String, String, String) {
        let found = self.find(library).unwrap_or_else(|failure| panic!("{failure}"));
        let short = |text: String| text.replace(&format!("{}/", self.root.display()), "");
        let path = |path: &Path| short(path.display().to_string());
        (path(&found.include), path(&found.file), short(found.origin))
    }

    /// The text of the failure, with `ROOT` for the root.
    pub fn failure(&self, library: &Library) -> String {
        let failure = self.find(library).expect_err("nothing is to be found");
        // The column of the reasons depends on the length of the root: two spaces at least stand before it.
        let text = failure.to_string().replace(&self.root.display().to_string(), "ROOT");
        text.lines().map(|line| columns(line) + "\n").collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Runs of spaces within a line become one `  `.
pub fn columns(line: &str) -> String {
    let body = line.trim_start();
    let indent = &line[..line.len() - body.len()];
    let parts: Vec<&str> = body.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect();
    format!("{indent}{}", parts.join("  "))
}

pub fn nccl_h(Version(major, minor, patch): Version) -> String {
    format!(
        "#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH {patch}\n#define NCCL_SUFFIX \"\"\n"
    )
}

pub fn cuda_h(major: u32, minor: u32) -> String {
    format!("/** CUDA Runtime API Version */\n#define CUDART_VERSION  {}\n", major * 1000 + minor * 10)
}

pub fn expected(include: &str, file: &str, origin: &str) -> (String, String, String) {
    (include.into(), file.into(), origin.into())
}

pub const NEW: Version = Version(2, 28, 9);

/// An ELF header of a class (1: 32 bits, 2: 64 bits) and a machine.
pub fn elf(class: u8, machine: u16) -> Vec<u8> {
    let mut header = b"\x7fELF".to_vec();
    header.extend([class, 1, 1]);
    header.resize(16, 0);
    header.extend(3u16.to_le_bytes());
    header.extend(machine.to_le_bytes());
    header.resize(64, 0);
    header
}

/// An archive with a table of symbols and one object.
pub fn archive(object: &[u8]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, body) in [("/", &b"\0\0\0\0odd"[..]), ("a.o/", object)] {
        let size = body.len();
        archive.extend(format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).bytes());
        archive.extend(body);
        archive.resize(archive.len().next_multiple_of(2), b'\n');
    }
    archive
}
