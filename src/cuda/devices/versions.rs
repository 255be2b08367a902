//! Versions of what is installed.

use super::check::check;
use super::thread::outside_host_functions;
use crate::error::Result;
use crate::sys;

/// Wraps `cudaDriverGetVersion`: the newest CUDA version that the driver supports, 13000 for 13.0; 0 without a driver.
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::cuda::{driver_version, runtime_version};
///
/// if driver_version()? < runtime_version()? {
///     eprintln!("the driver is older than the CUDA runtime");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// What CUDA says.
#[doc(alias = "cudaDriverGetVersion")]
pub fn driver_version() -> Result<i32> {
    outside_host_functions("driver_version")?;
    let mut version = 0;
    // SAFETY: writes one integer to the address given.
    check("cudaDriverGetVersion", unsafe { sys::cudaDriverGetVersion(&raw mut version) })?;
    Ok(version)
}

/// Wraps `cudaRuntimeGetVersion`: the version of the CUDA runtime, 13000 for 13.0.
///
/// ```
/// # use gpucomm::Version;
/// # fn main() -> gpucomm::Result<()> {
/// println!("CUDA {}", Version::from_cuda(gpucomm::cuda::runtime_version()? as u32));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// What CUDA says.
#[doc(alias = "cudaRuntimeGetVersion")]
pub fn runtime_version() -> Result<i32> {
    outside_host_functions("runtime_version")?;
    let mut version = 0;
    // SAFETY: writes one integer to the address given.
    check("cudaRuntimeGetVersion", unsafe { sys::cudaRuntimeGetVersion(&raw mut version) })?;
    Ok(version)
}
