//! Multicast objects at addresses that kernels use.

use super::functions::check;
use super::object::{Object, View};
use super::patience::{bounded_call, persist};
use super::pointer::{McPtr, Noted, Of};
use super::state::{Bound, Mapped, Multicast};
use super::votes::{MAP, decided};
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::thread::outside_host_functions;
use crate::cuda::memory::bracket::LentUses;
use crate::cuda::order::uses::Access;
use crate::cuda::vmm::functions as memory;
use crate::cuda::vmm::{self, AddressRange};
use crate::element::{Element, must_fit};
use crate::error::{Error, Result};
use crate::exchange::Vote;

const PART: &str = "Multicast::part";

impl Multicast<Bound> {
    /// Wraps `cuMemAddressReserve`, `cuMemMap` and `cuMemSetAccess`: maps the object for each device of this process, at addresses of its own. Where
    /// ranks have it in common, all of them call it, and it returns when all have bound and mapped theirs: what is written then comes to all.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, BindSource};
    /// # use gpucomm::cuda::vmm::PhysicalMemory;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let device = Device::new(0)?;
    /// let complete = Multicast::single_process(&[device], 1 << 20)?;
    /// let memory = PhysicalMemory::new(device, complete.properties().bytes())?;
    /// let mapped = complete.bind(BindSource::memory(&memory))?.map()?;
    /// # mapped.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Multicast`](Error::Multicast) where the fabric is in the wrong state, the driver out of memory, or another rank could not go on;
    /// [`Timeout`](Error::Timeout) where the driver does not return, or a rank does not come; [`Departed`](Error::Departed) where one has ended; what
    /// CUDA says. The object is gone then; where the [store](crate::exchange::Exchange#errors) fails while they vote, and others may have been
    /// told that all have mapped it, it is left behind with its memory.
    #[doc(alias("cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"))]
    pub fn map(self) -> Result<Multicast<Mapped>> {
        let mut object = self.into_object();
        let devices = object.devices.clone();
        let mapped = outside_host_functions(MAP)
            .and_then(|()| devices.into_iter().try_for_each(|device| map(&mut object, device)));
        let agreed = match &object.party {
            Some(party) => {
                let vote = party.ask(MAP, &mapped);
                // Where this rank does not know how it ended, the others may write already.
                object.shown = mapped.is_ok() && vote.as_ref().map_or(true, Vote::unanimous);
                mapped.and_then(|()| decided(MAP, &party.exchange, &vote?))
            }
            None => mapped,
        };
        match agreed {
            Ok(()) => Ok(Multicast::of(object)),
            Err(error) => {
                object.leave();
                Err(error)
            }
        }
    }
}

fn map(object: &mut Object, device: Device) -> Result<()> {
    const FUNCTION: &str = "cuMemMap";
    let (bytes, deadline) = (object.properties.bytes(), object.deadline());
    let range = AddressRange::reserve_aligned(bytes, object.steps.recommended.next_power_of_two())?;
    if range.bytes() != bytes {
        let expected = format!("as many bytes as there are addresses: {}", range.bytes());
        return Err(Error::argument(MAP, "bytes", expected, bytes));
    }
    let (function, raw, base) = (memory::map(FUNCTION)?, object.raw, range.base());
    let result = persist(&deadline, || {
        let nothing = std::sync::Arc::new(());
        // SAFETY: addresses of a reservation at which nothing is mapped, and a live object of so many bytes; where the call does not return,
        // both stay.
        let code = bounded_call(MAP, device, &deadline, nothing, move || unsafe { function(base, bytes, 0, raw, 0) })?;
        check(FUNCTION, device, code, || format!("{bytes} bytes"))
    });
    if let Err(error) = result {
        if let Error::Timeout { .. } = error {
            object.stuck = true;
            std::mem::forget(range);
        }
        return Err(error);
    }
    // From now on it is taken down with the object.
    object.views.push(View { device, range });
    let (set_access, access) = (memory::set_access("cuMemSetAccess")?, vmm::Access::read_write(device).descriptor());
    // SAFETY: what was mapped just now, and one description to read; where the call does not return, all of it stays.
    let set_access = move || unsafe { set_access(base, bytes, &raw const access, 1) };
    let code = bounded_call(MAP, device, &deadline, std::sync::Arc::new(()), set_access).inspect_err(|error| {
        object.stuck |= matches!(error, Error::Timeout { .. });
    })?;
    check_on(device.ordinal(), "cuMemSetAccess", memory::code(code))
}

