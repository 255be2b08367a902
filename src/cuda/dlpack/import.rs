//! Tensors of others as buffers.

use std::fmt::Display;

use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDeviceType};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};

use super::typed::Typed;
use crate::cuda::devices::device::Device;
use crate::cuda::memory::buffers::buffer::DeviceBuffer;
use crate::error::{Error, Result};

const OPERATION: &str = "DeviceBuffer::from_dlpack";

impl<T: Typed> DeviceBuffer<T> {
    /// Wraps `DLManagedTensor` and `DLManagedTensorVersioned`: the elements of a tensor on a device of CUDA (`kDLCUDA`) as a buffer like any other, in
    /// the order in which they lie there. Shape and strides are checked, and gone then.
    ///
    /// The deleter of the tensor is called once: when the last buffer over this memory is gone and the device is done with it, as the owner of
    /// [`DeviceBuffer::from_raw_parts`] is dropped, by whichever thread that says; or at once, where this fails.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let theirs = DeviceBuffer::from_slice(&stream, &[7u8; 12])?.into_dlpack::<dlpark::ffi::DLManagedTensor>(&stream, &[3, 4])?.into_raw();
    /// // A capsule of Python holds such a pointer, and is told that it is taken.
    /// let raw: *mut dlpark::ffi::DLManagedTensor = theirs;
    /// // SAFETY: it belongs to us now, and its shape stays as it is.
    /// let tensor = unsafe { dlpark::legacy::Dlpack::from_raw(raw) }.expect("a tensor");
    /// // SAFETY: nobody else uses it, and the stream is behind what wrote it.
    /// let x = unsafe { DeviceBuffer::<u8>::from_dlpack(tensor)? };
    /// assert_eq!(x.to_vec(&stream)?, [7; 12]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// What the tensor says is so, and as [`DeviceBuffer::from_raw_parts`]: the memory stays allocated until the deleter is called, and for ever where there is none; what others do
    /// with it, those who made the tensor among them, is ordered by the caller: before the first use here, and between the uses as long as there are
    /// buffers. In Python `__dlpack__(stream=…)` orders the first of that, for the stream that it is given.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a tensor that is not whole, is read-only, has elements of another type than `T`, strides with gaps or another order than that
    /// of rows, or lies elsewhere than on a device of CUDA; those of [`DeviceBuffer::from_raw_parts`].
    pub unsafe fn from_dlpack<M: ManagedTensorBase + 'static>(tensor: Managed<M>) -> Result<Self> {
        let (device, ptr, len) = {
            let view = tensor.validate().map_err(|error| wrong("tensor", &"one that is whole", &error))?;
            if tensor.flags().contains(DlpackFlags::READ_ONLY) {
                return Err(wrong("tensor", &"one that may be written to", &"one to read only"));
            }
            if view.dtype() != T::TYPE {
                let expected = format!("elements of type {}", named(T::TYPE));
                return Err(wrong("tensor", &expected, &format_args!("elements of type {}", named(view.dtype()))));
            }
            let (kind, number) = (view.device().device_type, view.device().device_id);
            if kind != DLDeviceType::CUDA {
                let got = format!("memory of device type {}", kind.0);
                return Err(wrong(
                    "tensor",
                    &format_args!("memory of CUDA (device type {})", DLDeviceType::CUDA.0),
                    &got,
                ));
            }
            let number = usize::try_from(number).map_err(|_| wrong("device", &"a number", &number))?;
            if !is_contiguous(view.shape(), view.strides()) {
                let got = format!("strides {:?} of shape {:?}", view.strides().unwrap_or_default(), view.shape());
                return Err(wrong("tensor", &"elements one behind the other", &got));
            }
            let (data, offset) = (view.data_ptr().cast_mut(), usize::try_from(view.byte_offset()).ok());
            // The sum must not wrap around to memory before the data.
            let offset = offset.filter(|offset| data.addr().checked_add(*offset).is_some());
            let offset = offset.ok_or_else(|| wrong("byte offset", &"one within memory", &view.byte_offset()))?;
            let ptr = data.wrapping_byte_add(offset);
            (Device::new(number)?, ptr, view.num_elements())
        };
        // SAFETY: as the caller promises; the tensor is the owner of the memory, and dropped, it calls the deleter.
        unsafe { Self::from_raw_parts(device, ptr, len, tensor) }
    }
}

fn wrong(what: &'static str, expected: &dyn Display, got: &dyn Display) -> Error {
    Error::argument(OPERATION, what, expected, got)
}

/// Whether elements of this shape lie one behind the other, row by row. The stride of an axis of one element means nothing: some libraries write
/// whatever they like there.
fn is_contiguous(shape: &[i64], strides: Option<&[i64]>) -> bool {
    let Some(strides) = strides else { return true };
    let mut expected = 1i64;
    shape.contains(&0)
        || shape.iter().zip(strides).rev().filter(|(len, _)| **len != 1).all(|(len, stride)| {
            let right = *stride == expected;
            expected = expected.saturating_mul(*len);
            right
        })
}

/// A type of elements, by a name as NumPy has it.
fn named(of: DLDataType) -> String {
    let bits = of.bits;
    let name = match of.code {
        DLDataTypeCode::INT => format!("int{bits}"),
        DLDataTypeCode::UINT => format!("uint{bits}"),
        DLDataTypeCode::FLOAT => format!("float{bits}"),
        DLDataTypeCode::BFLOAT => format!("bfloat{bits}"),
        DLDataTypeCode::COMPLEX => format!("complex{bits}"),
        DLDataTypeCode::BOOL => "bool".to_owned(),
        DLDataTypeCode::FLOAT8_E4M3FN => "float8_e4m3fn".to_owned(),
        DLDataTypeCode::FLOAT8_E5M2 => "float8_e5m2".to_owned(),
        DLDataTypeCode(code) => format!("{code}, as DLPack counts them, of {bits} bits"),
    };
    if of.lanes == 1 { name } else { format!("{name} in {} lanes", of.lanes) }
}

#[cfg(test)]
mod tests {
    use super::is_contiguous;

    #[test]
    fn strides_without_gaps() {
        assert!(is_contiguous(&[2, 3, 4], None));
        assert!(is_contiguous(&[], Some(&[])));
        assert!(is_contiguous(&[2, 3, 4], Some(&[12, 4, 1])));
        // Of one element, and of none.
        assert!(is_contiguous(&[1, 3, 1, 4, 1], Some(&[1, 4, 99, 1, -7])));
        assert!(is_contiguous(&[5, 0], Some(&[3, 3])));
        assert!(!is_contiguous(&[3, 4], Some(&[1, 3])));
        assert!(!is_contiguous(&[3, 4], Some(&[8, 1])));
        assert!(!is_contiguous(&[3, 4], Some(&[8, 2])));
        assert!(!is_contiguous(&[4], Some(&[-1])));
        assert!(!is_contiguous(&[4, 2], Some(&[0, 1])));
    }
}
