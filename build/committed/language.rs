//! The language in which the compiler reads the headers.

/// C for CUDA and NCCL. C++17 for NVSHMEM, whose headers are written for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C,
    Cxx17,
}

impl Language {
    /// The extension of a source file.
    pub fn extension(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cxx17 => "cpp",
        }
    }

    /// Defines `gpucomm_same(A, B)`, which is 1 if the two types are the same. It ignores `noexcept`, which does not change
    /// how a function is called.
    pub fn same(self) -> &'static str {
        match self {
            Self::C => "#define gpucomm_same(...) __builtin_types_compatible_p(__VA_ARGS__)\n",
            Self::Cxx17 => {
                "\
template <typename A, typename B> struct gpucomm_is_same { enum { value = 0 }; };
template <typename A> struct gpucomm_is_same<A, A> { enum { value = 1 }; };
template <typename R, typename... A> struct gpucomm_is_same<R (*)(A...) noexcept, R (*)(A...)> { enum { value = 1 }; };
#define gpucomm_same(...) gpucomm_is_same<__VA_ARGS__>::value
"
            }
        }
    }

    /// The error for the user if the compiler `program` cannot be started.
    pub fn no_compiler(self, program: &str, error: &std::io::Error) -> String {
        let (needed, fix) = match self {
            Self::C => ("a C compiler is needed", "install gcc or clang, or set CC"),
            Self::Cxx17 => (
                "a C++ compiler is needed for the headers of NVSHMEM",
                "install g++ or clang++, set CXX, or use --features gpucomm/bindgen, which needs libclang instead",
            ),
        };
        format!("error: {needed}: failed to find tool {program:?}: {error}; {fix}")
    }
}