impl Multicast<Mapped> {
    /// Where kernels on `device` find all of the object: as many elements as there is room for.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, BindSource};
    /// # use gpucomm::cuda::vmm::PhysicalMemory;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// # let device = Device::new(0)?;
    /// # let complete = Multicast::single_process(&[device], 1 << 20)?;
    /// # let memory = PhysicalMemory::new(device, complete.properties().bytes())?;
    /// # let mapped = complete.bind(BindSource::memory(&memory))?.map()?;
    /// let all = mapped.ptr::<f32>(device)?;
    /// assert_eq!(all.len() * size_of::<f32>(), mapped.properties().bytes());
    /// # mapped.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Multicast::part`].
    pub fn ptr<T: Element>(&self, device: Device) -> Result<McPtr<'_, T>> {
        must_fit::<T>();
        self.part(device, 0, self.properties().bytes() / size_of::<T>())
    }

    /// Where kernels on `device` find `len` elements from byte `at` on. For each device of this process, memory is bound to all of that; of
    /// devices of other processes, those see to it.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, BindSource};
    /// # use gpucomm::cuda::vmm::PhysicalMemory;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// # let device = Device::new(0)?;
    /// # let complete = Multicast::single_process(&[device], 4 << 20)?;
    /// let step = complete.granularity().minimum;
    /// let memory = PhysicalMemory::new(device, step)?;
    /// let mapped = complete.bind(BindSource::memory(&memory).at(step))?.map()?;
    /// assert_eq!(mapped.part::<f32>(device, step, 100)?.len(), 100);
    /// // Nothing is bound there.
    /// assert!(mapped.part::<f32>(device, 0, 100).is_err());
    /// # mapped.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a device that this process has not added, a place that is not aligned or lies outside, and
    /// where something of it is not bound.
    pub fn part<T: Element>(&self, device: Device, at: usize, len: usize) -> Result<McPtr<'_, T>> {
        must_fit::<T>();
        let object = self.object();
        let Some(view) = object.views.iter().find(|view| view.device == device) else {
            let expected = format!("a device that this process has added: {:?}", object.devices);
            return Err(Error::argument(PART, "device", expected, device));
        };
        if !at.is_multiple_of(align_of::<T>()) {
            return Err(Error::argument(PART, "at", format_args!("a multiple of {}", align_of::<T>()), at));
        }
        let all = object.properties.bytes();
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| at.checked_add(bytes)).filter(|end| *end <= all);
        let Some(end) = end else {
            let expected = format!("at most {} elements", all.saturating_sub(at) / size_of::<T>());
            return Err(Error::argument(PART, "length", expected, len));
        };
        for other in &object.devices {
            if let Some(missing) = first_missing(&object.bound_for(*other), at, end) {
                let expected = format!("bytes {at} to {end} to be bound for each device");
                let got = format!("nothing at {missing} for {other}");
                return Err(Error::argument(PART, "at", expected, got));
            }
        }
        let address = view.range.as_raw().wrapping_byte_add(at);
        Ok(McPtr::of(address, len, Of::Object(device, object)))
    }
}

/// The first byte of a range that is not bound.
fn first_missing(bound: &[(usize, usize)], from: usize, to: usize) -> Option<usize> {
    let mut next = from;
    for (begin, end) in bound {
        if (*begin..*end).contains(&next) {
            next = *end;
        }
    }
    (next < to).then_some(next)
}

impl Noted for Object {
    fn note<'s>(&'s self, uses: &mut LentUses<'s>, access: Access) {
        for binding in &self.bindings {
            uses.add_used(&*binding.memory, access);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::first_missing;

    #[test]
    fn what_is_bound_side_by_side_has_no_gap() {
        let bound = [(0, 4), (4, 6), (8, 12)];
        let find = |from, to| first_missing(&bound, from, to);
        assert_eq!((find(0, 6), find(1, 5), find(4, 4), find(9, 12)), (None, None, None, None));
        assert_eq!((find(0, 7), find(5, 9), find(6, 7), find(8, 13)), (Some(6), Some(6), Some(6), Some(12)));
        assert_eq!(first_missing(&[], 0, 1), Some(0));
    }
}
