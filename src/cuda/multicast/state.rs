//! The states of a multicast object.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::object::Object;
use super::properties::Properties;
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
/// Dropped in whatever state, it is taken down when the devices are done with it: unmapped, unbound, released, and only then is the memory let
/// go of. [`Multicast::close`] does the same at once, and tells what went wrong; where ranks have the object in common, it alone waits until the
/// others no longer write to what this one takes away.
pub struct Multicast<S: State> {
    /// Taken by what comes next, and by the destructor.
    object: Option<Box<Object>>,
    state: PhantomData<S>,
}

/// A state of a [`Multicast`].
pub trait State: sealed::Sealed {
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

        impl State for $name {
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

impl<S: State> Multicast<S> {
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
    pub fn properties(&self) -> &Properties {
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

    /// The same, whose calls wait for `timeout` at most; otherwise that of the exchange, or [`default_timeout`](crate::default_timeout).
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::Multicast;
    /// # use gpucomm::Device;
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let multicast = Multicast::single_process(&Device::all()?, 1 << 20)?.within(Duration::from_secs(10));
    /// # drop(multicast);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.object_mut().timeout = Some(timeout);
        self
    }

    /// Wraps `cuMemUnmap`, `cuMulticastUnbind` and `cuMemRelease`: waits until the devices are done, and takes the object down. Where ranks have
    /// mapped it in common, all of them call it, as nobody may take away what others still write to: each waits for the others before it
    /// unmaps.
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
    /// [`Timeout`](crate::Error::Timeout) where devices are not done: it is taken down later then. Where other ranks have not come, said no or
    /// ended ([`Timeout`](crate::Error::Timeout), [`Multicast`](crate::Error::Multicast), [`Gone`](crate::Error::Gone)), and what CUDA
    /// says: the rest of it was done all the same.
    pub fn close(self) -> Result<()> {
        self.into_object().close("Multicast::close")
    }
}

impl<S: State> Drop for Multicast<S> {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            object.leave();
        }
    }
}

impl<S: State> fmt::Debug for Multicast<S> {
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
