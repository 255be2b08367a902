//! The committed bindings, held against headers that are those of vendor/include but for one thing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::committed::{self, Language, Part, Request};
use crate::headers;

/// Which committed bindings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Cuda,
    Nccl,
    Nvshmem,
}

/// A copy of vendor/include.
struct Headers {
    root: PathBuf,
    of: Of,
}

impl Headers {
    /// `None` where there is no C compiler.
    fn new() -> Option<Self> {
        Self::of(Of::Nccl)
    }

    /// `None` where there is no C++ compiler.
    fn nvshmem() -> Option<Self> {
        Self::of(Of::Nvshmem)
    }

    fn of(of: Of) -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let program = if of == Of::Nvshmem { "c++" } else { "cc" };
        if Command::new(program).arg("--version").output().is_err() {
            crate::skip::skip("committed bindings were not compared with headers", &format!("there is no {program}"));
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("gpucomm-committed-{}-{number}", std::process::id()));
        std::fs::create_dir(&root).expect("a fresh directory");
        let headers = Self { root: root.canonicalize().expect("the directory exists"), of };
        std::fs::create_dir(headers.root.join("non_abi")).expect("a directory");
        let all = ["cuda.h", "cudaTypedefs.h", "cuda_runtime_api.h", "nccl.h", "nvshmem_host.h", NVSHMEM_VERSION];
        for header in all {
            std::fs::copy(package().join("vendor/include").join(header), headers.root.join(header)).expect("a header");
        }
        Some(headers)
    }

    /// With `old` as `new` in a header that has it.
    fn with(self, header: &str, old: &str, new: &str) -> Self {
        let path = self.root.join(header);
        let text = std::fs::read_to_string(&path).expect("a header");
        assert!(text.contains(old), "{header} has no {old}");
        std::fs::write(path, text.replacen(old, new, 1)).expect("a header that can be written");
        self
    }

    /// With another version of NCCL.
    fn version(self, minor: u32, patch: u32) -> Self {
        let code = format!("#define NCCL_VERSION_CODE {}", 20000 + minor * 100 + patch);
        self.with("nccl.h", "#define NCCL_MINOR 32", &format!("#define NCCL_MINOR {minor}"))
            .with("nccl.h", "#define NCCL_PATCH 3", &format!("#define NCCL_PATCH {patch}"))
            .with("nccl.h", "#define NCCL_VERSION_CODE 23203", &code)
    }

    /// With headers that state NVSHMEM 3.`minor`.0.
    fn nvshmem_version(self, minor: u32) -> Self {
        let stated = format!("NVSHMEM_VENDOR_MINOR_VERSION {minor}");
        self.with(NVSHMEM_VERSION, "NVSHMEM_VENDOR_MINOR_VERSION 8", &stated)
    }

    fn adapt(&self) -> Result<String, String> {
        let read = |directory: &Path, name: &str| std::fs::read_to_string(directory.join(name)).expect("a header");
        let vendor = package().join("vendor/include");
        let cuda = |of: &Path| headers::cudart(&read(of, "cuda_runtime_api.h")).expect("a version");
        let nccl = |of: &Path| headers::nccl(&read(of, "nccl.h")).expect("a version");
        let nvshmem = |of: &Path| headers::nvshmem(&read(of, NVSHMEM_VERSION)).expect("a version");
        let part = |name, starts, version: &dyn Fn(&Path) -> headers::Version, there: bool| Part {
            name,
            starts,
            installed: there.then(|| version(&self.root)),
            committed: version(&vendor),
        };
        let (language, program, wrapper, parts) = match self.of {
            Of::Cuda | Of::Nccl => {
                let of_nccl = part("NCCL", &["nccl", "NCCL", "gpucommNccl"], &nccl, self.of == Of::Nccl);
                (Language::C, "cc", "wrapper.h", [of_nccl, part("CUDA runtime", &[""], &cuda, true)])
            }
            Of::Nvshmem => {
                let parts = [part("CUDA runtime", &["CU"], &cuda, true), part("NVSHMEM", &[""], &nvshmem, true)];
                (Language::Cxx17, "c++", "vendor/shim/gpucomm_nvshmem.h", parts)
            }
        };
        let compiler = || {
            let mut command = Command::new(program);
            command.arg("-I").arg(package().join("vendor/shim")).arg("-I").arg(&self.root);
            command.args(if self.of == Of::Nccl { &["-DGPUCOMM_NCCL"][..] } else { &[] });
            command.args(headers::DEFINES.iter().map(|name| format!("-D{name}=1")));
            command.args(if language == Language::Cxx17 { &["-std=c++17"][..] } else { &[] });
            command
        };
        let request = Request {
            bindings: if self.of == Of::Nvshmem { NVSHMEM } else { SNAPSHOT },
            wrapper: &package().join(wrapper),
            language,
            work: &self.root,
            compiler: &compiler,
            parts: &parts,
            instead: "--features gpucomm/emulator",
        };
        let adapted = committed::adapt(&request).map(|(bindings, _)| bindings);
        adapted.map_err(|error| error.replace(&self.root.display().to_string(), "ROOT"))
    }

    /// The places that differ, with what is expected and what is found; lines of the headers have no numbers.
    fn differences(&self) -> Vec<String> {
        let text = self.adapt().expect_err("something differs");
        let mut lines = text.lines();
        let first = lines.next().expect("a first line");
        assert!(
            first.starts_with("error: the bindings that come with gpucomm are not those of the installed"),
            "{text}"
        );
        let fix = lines.next_back().expect("a last line");
        assert_eq!(
            fix,
            "  fix: --features gpucomm/bindgen, so that libclang reads the headers | --features gpucomm/emulator for the CPU emulator"
        );
        let plain = |line: &str| match line.split_once(".h:") {
            Some((file, rest)) => format!("{file}.h{}", rest.trim_start_matches(|c: char| c.is_ascii_digit())),
            None => line.to_string(),
        };
        lines.map(|line| plain(line.trim())).collect()
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

const SNAPSHOT: &str = concat!(
    include_str!("../../crates/gpucomm-abi/src/cuda_nccl.rs"),
    include_str!("../../crates/gpucomm-abi/src/cuda_nccl_functions.rs")
);

const NVSHMEM: &str = concat!(
    include_str!("../../crates/gpucomm-abi/src/nvshmem.rs"),
    include_str!("../../crates/gpucomm-abi/src/nvshmem_functions.rs")
);

const NVSHMEM_VERSION: &str = "non_abi/nvshmem_version.h";

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Without spaces, comments, attributes of lints, and the commas that formatting adds.
fn essence(bindings: &str) -> String {
    let lines = bindings.lines().filter(|line| !line.starts_with("//") && !line.starts_with("#[allow"));
    let text: String = lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
    text.replace(",}", "}").replace(",)", ")").replace(",]", "]").replace(",>", ">")
}

#[test]
fn the_headers_that_they_were_made_from() {
    let Some(headers) = Headers::new() else { return };
    let bindings = headers.adapt().expect("nothing differs");
    assert_eq!(essence(&bindings), essence(SNAPSHOT));
}

#[test]
fn another_parameter() {
    let Some(headers) = Headers::new() else { return };
    let headers = headers.with("cuda_runtime_api.h", "cudaSetDevice(int device)", "cudaSetDevice(long device)");
    let expected = [
        "ROOT/cuda_runtime_api.h: cudaSetDevice",
        "expected  cudaError_t cudaSetDevice(int)",
        "found     cudaError_t cudaSetDevice(long device)",
    ];
    assert_eq!(headers.differences(), expected);
}

#[test]
fn another_value() {
    let Some(headers) = Headers::new() else { return };
    let headers = headers.with("nccl.h", "ncclAvg = 4", "ncclAvg = 7").with(
        "nccl.h",
        "NCCL_SPLIT_NOCOLOR -1",
        "NCCL_SPLIT_NOCOLOR 0xffffffffu",
    );
    let expected = [
        "ROOT/nccl.h: NCCL_SPLIT_NOCOLOR",
        "expected  -1",
        "found     4294967295",
        "ROOT/nccl.h: ncclAvg",
        "expected  4",
        "found     7",
    ];
    assert_eq!(headers.differences(), expected);
}

#[test]
fn another_layout() {
    let Some(headers) = Headers::new() else { return };
    let headers =
        headers.with("cuda.h", "  CUmemLocationType type;\n  int id;", "  int id;\n  CUmemLocationType type;");
    let differences = headers.differences();
    let offset = ["ROOT/cuda.h: offset of CUmemLocation_st.type", "expected  0", "found     4"];
    assert!(differences.windows(3).any(|lines| lines == offset), "{differences:?}");
    let Some(headers) = Headers::new() else { return };
    let headers = headers.with("nccl.h", "#define NCCL_UNIQUE_ID_BYTES 128", "#define NCCL_UNIQUE_ID_BYTES 136");
    let differences = headers.differences();
    let size = ["ROOT/nccl.h: size of ncclUniqueId", "expected  128", "found     136"];
    assert!(differences.windows(3).any(|lines| lines == size), "{differences:?}");
    let field = ["ROOT/nccl.h: ncclUniqueId.internal", "expected  char internal[128]", "found     char internal[136]"];
    assert!(differences.windows(3).any(|lines| lines == field), "{differences:?}");
}

#[test]
fn another_type() {
    let Some(headers) = Headers::new() else { return };
    let headers =
        headers.with("cuda.h", "typedef unsigned long long CUdeviceptr_v2;", "typedef unsigned CUdeviceptr_v2;");
    let expected =
        ["ROOT/cuda.h: CUdeviceptr_v2", "expected  unsigned long long", "found     typedef unsigned CUdeviceptr_v2;"];
    assert_eq!(headers.differences()[..3], expected);
}

#[test]
fn something_that_is_not_there() {
    let Some(headers) = Headers::new() else { return };
    let headers = headers.with("nccl.h", "ncclCommRevoke(", "ncclCommRevokeElse(");
    assert_eq!(headers.differences(), ["ncclCommRevoke", "expected  as in NCCL 2.32.3", "found     nothing"]);
    // Older headers may lack it.
    let bindings = headers.version(28, 6).adapt().expect("nothing differs");
    assert!(!bindings.contains("ncclCommRevoke"), "{bindings}");
    assert!(bindings.contains("pub const NCCL_VERSION_CODE: u32 = 22806;"), "{bindings}");
    assert!(bindings.contains("pub fn ncclCommAbort("), "{bindings}");
}

#[test]
fn without_nccl() {
    let Some(mut headers) = Headers::new() else { return };
    headers.of = Of::Cuda;
    let bindings = headers.adapt().expect("nothing differs");
    assert!(!bindings.contains("fn nccl") && !bindings.contains("NCCL_"), "{bindings}");
    assert!(bindings.contains("pub fn cudaMalloc("), "{bindings}");
}

#[test]
fn a_configuration_that_is_shorter() {
    let Some(headers) = Headers::new() else { return };
    let newer = "nChannelsPerNetPeer nvlinkCentricSched graphUsageMode numRmaCtx maxP2pPeers graphStreamOrdering \
                 launchOrderImplicit numRmaSig rmaEagerInit hostCftMode nvlsHostMode";
    let headers = headers.version(27, 3).with("nccl.h", "ncclConfig_v23100", "ncclConfig_v22700");
    let headers =
        newer.split(' ').fold(headers, |headers, field| headers.with("nccl.h", &format!("  int {field};\n"), ""));
    let bindings = headers.adapt().expect("nothing differs");
    assert!(bindings.contains("pub type ncclConfig_t = ncclConfig_v22700;"), "{bindings}");
    assert!(bindings.contains("size_of::<ncclConfig_v22700>() - 72usize"), "{bindings}");
    assert!(!bindings.contains("nvlinkCentricSched") && !bindings.contains("__bindgen_padding"), "{bindings}");
}

#[test]
fn a_configuration_that_is_longer() {
    let Some(headers) = Headers::new() else { return };
    let headers =
        headers.version(33, 1).with("nccl.h", "  int nvlsHostMode;\n", "  int nvlsHostMode;\n  int more[3];\n");
    let bindings = headers.adapt().expect("nothing differs");
    assert!(bindings.contains("pub __bindgen_padding_0: ::std::mem::MaybeUninit<[u8; 12usize]>,"), "{bindings}");
    assert!(bindings.contains("size_of::<ncclConfig_v23100>() - 128usize"), "{bindings}");
}

/// It lies where there was padding before.
#[test]
fn a_configuration_with_a_field_in_its_padding() {
    let Some(headers) = Headers::new() else { return };
    let headers = headers.version(33, 1).with("nccl.h", "  int nvlsHostMode;\n", "  int nvlsHostMode;\n  int more;\n");
    let bindings = headers.adapt().expect("nothing differs");
    assert!(bindings.contains("pub __bindgen_padding_0: ::std::mem::MaybeUninit<[u8; 4usize]>,"), "{bindings}");
    assert!(bindings.contains("size_of::<ncclConfig_v23100>() - 120usize"), "{bindings}");
}

#[test]
fn a_configuration_whose_fields_have_moved() {
    let Some(headers) = Headers::new() else { return };
    let headers = headers.version(33, 1).with("nccl.h", "  int blocking;\n", "  long more;\n  int blocking;\n");
    let moved = ["ROOT/nccl.h: offset of ncclConfig_t.blocking", "expected  16", "found     24"];
    assert_eq!(headers.differences()[..3], moved);
}

#[test]
fn headers_that_do_not_compile() {
    let Some(headers) = Headers::new() else { return };
    let headers = headers.with("nccl.h", "typedef struct ncclComm *ncclComm_t;", "typedef struct ncclComm *ncclComm_t");
    let text = headers.adapt().expect_err("a syntax error");
    assert!(text.starts_with("error: the headers cannot be bound: ROOT/nccl.h:"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn nvshmem_bindings_match_their_own_headers() {
    let Some(headers) = Headers::nvshmem() else { return };
    let bindings = headers.adapt().expect("nothing differs");
    assert_eq!(essence(&bindings), essence(NVSHMEM));
}

#[test]
fn nvshmem_parameter_changed() {
    let Some(headers) = Headers::nvshmem() else { return };
    let headers = headers.with("nvshmem_host.h", "nvshmem_malloc(size_t size)", "nvshmem_malloc(int size)");
    let expected = [
        "ROOT/nvshmem_host.h: nvshmem_malloc",
        "expected  void *nvshmem_malloc(size_t)",
        "found     void *nvshmem_malloc(int size)",
    ];
    assert_eq!(headers.differences(), expected);
    // In C, an enumeration is compatible with its integer type; in C++, it is not.
    let Some(headers) = Headers::nvshmem() else { return };
    let headers = headers.with(
        "nvshmem_host.h",
        "nvshmem_ptr(const void *ptr, int",
        "nvshmem_ptr(const void *ptr, enum gpucommTeams",
    );
    assert_eq!(headers.differences()[0], "ROOT/nvshmem_host.h: nvshmem_ptr");
}

#[test]
fn nvshmem_function_became_noexcept() {
    let Some(headers) = Headers::nvshmem() else { return };
    let headers = headers.with("nvshmem_host.h", "nvshmem_malloc(size_t size)", "nvshmem_malloc(size_t size) noexcept");
    headers.adapt().expect("the call is the same");
}

#[test]
fn nvshmem_constant_changed() {
    let Some(headers) = Headers::nvshmem() else { return };
    let headers = headers.with("nvshmem_host.h", "NVSHMEM_CMP_NE = 1", "NVSHMEM_CMP_NE = 11").with(
        "nvshmem_host.h",
        "NVSHMEM_MAX_NAME_LEN 256",
        "NVSHMEM_MAX_NAME_LEN 128",
    );
    let expected = [
        "ROOT/nvshmem_host.h: NVSHMEM_MAX_NAME_LEN",
        "expected  256",
        "found     128",
        "ROOT/nvshmem_host.h: NVSHMEM_CMP_NE",
        "expected  1",
        "found     11",
    ];
    assert_eq!(headers.differences(), expected);
}

#[test]
fn nvshmem_field_changed() {
    let Some(headers) = Headers::nvshmem() else { return };
    let headers = headers.with("nvshmem_host.h", "  int myrank;", "  unsigned myrank;");
    let expected =
        ["ROOT/nvshmem_host.h: nvshmemx_uniqueid_args_v1.myrank", "expected  int myrank", "found     unsigned myrank"];
    assert_eq!(headers.differences(), expected);
    let Some(headers) = Headers::nvshmem() else { return };
    let headers = headers.with("nvshmem_host.h", "  int num_contexts;", "  int more;\n  int num_contexts;");
    let differences = headers.differences();
    let moved = ["ROOT/nvshmem_host.h: offset of nvshmem_team_config_t.num_contexts", "expected  4", "found     8"];
    assert!(differences.windows(3).any(|lines| lines == moved), "{differences:?}");
}

#[test]
fn nvshmem_padding_changed() {
    let Some(headers) = Headers::nvshmem() else { return };
    let headers = headers.with("nvshmem_host.h", "char padding[48]", "char padding[40]");
    let expected = ["ROOT/nvshmem_host.h: size of nvshmem_team_config_t", "expected  64", "found     56"];
    assert_eq!(headers.differences(), expected);
    let Some(headers) = Headers::nvshmem() else { return };
    let headers = headers.with("nvshmem_host.h", "char padding[48]", "unsigned char padding[48]");
    assert_eq!(headers.differences()[0], "ROOT/nvshmem_host.h: nvshmem_team_config_t.padding");
}

#[test]
fn nvshmem_function_missing() {
    let Some(headers) = Headers::nvshmem() else { return };
    let headers = headers.with("nvshmem_host.h", "void nvshmemx_flush(void);", "");
    assert_eq!(headers.differences(), ["nvshmemx_flush", "expected  as in NVSHMEM 3.8", "found     nothing"]);
    // Headers older than the bindings may lack functions.
    let bindings = headers.nvshmem_version(6).adapt().expect("nothing differs");
    assert!(!bindings.contains("fn nvshmemx_flush("), "{bindings}");
    assert!(bindings.contains("pub const NVSHMEM_VENDOR_MINOR_VERSION: u32 = 6;"), "{bindings}");
    assert!(bindings.contains("pub fn nvshmemx_flush_on_stream("), "{bindings}");
}

#[test]
fn nvshmem_structs_of_an_older_version() {
    let Some(headers) = Headers::nvshmem() else { return };
    let versions = |headers: Headers, name: &str| {
        let (new, old) = (format!("{name}_v2"), format!("{name}_v1"));
        headers.with("nvshmem_host.h", &format!("}} {new};"), &format!("}} {old};")).with(
            "nvshmem_host.h",
            &format!("typedef {new} "),
            &format!("typedef {old} "),
        )
    };
    let names = ["nvshmemx_init_args", "nvshmemx_init_attr", "nvshmem_team_config"];
    let headers = names
        .into_iter()
        .fold(headers, versions)
        .nvshmem_version(4)
        .with("nvshmem_host.h", "  int cuda_device_id;\n  char content[92];", "  char content[96];")
        .with("nvshmem_host.h", "  nvshmemx_team_uniqueid_t uniqueid;\n  char padding[48];", "  char padding[56];");
    let bindings = headers.adapt().expect("nothing differs");
    for text in [
        "pub type nvshmem_team_config_t = nvshmem_team_config_v1;",
        "pub content: [::std::os::raw::c_char; 96usize],",
        "size_of::<nvshmemx_init_attr_v1>() - 144usize",
        "align_of::<nvshmem_team_config_v1>() - 4usize",
        "offset_of!(nvshmem_team_config_v1, padding) - 8usize",
    ] {
        assert!(bindings.contains(text), "no {text} in {bindings}");
    }
    assert!(!bindings.contains("cuda_device_id") && !bindings.contains("_v2"), "{bindings}");
}

#[test]
fn nvshmem_struct_of_a_newer_version() {
    let Some(headers) = Headers::nvshmem() else { return };
    let headers =
        headers.nvshmem_version(9).with("nvshmem_host.h", "char padding[48]", "int more;\n  char padding[44]");
    let bindings = headers.adapt().expect("nothing differs");
    assert!(bindings.contains("pub padding: [::std::os::raw::c_char; 48usize],"), "{bindings}");
}
