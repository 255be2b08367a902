//! Runs the build script.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The build script with an installation of our own declarations, in a directory whose name has a space and a quote.
pub struct Script {
    pub root: PathBuf,
    pub env: BTreeMap<String, String>,
}

/// What came of it.
pub struct Outcome {
    pub success: bool,
    pub stdout: String,
    /// With `ROOT` for the root.
    pub stderr: String,
}

impl Script {
    /// A whole installation of both libraries under `ROOT/sdk`; `None` where the build script is not there.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let program = Path::new(env!("GPUCOMM_BUILD_SCRIPT"));
        if !program.exists() {
            skip(&format!("{} is not on this machine", program.display()));
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("gpucomm build's {}-{number}", std::process::id()));
        std::fs::create_dir(&root).expect("a fresh directory");
        let root = root.canonicalize().expect("the directory exists");
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let set = [
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("CARGO_MANIFEST_DIR", package.display().to_string()),
            ("CARGO_CFG_TARGET_OS", "linux".into()),
            ("CARGO_FEATURE_NCCL", "1".into()),
            ("HOST", target.clone()),
            ("TARGET", target),
            ("OPT_LEVEL", "0".into()),
            ("OUT_DIR", root.join("out").display().to_string()),
            ("CUDA_HOME", root.join("sdk").display().to_string()),
            ("NCCL_HOME", root.join("sdk").display().to_string()),
        ];
        let script = Self { root, env: set.map(|(name, value)| (name.to_string(), value)).into() };
        std::fs::create_dir(script.root.join("out")).expect("a directory");
        for header in ["cuda.h", "cudaTypedefs.h", "cuda_runtime_api.h", "nccl.h"] {
            let text = std::fs::read_to_string(package.join("vendor/include").join(header)).expect("a header");
            script.file(&format!("sdk/include/{header}"), text.as_bytes());
        }
        let more = std::fs::read(package.join("tests/build/fixtures/runtime.h")).expect("a fixture");
        script.append("sdk/include/cuda_runtime_api.h", &String::from_utf8(more).expect("a text"));
        // The build script looks at the first bytes of libraries only; this program is one for the target, as it were.
        let mut elf = std::fs::read(std::env::current_exe().expect("this program")).expect("this program");
        elf.truncate(64);
        script.file("sdk/lib/libnccl.so.2", &elf);
        script.file("sdk/lib/libcudart.so.13", &elf);
        Some(script)
    }

    /// Adds the headers and the library of NVSHMEM.
    #[cfg(not(feature = "bindgen"))]
    pub fn nvshmem(&mut self) {
        for header in ["nvshmem_host.h", "non_abi/nvshmem_version.h"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vendor/include").join(header);
            self.file(&format!("sdk/include/{header}"), &std::fs::read(path).expect("a header"));
        }
        let library = std::fs::read(self.root.join("sdk/lib/libnccl.so.2")).expect("a library");
        self.file("sdk/lib/libnvshmem_host.so.3", &library);
        self.set("CARGO_FEATURE_NVSHMEM", "1");
        self.set("NVSHMEM_HOME", &self.at("sdk"));
    }

    pub fn at(&self, path: &str) -> String {
        self.root.join(path).display().to_string()
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.into(), value.into());
    }

    pub fn file(&self, path: &str, bytes: &[u8]) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("a directory");
        std::fs::write(path, bytes).expect("a file");
    }

    pub fn append(&self, path: &str, text: &str) {
        let mut file = std::fs::OpenOptions::new().append(true).open(self.root.join(path)).expect("a file");
        file.write_all(text.as_bytes()).expect("a file that can be written");
    }

    /// Replaces `old` by `new` in a file that has it.
    pub fn replace(&self, path: &str, old: &str, new: &str) {
        let text = std::fs::read_to_string(self.root.join(path)).expect("a file");
        assert!(text.contains(old), "{path} has no {old}");
        self.file(path, text.replace(old, new).as_bytes());
    }

    /// Hides every libclang: where LIBCLANG_PATH is set, it is searched for nowhere else.
    pub fn without_libclang(&mut self) {
        std::fs::create_dir(self.root.join("empty")).expect("a directory");
        self.set("LIBCLANG_PATH", &self.at("empty"));
    }

    pub fn run(&self) -> Outcome {
        let output =
            Command::new(env!("GPUCOMM_BUILD_SCRIPT")).env_clear().envs(&self.env).output().expect("a program");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let stderr = text(output.stderr).replace(&self.root.display().to_string(), "ROOT");
        Outcome { success: output.status.success(), stdout: text(output.stdout), stderr }
    }

    /// The text of a failure, which has no trace of a panic; `None` where the machine lacks a tool.
    pub fn failure(&self) -> Option<String> {
        let outcome = self.run();
        assert!(!outcome.success, "{}", outcome.stdout);
        for word in ["panicked", "RUST_BACKTRACE", "stack backtrace"] {
            assert!(!outcome.stderr.contains(word), "{}", outcome.stderr);
        }
        usable(outcome).map(|outcome| outcome.stderr)
    }

    /// What cargo is told; `None` where the machine lacks a tool.
    pub fn lines(&self) -> Option<Vec<String>> {
        let outcome = usable(self.run())?;
        assert!(outcome.success, "{}\n{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.stderr, "");
        Some(outcome.stdout.lines().map(String::from).collect())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Not where it is for want of a tool; but those which the test took away are missed as they should be.
fn usable(outcome: Outcome) -> Option<Outcome> {
    let wanting = |text: &str| outcome.stderr.starts_with(text) && !outcome.stderr.contains("ROOT");
    if wanting("error: libclang is missing") || wanting("error: a C compiler is needed") {
        skip(&outcome.stderr);
        return None;
    }
    Some(outcome)
}

fn skip(reason: &str) {
    crate::skip::skip("the build script was not tried", reason);
}
