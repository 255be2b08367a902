//! The states of a multicast object.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::object::Object;
use super::properties::ObjectProperties;
use crate::cuda::devices::device::Device;
use crate::cuda::vmm::Granularity;
use crate::error::Result;

/// A multicast object, whose type says how far it is; see the [module](super).
///
/// | state | what it can do | next |
/// |---|---|---|
/// | [`Building`] | take devices; be exported and imported | [`complete`](Multicast::complete), [`agree`](Multicast::agree) |
/// | [`Complete`] | nothing yet | [`bind`](Multicast::bind), [`bind_all`](Multicast::bind_all) |
/// | [`Bound`] | have more bound, and unbound | [`map`](Multicast::map) |
/// | [`Mapped`] | the same; give its [address](Multicast::ptr) to kernels | |
///
/// Dropped in whatever state, it is taken down when the devices are done with it, on a thread of this crate: unmapped, unbound, released, and only
/// then is the memory let go of. [`Multicast::close`] does the same before it returns, and tells what went wrong.
///
/// Where ranks have mapped the object in common, others may write to the memory of this one until they say that they are done, and a destructor
/// cannot ask them. Dropped then, it is *left behind*: object and memory stay until the process ends. Only [`Multicast::close`], by all ranks,
/// gives them back. Dropped before it is mapped, it is taken down, and the other ranks are not told: they wait for this one until their
/// timeout, unless it comes to another vote of theirs, which they take for its no.
#[doc(alias = "MulticastObject")]
pub struct Multicast<S: Stage> {
    /// Taken by what comes next, and by the destructor.
    object: Option<Box<Object>>,
    state: PhantomData<S>,
}

/// A state of a [`Multicast`].
pub trait Stage: sealed::Sealed {
    #[doc(hidden)]
    const NAME: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident: $text:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $name {}

        impl sealed::Sealed for $name {}

        impl Stage for $name {
            const NAME: &'static str = $text;
        }
    )*};
}

states! {
    /// Devices are missing: whatever binds or maps would block.
    Building: "building";
    /// All devices were added, by whatever process.
    Complete: "complete";
    /// Memory of this process is bound.
    Bound: "bound";
    /// Kernels of this process can use it.
    Mapped: "mapped";
}

impl<S: Stage> Multicast<S> {
    pub(super) fn of(object: Box<Object>) -> Self {
        Self { object: Some(object), state: PhantomData }
    }

    /// The object, which goes on to another state.
    pub(super) fn into_object(mut self) -> Box<Object> {
        self.object.take().expect("it is taken once")
    }

    pub(super) fn object(&self) -> &Object {
        self.object.as_ref().expect("it is taken with this")
    }

    pub(super) fn object_mut(&mut self) -> &mut Object {
        self.object.as_mut().expect("it is taken with this")
    }

    /// What it was made like.
    pub fn properties(&self) -> &ObjectProperties {
        &self.object().properties
    }

    /// The steps of offsets and sizes of what is bound.
    pub fn granularity(&self) -> Granularity {
        self.object().steps
    }

    /// The devices that this process has added.
    pub fn devices(&self) -> &[Device] {
        &self.object().devices
    }

    /// The `CUmemGenericAllocationHandle`, for calls of other libraries; it is released with this. What they bind, they unbind before.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::Multicast;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let multicast = Multicast::single_process(&Device::all()?, 1 << 20)?;
    /// println!("{:#x}, for calls of the driver", multicast.as_raw());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> u64 {
        self.object().raw
    }

    /// The same, whose calls wait for driver and devices for `timeout` at most; otherwise that of the exchange, or
    /// [`default_timeout`](crate::default_timeout). Votes of ranks wait as the exchange does.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::Multicast;
    /// # use gpucomm::Device;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let multicast = Multicast::single_process(&Device::all()?, 1 << 20)?.with_timeout(Duration::from_secs(10));
    /// # drop(multicast);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.object_mut().timeout = Some(timeout);
        self
    }

    /// Wraps `cuMemUnmap`, `cuMulticastUnbind` and `cuMemRelease`: waits until the devices are done, and takes the object down. Where ranks have
    /// mapped it in common, all of them call it, and each says whether it is done: nobody takes away what others may still write to. Where
    /// they have it in common and have not mapped it, the others are told that this one never will.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::Multicast;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let multicast = Multicast::single_process(&Device::all()?, 1 << 20)?;
    /// multicast.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout) where devices are not done, or the driver does not return: it is taken down later then. What CUDA says:
    /// the rest of it was done all the same, and what could not be unmapped or unbound stays.
    /// [`InvalidUsage`](crate::Error::InvalidUsage) within a host function of a stream, and after a call that did not return.
    ///
    /// Where ranks have mapped it in common: [`Departed`](crate::Error::Departed) where some have ended, as the exchange says, and nobody else is left
    /// who writes: it is taken down all the same. Where one is not done or has not come ([`Timeout`](crate::Error::Timeout),
    /// [`Multicast`](crate::Error::Multicast) with [`Refusal::Peer`](super::Refusal::Peer)), or this one is not, it is left behind on all
    /// ranks, with its memory, until their processes end.
    #[doc(alias("cuMemUnmap", "cuMulticastUnbind", "cuMemRelease"))]
    pub fn close(self) -> Result<()> {
        self.into_object().close("Multicast::close")
    }
}

impl<S: Stage> Drop for Multicast<S> {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            object.leave();
        }
    }
}

impl<S: Stage> fmt::Debug for Multicast<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(object) = &self.object else { return f.write_str("Multicast") };
        f.debug_struct("Multicast")
            .field("state", &format_args!("{}", S::NAME))
            .field("properties", &object.properties)
            .field("devices", &object.devices)
            .field("bindings", &object.bindings.len())
            .finish_non_exhaustive()
    }
}
