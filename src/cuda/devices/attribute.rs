//! Names of the properties of devices.

/// A property of a device, as [`Device::attribute`](crate::cuda::Device::attribute) reads it: the number of a
/// `cudaDeviceAttr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceAttribute(pub u32);

impl DeviceAttribute {
    /// `cudaDevAttrMaxThreadsPerBlock`: threads in a block, at most.
    pub const MAX_THREADS_PER_BLOCK: Self = Self(1);
    /// `cudaDevAttrMultiProcessorCount`: multiprocessors.
    pub const MULTIPROCESSOR_COUNT: Self = Self(16);
    /// `cudaDevAttrIntegrated`: 1 where the device shares the memory of the host.
    pub const INTEGRATED: Self = Self(18);
    /// `cudaDevAttrComputeMode`: 0 default, 2 prohibited, 3 one process only.
    pub const COMPUTE_MODE: Self = Self(20);
    /// `cudaDevAttrConcurrentKernels`: 1 where kernels of different streams may run at the same time.
    pub const CONCURRENT_KERNELS: Self = Self(31);
    /// `cudaDevAttrPciBusId`: the PCI bus.
    pub const PCI_BUS_ID: Self = Self(33);
    /// `cudaDevAttrPciDeviceId`: the PCI device on its bus.
    pub const PCI_DEVICE_ID: Self = Self(34);
    /// `cudaDevAttrGlobalMemoryBusWidth`: bits of the memory bus.
    pub const MEMORY_BUS_WIDTH: Self = Self(37);
    /// `cudaDevAttrL2CacheSize`: bytes of the L2 cache.
    pub const L2_CACHE_SIZE: Self = Self(38);
    /// `cudaDevAttrAsyncEngineCount`: copy engines.
    pub const ASYNC_ENGINE_COUNT: Self = Self(40);
    /// `cudaDevAttrUnifiedAddressing`: 1 where host and devices share one address space.
    pub const UNIFIED_ADDRESSING: Self = Self(41);
    /// `cudaDevAttrPciDomainId`: the PCI domain.
    pub const PCI_DOMAIN_ID: Self = Self(50);
    /// `cudaDevAttrComputeCapabilityMajor`: the compute capability before the dot.
    pub const COMPUTE_CAPABILITY_MAJOR: Self = Self(75);
    /// `cudaDevAttrComputeCapabilityMinor`: the compute capability after the dot.
    pub const COMPUTE_CAPABILITY_MINOR: Self = Self(76);
    /// `cudaDevAttrManagedMemory`: 1 where managed memory exists.
    pub const MANAGED_MEMORY: Self = Self(83);
    /// `cudaDevAttrPageableMemoryAccess`: 1 where the device can read ordinary memory of the host.
    pub const PAGEABLE_MEMORY_ACCESS: Self = Self(88);
    /// `cudaDevAttrMemoryPoolsSupported`: 1 where memory can be allocated in stream order.
    pub const MEMORY_POOLS_SUPPORTED: Self = Self(115);
    /// `cudaDevAttrGPUDirectRDMASupported`: 1 where network cards can reach device memory.
    pub const GPU_DIRECT_RDMA_SUPPORTED: Self = Self(116);
}

/// A property of the way from one device to another, as [`Device::p2p_attribute`](crate::cuda::Device::p2p_attribute) reads
/// it: the number of a `cudaDeviceP2PAttr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct P2pAttribute(pub u32);

impl P2pAttribute {
    /// `cudaDevP2PAttrPerformanceRank`: how fast the way is; 0 is the fastest.
    pub const PERFORMANCE_RANK: Self = Self(1);
    /// `cudaDevP2PAttrAccessSupported`: 1 where one can access the memory of the other.
    pub const ACCESS_SUPPORTED: Self = Self(2);
    /// `cudaDevP2PAttrNativeAtomicSupported`: 1 where atomics work over the way.
    pub const NATIVE_ATOMIC_SUPPORTED: Self = Self(3);
    /// `cudaDevP2PAttrCudaArrayAccessSupported`: 1 where CUDA arrays can be accessed.
    pub const CUDA_ARRAY_ACCESS_SUPPORTED: Self = Self(4);
}
