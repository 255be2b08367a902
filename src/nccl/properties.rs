//! What NCCL says of a communicator.

use super::communicator::Communicator;
use super::rank::inner::Inner;
use super::raw::check;
use super::raw::outside::outside_of_host_functions;
use crate::error::Result;
use crate::sys;
use crate::version::{self, Version};

/// Wraps `ncclCommProperties_t`, which `nccl_device.h` declares, as far as NCCL 2.29.7 has it: what a communicator can do.
#[doc(alias = "ncclCommProperties_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommProperties {
    /// The number that NVML has for the device.
    pub nvml_device: i32,
    /// Whether kernels can call NCCL, which needs symmetric windows.
    pub device_api: bool,
    /// Whether switches reduce and multiply what is sent to windows.
    pub multimem: bool,
    /// Whether there are [one-sided operations](Communicator::put_signal).
    pub one_sided: bool,
    /// How kernels reach other hosts, and those of the same place in other hosts: an `ncclGinType_t`, of which 0 is none.
    pub gin_type: i32,
    /// See `gin_type`.
    pub railed_gin_type: i32,
    /// How many groups of ranks there are that map each other's memory.
    pub lsa_teams: usize,
}

/// The first version that says all of this.
const FIRST: Version = Version::new(2, 29, 7);

impl Inner {
    /// Wraps `ncclCommQueryProperties`; `None` where the library, or the headers, have none.
    pub(crate) fn ask_properties(&self, operation: &'static str) -> Result<Option<sys::gpucommNcclProperties_t>> {
        if !version::running_nccl().is_ok_and(|version| version >= FIRST) {
            return Ok(None);
        }
        let (_guard, handle) = self.begin_call(operation)?;
        // SAFETY: integers, of which zero is a value.
        let mut found: sys::gpucommNcclProperties_t = unsafe { std::mem::zeroed() };
        let result = self.inside(operation, || {
            // SAFETY: a live communicator during a visit, and a place for what is known of it.
            unsafe { sys::gpucommNcclProperties(handle, &raw mut found) }
        })?;
        // Where the headers of the build have none.
        if result == sys::ncclResult_t::ncclInvalidUsage && cfg!(not(nccl_ge_2_30)) {
            return Ok(None);
        }
        check::check("ncclCommQueryProperties", result).map(|()| Some(found))
    }
}

/// What it can do.
impl Communicator {
    /// Wraps `ncclCommQueryProperties`: what this communicator can do. Nobody else has to call it.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = match gpucomm::Device::new(0) { Ok(device) => device, Err(_) => return Ok(()) };
    /// # let clique = gpucomm::Clique::init_all(&[device])?;
    /// match clique.rank(0).properties() {
    ///     Ok(properties) => println!("one-sided operations: {}", properties.one_sided),
    ///     Err(error) => println!("nothing is known: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::Error::Unsupported) with NCCL before 2.29.7, and where this was built with older headers;
    /// [`InvalidUsage`](crate::Error::InvalidUsage) within a host function; why the communicator has ended; what NCCL says.
    #[doc(alias = "ncclCommQueryProperties")]
    pub fn properties(&self) -> Result<CommProperties> {
        const OPERATION: &str = "properties";
        outside_of_host_functions(OPERATION)?;
        version::needs(OPERATION, FIRST)?;
        let Some(found) = self.inner().ask_properties(OPERATION)? else {
            return Err(crate::Error::Unsupported {
                operation: OPERATION,
                needs: "to be built with headers of NCCL 2.29.7 or newer".into(),
            });
        };
        Ok(CommProperties {
            nvml_device: found.nvmlDev,
            device_api: found.deviceApiSupport != 0,
            multimem: found.multimemSupport != 0,
            one_sided: found.hostRmaSupport != 0,
            gin_type: found.ginType,
            railed_gin_type: found.railedGinType,
            lsa_teams: usize::try_from(found.nLsaTeams).unwrap_or(0),
        })
    }
}
