//! Versions: those that the program was built for, and those that are running.

use std::fmt;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::sys;

/// A version of NCCL, of NVSHMEM or of CUDA.
///
/// ```
/// use gpucomm::Version;
///
/// let nccl = Version::from_nccl(22809);
/// assert_eq!(nccl, Version::new(2, 28, 9));
/// assert!(nccl >= Version::new(2, 27, 0));
/// assert_eq!(nccl.to_string(), "2.28.9");
/// assert_eq!(Version::from_nvshmem(30205), Version::new(3, 2, 5));
/// assert_eq!(Version::from_cuda(13000).to_string(), "13.0");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
    /// The patch; 0 for CUDA, whose codes have none.
    pub patch: u32,
}

impl Version {
    /// A version of three numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// From the code that `ncclGetVersion` gives: `MAJOR * 10000 + MINOR * 100 + PATCH`, up to 2.8 `MAJOR * 1000 + …`.
    pub const fn from_nccl(code: u32) -> Self {
        let unit = if code < 10_000 { 1_000 } else { 10_000 };
        Self::new(code / unit, code % unit / 100, code % 100)
    }

    /// From `MAJOR * 10000 + MINOR * 100 + PATCH`, which `DEP_GPUCOMM_NVSHMEM_VERSION` is.
    pub const fn from_nvshmem(code: u32) -> Self {
        Self::new(code / 10_000, code % 10_000 / 100, code % 100)
    }

    /// From the code that `cudaRuntimeGetVersion` and `cudaDriverGetVersion` give: `MAJOR * 1000 + MINOR * 10`.
    pub const fn from_cuda(code: u32) -> Self {
        Self::new(code / 1_000, code % 1_000 / 10, 0)
    }
}

impl fmt::Display for Version {
    /// A patch of 0 is left out: `2.28.9`, `13.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch == 0 { Ok(()) } else { write!(f, ".{}", self.patch) }
    }
}

/// What this program was built with. Directories are those of the machine that built it; with the emulator, and on
/// docs.rs, there are none.
///
/// ```
/// use gpucomm::version::{built_cuda, built_nccl};
///
/// for (name, build) in [("CUDA", built_cuda()), ("NCCL", built_nccl())] {
///     println!("{name} {}, from {}", build.version, build.origin.unwrap_or("nowhere"));
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// The version of the headers.
    pub version: Version,
    /// The directory of the headers.
    pub include_dir: Option<&'static str>,
    /// The library that was linked.
    pub library: Option<&'static str>,
    /// What named the installation, such as `NCCL_HOME` or `pkg-config nccl`.
    pub origin: Option<&'static str>,
}

/// The CUDA runtime that this program was built for.
///
/// ```
/// println!("made for CUDA {}", gpucomm::version::built_cuda().version);
/// ```
pub const fn built_cuda() -> Build {
    Build {
        version: Version::from_cuda(number(env!("GPUCOMM_BUILT_CUDART"))),
        include_dir: option_env!("GPUCOMM_CUDA_INCLUDE_DIR"),
        library: option_env!("GPUCOMM_CUDA_LIBRARY"),
        origin: option_env!("GPUCOMM_CUDA_ORIGIN"),
    }
}

/// The NCCL that this program was built for.
///
/// ```
/// println!("made for NCCL {}", gpucomm::version::built_nccl().version);
/// ```
#[cfg(feature = "nccl")]
pub const fn built_nccl() -> Build {
    Build {
        version: Version::from_nccl(number(env!("GPUCOMM_BUILT_NCCL"))),
        include_dir: option_env!("GPUCOMM_NCCL_INCLUDE_DIR"),
        library: option_env!("GPUCOMM_NCCL_LIBRARY"),
        origin: option_env!("GPUCOMM_NCCL_ORIGIN"),
    }
}

/// The NVSHMEM that this program was built for.
///
/// ```
/// println!("made for NVSHMEM {}", gpucomm::version::built_nvshmem().version);
/// ```
#[cfg(feature = "nvshmem")]
pub const fn built_nvshmem() -> Build {
    Build {
        version: Version::from_nvshmem(number(env!("GPUCOMM_BUILT_NVSHMEM"))),
        include_dir: option_env!("GPUCOMM_NVSHMEM_INCLUDE_DIR"),
        library: option_env!("GPUCOMM_NVSHMEM_LIBRARY"),
        origin: option_env!("GPUCOMM_NVSHMEM_ORIGIN"),
    }
}

