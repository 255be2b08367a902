//! Why there is no multicast.

use std::fmt;

/// Why there is no multicast object, or why it does not do what was asked for: each is told by another code of the driver, or found before
/// it is asked, and calls for something else. Its text says for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The driver is older than CUDA 12.1, or the runtime (libcudart), which finds no functions of newer ones.
    DriverTooOld,
    /// The devices have no multicast (attribute 132 is 0).
    NotSupported,
    /// Nothing connects the devices that could spread what is written; or two ranks have added the same one, which the driver tells by the same
    /// code.
    NotConnected,
    /// The fabric manager, or the NVLink domain, is in a state in which it cannot be done (`CUDA_ERROR_ILLEGAL_STATE`, 401).
    FabricState,
    /// The switches have no room for one more object (`CUDA_ERROR_MULTICAST_RESOURCE_FULL`, 47).
    ResourcesExhausted,
    /// The driver is out of memory (`CUDA_ERROR_OUT_OF_MEMORY`, 2).
    OutOfMemory,
    /// Services that it needs were still starting, each time that it was asked (`CUDA_ERROR_SYSTEM_NOT_READY`, 802).
    NotReady,
    /// The object can be shared, and the memory cannot.
    NotShareable,
    /// Another rank could not go on: the error says which, and why.
    Peer,
}

impl Refusal {
    /// What to do about it.
    ///
    /// ```
    /// use gpucomm::cuda::multicast::Refusal;
    ///
    /// assert!(Refusal::DriverTooOld.advice().contains("12.1"));
    /// assert!(Refusal::FabricState.to_string().contains("nvidia-fabricmanager"));
    /// ```
    pub const fn advice(self) -> &'static str {
        match self {
            Self::DriverTooOld => "install a driver of CUDA 12.1 or newer, and run with libcudart 12.1 or newer",
            Self::NotSupported => {
                "go without: it takes GPUs from Hopper on, NVLink switches between them, and more than one GPU in sight"
            }
            Self::NotConnected => {
                "take devices of one NVLink domain, each by one rank only: `nvidia-smi topo -m` says what connects them, `nvidia-smi -q` their clique"
            }
            Self::FabricState => {
                "look at Fabric in `nvidia-smi -q`, and at the services nvidia-fabricmanager and, between hosts, nvidia-imex: start them anew, and then this program"
            }
            Self::ResourcesExhausted => {
                "close objects that are not needed, of other programs too: NCCL makes none with NCCL_NVLS_ENABLE=0, NVSHMEM none with NVSHMEM_DISABLE_NVLS=1"
            }
            Self::OutOfMemory => {
                "free memory of the device, or bind less: a binding takes memory of the driver beside what is bound"
            }
            Self::NotReady => "try again later: the driver daemons of the machine are still starting",
            Self::NotShareable => {
                "make the memory with the handle types of the object, by MemoryProperties::handle_types"
            }
            Self::Peer => {
                "see what that rank was refused; all ranks close the object, and make another one or go without"
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DriverTooOld => "driver or runtime have no multicast",
            Self::NotSupported => "the devices have no multicast",
            Self::NotConnected => "the devices are not connected",
            Self::FabricState => "the fabric is in the wrong state",
            Self::ResourcesExhausted => "the switches have no room left",
            Self::OutOfMemory => "out of memory",
            Self::NotReady => "the system is not ready",
            Self::NotShareable => "the memory cannot be shared",
            Self::Peer => "another rank could not go on",
        })?;
        write!(f, ": {}", self.advice())
    }
}
