//! Ways from one device to another.

use super::attribute::P2pAttribute;
use super::check::{check, check_on};
use super::device::Device;
use super::thread::outside_host_functions;
use crate::error::Result;
use crate::sys;

impl Device {
    /// Wraps `cudaDeviceCanAccessPeer`: whether kernels on this device could read and write the memory of `peer`.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let all = Device::all()?;
    /// for (a, b) in all.iter().zip(&all[1..]) {
    ///     if !a.can_access_peer(*b)? {
    ///         println!("copies between {a} and {b} go through the host");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaDeviceCanAccessPeer")]
    pub fn can_access_peer(self, peer: Self) -> Result<bool> {
        outside_host_functions("Device::can_access_peer")?;
        let mut can = 0;
        // SAFETY: writes one integer to the address given.
        check_on(self.0, "cudaDeviceCanAccessPeer", unsafe {
            sys::cudaDeviceCanAccessPeer(&raw mut can, self.0, peer.0)
        })?;
        Ok(can != 0)
    }

    /// Wraps `cudaDeviceEnablePeerAccess`: lets kernels on this device read and write memory of `peer` that was
    /// allocated without a pool. No error if it was enabled before.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let all = Device::all()?;
    /// if let [a, b, ..] = all[..]
    ///     && a.can_access_peer(b)?
    /// {
    ///     // Kernels on `a` may use memory of `b` now, whoever launches them.
    ///     a.enable_peer_access(b)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says, for devices that cannot reach each other among others.
    #[doc(alias = "cudaDeviceEnablePeerAccess")]
    pub fn enable_peer_access(self, peer: Self) -> Result<()> {
        let _current = self.make_current("Device::enable_peer_access")?;
        // SAFETY: takes two integers; the flags must be 0.
        let code = unsafe { sys::cudaDeviceEnablePeerAccess(peer.0, 0) };
        match check("cudaDeviceEnablePeerAccess", code) {
            Err(_) if code == sys::cudaError::cudaErrorPeerAccessAlreadyEnabled => Ok(()),
            other => other,
        }
    }

    /// Wraps `cudaDeviceGetP2PAttribute`: one property of the way from this device to `peer`.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::P2pAttribute;
    /// # fn main() -> gpucomm::Result<()> {
    /// let all = Device::all()?;
    /// if let [a, b, ..] = all[..] {
    ///     println!("{a} to {b}: rank {} of the ways", a.p2p_attribute(b, P2pAttribute::PERFORMANCE_RANK)?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaDeviceGetP2PAttribute")]
    pub fn p2p_attribute(self, peer: Self, attribute: P2pAttribute) -> Result<i32> {
        outside_host_functions("Device::p2p_attribute")?;
        let mut value = 0;
        // SAFETY: writes one integer to the address given; an unknown attribute is refused.
        let code = unsafe {
            let attribute = sys::cudaDeviceP2PAttr(attribute.0 as _);
            sys::cudaDeviceGetP2PAttribute(&raw mut value, attribute, self.0, peer.0)
        };
        check_on(self.0, "cudaDeviceGetP2PAttribute", code)?;
        Ok(value)
    }
}