/// The digits of `text`, which the build script wrote.
const fn number(text: &str) -> u32 {
    let digits = text.as_bytes();
    let (mut value, mut at) = (0, 0);
    while at < digits.len() {
        value = value * 10 + (digits[at] - b'0') as u32;
        at += 1;
    }
    value
}

/// Wraps `ncclGetVersion`: the NCCL that is running; asked once.
#[cfg(feature = "nccl")]
pub(crate) fn running_nccl() -> Result<Version> {
    static RUNNING: OnceLock<Version> = OnceLock::new();
    if let Some(version) = RUNNING.get() {
        return Ok(*version);
    }
    let mut code = 0;
    // SAFETY: `code` is a valid place for one int, and the call has no other condition.
    let result = unsafe { sys::ncclGetVersion(&mut code) };
    if result != sys::ncclResult_t::ncclSuccess {
        return Err(Error::Nccl {
            operation: "ncclGetVersion",
            code: crate::codes::NcclCode(result.0 as i32),
            message: "the version cannot be read".into(),
            last: None,
        });
    }
    Ok(*RUNNING.get_or_init(|| Version::from_nccl(code.unsigned_abs())))
}

/// Wraps `cudaRuntimeGetVersion`: the CUDA runtime that is running.
pub(crate) fn running_cuda() -> Result<Version> {
    let mut code = 0;
    // SAFETY: `code` is a valid place for one int, and the call has no other condition.
    let error = unsafe { sys::cudaRuntimeGetVersion(&mut code) };
    if error != sys::cudaError::cudaSuccess {
        return Err(Error::Cuda {
            operation: "cudaRuntimeGetVersion",
            code: crate::codes::CudaCode(error.0 as i32),
            name: "unknown".into(),
            message: "the version cannot be read".into(),
        });
    }
    Ok(Version::from_cuda(code.unsigned_abs()))
}

/// Wraps `nvshmemx_vendor_get_version_info`: the NVSHMEM that is running. It need not be started for that.
///
/// ```
/// match gpucomm::version::running_nvshmem() {
///     Ok(version) => println!("NVSHMEM {version}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
///
/// # Errors
/// [`Error::InvalidUsage`] where it says what is no version.
#[doc(alias = "nvshmemx_vendor_get_version_info")]
#[cfg(feature = "nvshmem")]
pub fn running_nvshmem() -> Result<Version> {
    const OPERATION: &str = "nvshmemx_vendor_get_version_info";
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the three are valid places for one int each, and the call has no other condition.
    unsafe { sys::nvshmemx_vendor_get_version_info(&mut major, &mut minor, &mut patch) };
    match (u32::try_from(major), u32::try_from(minor), u32::try_from(patch)) {
        (Ok(major), Ok(minor), Ok(patch)) if major > 0 => Ok(Version::new(major, minor, patch)),
        _ => Err(Error::InvalidUsage { operation: OPERATION, reason: format!("it says {major}.{minor}.{patch}") }),
    }
}

/// Whether the running NVSHMEM has all that this program was built for; asked once. One that is older in the minor number
/// has not: [`Error::LibraryTooOld`]. The emulator refuses none.
///
/// ```
/// if let Err(error) = gpucomm::version::check_nvshmem() {
///     println!("NVSHMEM cannot be used: {error}");
/// }
/// ```
///
/// # Errors
/// [`Error::LibraryTooOld`]; as [`running_nvshmem`].
#[cfg(feature = "nvshmem")]
pub fn check_nvshmem() -> Result<()> {
    static CHECKED: OnceLock<Result<()>> = OnceLock::new();
    CHECKED
        .get_or_init(|| {
            let (built, running) = (built_nvshmem().version, running_nvshmem()?);
            let enough =
                sys::behavior::HAS_OLDER_VERSIONS || (built.major, built.minor) <= (running.major, running.minor);
            sufficient("check_nvshmem", "NVSHMEM", built, running, enough)
        })
        .clone()
}

/// Whether the running NCCL has all that this program was built for; asked once. One that is older in the minor number
/// has not, and no communicator is made with it: [`Error::LibraryTooOld`]. The emulator is built for the newest version that it can
/// stand for, and refuses none: there, what is newer than the one that it stands for is an error by itself, [`Error::Unsupported`].
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// // Before anything is started: is what is installed here new enough?
/// gpucomm::version::check_nccl()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::LibraryTooOld`]; what NCCL says.
#[cfg(feature = "nccl")]
pub fn check_nccl() -> Result<()> {
    static CHECKED: OnceLock<Result<()>> = OnceLock::new();
    CHECKED
        .get_or_init(|| {
            let (built, running) = (built_nccl().version, running_nccl()?);
            let enough =
                sys::behavior::HAS_OLDER_VERSIONS || (built.major, built.minor) <= (running.major, running.minor);
            sufficient("check_nccl", "NCCL", built, running, enough)
        })
        .clone()
}

/// Whether the running NCCL is of version `first`, with which came what `operation` needs; an [`Error::Unsupported`] where it is not. A
/// library may lack what the headers have: by the patch, or because it is the emulator, which stands for many versions. What the headers
/// lack does not compile.
#[cfg(feature = "nccl")]
pub(crate) fn needs(operation: &'static str, first: Version) -> Result<()> {
    let running = running_nccl()?;
    if running >= first {
        return Ok(());
    }
    let how = sys::behavior::OTHER_NCCL;
    Err(Error::Unsupported { operation, needs: format!("NCCL {first} or newer; {running} is running{how}") })
}

/// Whether the running CUDA runtime is of the major version that this program was built for, or newer; asked once. With an
/// older one no device is to be had: [`Error::LibraryTooOld`].
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// // Whoever asks for a device is told as well.
/// gpucomm::version::check_cuda()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::LibraryTooOld`]; what CUDA says.
pub fn check_cuda() -> Result<()> {
    static CHECKED: OnceLock<Result<()>> = OnceLock::new();
    CHECKED
        .get_or_init(|| {
            let (built, running) = (built_cuda().version, running_cuda()?);
            sufficient("check_cuda", "CUDA runtime", built, running, built.major <= running.major)
        })
        .clone()
}

fn sufficient(
    operation: &'static str,
    library: &'static str,
    built: Version,
    running: Version,
    enough: bool,
) -> Result<()> {
    if enough {
        return Ok(());
    }
    Err(Error::LibraryTooOld { operation, library, built: built.to_string(), running: running.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        assert_eq!(Version::from_nccl(22809), Version::new(2, 28, 9));
        assert_eq!(Version::from_nccl(21903), Version::new(2, 19, 3));
        assert_eq!(Version::from_nccl(2708), Version::new(2, 7, 8));
        assert_eq!(Version::from_nvshmem(30405), Version::new(3, 4, 5));
        assert_eq!(Version::from_cuda(13000), Version::new(13, 0, 0));
        assert_eq!(Version::from_cuda(12080), Version::new(12, 8, 0));
    }

    #[test]
    fn order_and_text() {
        assert!(Version::new(2, 9, 9) < Version::new(2, 28, 3));
        assert!(Version::new(2, 28, 9) < Version::new(3, 0, 0));
        assert_eq!(Version::new(2, 28, 9).to_string(), "2.28.9");
        assert_eq!(Version::from_cuda(12010).to_string(), "12.1");
    }

    #[test]
    #[cfg(feature = "nccl")]
    fn what_is_newer_is_refused_by_name() {
        let running = running_nccl().expect("there is one");
        assert!(needs("grow", running).is_ok());
        let newer = Version { patch: running.patch + 1, ..running };
        let error = needs("grow", newer).unwrap_err();
        assert!(matches!(error, Error::Unsupported { operation: "grow", .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("needs NCCL {newer} or newer")) && text.contains(&format!("{running} is")),
            "{text}"
        );
    }

    #[test]
    fn too_old_names_both() {
        let error =
            sufficient("check_nccl", "NCCL", Version::new(2, 28, 9), Version::new(2, 27, 7), false).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("NCCL 2.27.7 is running") && text.contains("built for 2.28.9"), "{text}");
    }
}
