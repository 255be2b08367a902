//! Tensors of DLPack as buffers, and buffers as tensors.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlpark::ffi::{DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase, legacy, versioned};
use gpucomm::cuda::dlpack::Typed;
use gpucomm::{Clique, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, sys};

/// A tensor of somebody else: what its deleter frees, and whom it tells.
struct Theirs<M: ManagedTensorBase> {
    tensor: M,
    shape: Vec<i64>,
    strides: Vec<i64>,
    deleted: Arc<AtomicUsize>,
    _memory: DeviceBuffer<u8>,
}

unsafe extern "C" fn delete<M: ManagedTensorBase>(tensor: *mut M) {
    // SAFETY: the context is the box that the tensor lies in.
    let theirs = unsafe { Box::from_raw((*tensor).manager_ctx().cast::<Theirs<M>>()) };
    theirs.deleted.fetch_add(1, Ordering::SeqCst);
}

/// What a tensor is made of.
struct Made {
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    offset: u64,
    dtype: DLDataType,
    device: DLDevice,
}

impl Made {
    fn of<T: Typed>(shape: &[i64]) -> Self {
        let (shape, strides) = (shape.to_vec(), None);
        Self { shape, strides, offset: 0, dtype: T::TYPE, device: DLDevice::cuda(0) }
    }

    /// As a tensor over `memory`, and how often it was deleted.
    fn tensor<M: ManagedTensorBase>(self, memory: DeviceBuffer<u8>) -> (Managed<M>, Arc<AtomicUsize>) {
        let deleted = Arc::new(AtomicUsize::new(0));
        let ndim = i32::try_from(self.shape.len()).unwrap();
        let strides = self.strides.unwrap_or_else(|| dlpark::tensor::compact_strides(&self.shape).unwrap());
        let data = memory.as_raw();
        let tensor = DLTensor {
            data,
            device: self.device,
            ndim,
            dtype: self.dtype,
            byte_offset: self.offset,
            ..DLTensor::default()
        };
        let tensor = M::from_parts(tensor, std::ptr::null_mut(), Some(delete::<M>));
        let (shape, told) = (self.shape, Arc::clone(&deleted));
        let theirs = Box::into_raw(Box::new(Theirs { tensor, shape, strides, deleted: told, _memory: memory }));
        // SAFETY: the box is nobody else's until the deleter takes it back.
        let tensor = unsafe {
            let inner = (*theirs).tensor.tensor_mut();
            (inner.shape, inner.strides) = ((*theirs).shape.as_mut_ptr(), (*theirs).strides.as_mut_ptr());
            let inner = *(*theirs).tensor.tensor();
            std::ptr::addr_of_mut!((*theirs).tensor).write(M::from_parts(inner, theirs.cast(), Some(delete::<M>)));
            Managed::from_raw(std::ptr::addr_of_mut!((*theirs).tensor)).expect("a tensor")
        };
        (tensor, deleted)
    }
}

fn bytes(stream: &Stream, values: &[f32]) -> DeviceBuffer<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let memory = DeviceBuffer::from_slice(stream, &bytes).unwrap();
    stream.synchronize().unwrap();
    memory
}

fn stream() -> Stream {
    Stream::new(Device::new(0).unwrap()).unwrap()
}

/// As a buffer. The tests use each tensor on one stream, which is behind what wrote it.
fn import<T: Typed, M: ManagedTensorBase + 'static>(tensor: Managed<M>) -> Result<DeviceBuffer<T>> {
    // SAFETY: as above; the memory is that of `Theirs`, or of a buffer.
    unsafe { DeviceBuffer::from_dlpack(tensor) }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps `stream` waiting until something is sent.
fn hold_up(stream: &Stream) -> Sender<()> {
    type Held = Mutex<Receiver<()>>;
    extern "C" fn wait(held: *mut c_void) {
        // SAFETY: the box that was given to the stream below, once.
        let held = unsafe { Box::from_raw(held.cast::<Held>()) };
        let _ = held.lock().unwrap().recv_timeout(Duration::from_secs(60));
    }
    let (release, held) = channel();
    let held: *mut Held = Box::into_raw(Box::new(Mutex::new(held)));
    let code = stream.launch((), |stream, ()| {
        // SAFETY: one launch on this stream, of a function that calls no CUDA.
        unsafe { sys::cudaLaunchHostFunc(stream.as_raw(), Some(wait), held.cast()) }
    });
    assert_eq!(code.unwrap(), sys::cudaError::cudaSuccess);
    release
}

fn goes_through_a_collective<M: ManagedTensorBase + 'static>() {
    let clique = Clique::init_all(&Device::all().unwrap()).unwrap();
    let size = clique.size() as f32;
    clique
        .spmd(|comm| {
            let stream = Stream::new(comm.device())?;
            let own = comm.rank() as f32;
            let values: Vec<f32> = (0..105).map(|at| own + at as f32).collect();
            let made =
                Made { device: DLDevice::cuda(comm.device().ordinal()), offset: 20, ..Made::of::<f32>(&[4, 5, 5]) };
            let (tensor, deleted) = made.tensor::<M>(bytes(&stream, &values));
            let mut x = import::<f32, M>(tensor)?;
            assert_eq!(x.len(), 100);
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
            let expected: Vec<f32> =
                (5..105).map(|at| (0..comm.size()).map(|rank| rank as f32 + at as f32).sum()).collect();
            assert_eq!(x.to_vec(&stream)?, expected);
            assert_eq!(deleted.load(Ordering::SeqCst), 0);
            drop(x);
            until("the tensor is deleted", || deleted.load(Ordering::SeqCst) == 1);
            assert!(size >= 1.0);
            Ok(())
        })
        .unwrap();
}

#[test]
fn tensors_go_through_collectives() {
    goes_through_a_collective::<DLManagedTensor>();
    goes_through_a_collective::<DLManagedTensorVersioned>();
}

#[test]
fn a_tensor_is_deleted_once_and_when_the_device_is_done_with_it() {
    let stream = stream();
    let (tensor, deleted) = Made::of::<f32>(&[1000]).tensor::<DLManagedTensorVersioned>(bytes(&stream, &[1.0; 1000]));
    let mut x = import::<f32, _>(tensor).unwrap();
    let release = hold_up(&stream);
    x.as_slice_mut().fill(&stream, 2.0).unwrap();
    let (front, back) = x.into_split(300);
    drop(front);
    drop(back);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(deleted.load(Ordering::SeqCst), 0, "while the stream may use it");
    release.send(()).unwrap();
    until("the tensor is deleted", || deleted.load(Ordering::SeqCst) != 0);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(deleted.load(Ordering::SeqCst), 1);
}

#[test]
fn axes_of_one_element_may_have_any_stride() {
    let stream = stream();
    let strides = Some(vec![1, 3, 77, 1]);
    let made = Made { strides, ..Made::of::<f32>(&[1, 2, 1, 3]) };
    let (tensor, _) = made.tensor::<DLManagedTensor>(bytes(&stream, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    assert_eq!(import::<f32, _>(tensor).unwrap().to_vec(&stream).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (tensor, deleted) = Made::of::<f32>(&[3, 0, 2]).tensor::<DLManagedTensor>(bytes(&stream, &[]));
    let empty = import::<f32, _>(tensor).unwrap();
    assert!(empty.is_empty());
    drop(empty);
    until("an empty one is deleted", || deleted.load(Ordering::SeqCst) == 1);
}

#[test]
fn what_is_no_such_tensor_is_refused_and_deleted() {
    let stream = stream();
    let memory = || bytes(&stream, &[0.0; 12]);
    let made = || Made::of::<f32>(&[3, 4]);
    let wrong = [
        ("strides [1, 3]", Made { strides: Some(vec![1, 3]), ..made() }),
        ("strides [8, 1]", Made { strides: Some(vec![8, 1]), ..made() }),
        ("expected elements of type float32, got elements of type int32", Made { dtype: DLDataType::I32, ..made() }),
        ("got elements of type float16", Made { dtype: DLDataType::F16, ..made() }),
        (
            "got elements of type float32 in 2 lanes",
            Made { dtype: DLDataType { lanes: 2, ..DLDataType::F32 }, ..made() },
        ),
        ("device type 1", Made { device: DLDevice::CPU, ..made() }),
        ("got 1000", Made { device: DLDevice::cuda(1000), ..made() }),
        ("got -1", Made { device: DLDevice::cuda(-1), ..made() }),
        ("48 bytes", Made { offset: 1 << 40, ..made() }),
        ("a multiple of 4", Made { offset: 2, ..Made::of::<f32>(&[2]) }),
        ("negative", Made { strides: Some(vec![4, 1]), shape: vec![-3, 4], ..made() }),
    ];
    for (text, made) in wrong {
        let (tensor, deleted) = made.tensor::<DLManagedTensor>(memory());
        let error = import::<f32, _>(tensor).map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{text}: {error:?}");
        assert!(error.to_string().contains(text), "{text}: {error}");
        until("a refused one is deleted", || deleted.load(Ordering::SeqCst) == 1);
    }
    // One that may only be read.
    let (mut tensor, deleted) = made().tensor::<DLManagedTensorVersioned>(memory());
    // SAFETY: nobody has it yet.
    unsafe { *tensor.flags_mut() = DlpackFlags::READ_ONLY };
    let error = import::<f32, _>(tensor).map(drop).unwrap_err();
    assert!(error.to_string().contains("read only"), "{error}");
    assert_eq!(deleted.load(Ordering::SeqCst), 1);
}

fn round_trip<T: Typed + PartialEq + std::fmt::Debug>(values: &[T]) {
    let stream = stream();
    let x = DeviceBuffer::from_slice(&stream, values).unwrap();
    let ptr = x.as_raw();
    let tensor: versioned::Dlpack = x.into_dlpack(&stream, &[1, values.len(), 1]).unwrap();
    {
        let view = tensor.validate_export().unwrap();
        assert_eq!(view.shape(), [1, values.len() as i64, 1]);
        assert_eq!(view.strides().unwrap(), [values.len() as i64, 1, 1]);
        assert_eq!((view.device(), view.dtype(), view.byte_offset()), (DLDevice::cuda(0), T::TYPE, 0));
        assert_eq!((view.data_ptr(), tensor.flags()), (ptr.cast_const(), DlpackFlags::empty()));
    }
    assert_eq!(import::<T, _>(tensor).unwrap().to_vec(&stream).unwrap(), values);
}

#[test]
fn elements_of_each_type_go_out_and_come_back() {
    round_trip(&[true, false, true]);
    round_trip(&[-1i8, 2, 3]);
    round_trip(&[1i16, -2]);
    round_trip(&[1i32]);
    round_trip(&[i64::MIN, 5]);
    round_trip(&[1u8, 2, 3, 4, 5, 6, 7]);
    round_trip(&[1u16, 65535]);
    round_trip(&[1u32, 2]);
    round_trip(&[u64::MAX]);
    round_trip(&[0.5f32, -3.0]);
    round_trip(&[0.5f64]);
    #[cfg(feature = "half")]
    round_trip(&[gpucomm::f16::ONE, gpucomm::f16::MAX]);
    #[cfg(feature = "half")]
    round_trip(&[gpucomm::bf16::ONE]);
    #[cfg(feature = "float8")]
    round_trip(&[gpucomm::F8E4M3::from_f32(448.0)]);
    #[cfg(feature = "float8")]
    round_trip(&[gpucomm::F8E5M2::from_f32(-2.0)]);
}

#[test]
fn what_went_out_is_freed_behind_what_others_have_enqueued() {
    let (stream, other) = (stream(), stream());
    for len in [1usize, 4097] {
        let x = DeviceBuffer::from_slice(&other, &vec![1u32; len]).unwrap();
        // The stream waits for the other one.
        let tensor: legacy::Dlpack = x.into_dlpack(&stream, &[len]).unwrap();
        let raw = stream.as_raw();
        let mut seen = vec![0u32; len];
        let release = hold_up(&stream);
        let (data, bytes) = (tensor.validate().unwrap().data_ptr(), 4 * len);
        // SAFETY: fills what lies there, on the stream that it is for.
        assert_eq!(unsafe { sys::cudaMemsetAsync(data.cast_mut(), 7, bytes, raw) }, sys::cudaError::cudaSuccess);
        // By whoever has it, on whatever thread.
        std::thread::spawn(move || drop(tensor)).join().unwrap();
        // Where the same memory is given to somebody else, what was enqueued before comes first.
        let y = DeviceBuffer::from_slice(&stream, &vec![9u32; len]).unwrap();
        let z = DeviceBuffer::<u32>::zeroed(&other, len);
        release.send(()).unwrap();
        y.as_slice().copy_to_slice(&stream, &mut seen).unwrap();
        assert_eq!(seen, vec![9; len]);
        assert_eq!(z.unwrap().to_vec(&other).unwrap(), vec![0; len]);
    }
}

#[test]
fn what_others_enqueue_late_comes_before_the_free_too() {
    let (stream, other) = (stream(), stream());
    for whole in [true, false] {
        let x = DeviceBuffer::from_slice(&other, &[1u32; 1000]).unwrap();
        let (front, rest) = x.into_split(if whole { 1000 } else { 700 });
        let mut back = Some(rest).filter(|rest| !rest.is_empty());
        let len = front.len();
        let tensor: legacy::Dlpack = front.into_dlpack(&stream, &[len]).unwrap();
        // From here on there is a mark behind what this crate has enqueued on the stream, for others that come after it.
        let release = hold_up(&stream);
        let y = DeviceBuffer::from_slice(&stream, &[3u8; 10]).unwrap();
        let mut copy = DeviceBuffer::uninit(&other, 10).unwrap();
        copy.copy_from(&other, &y).unwrap();
        if let Some(back) = &mut back {
            back.as_slice_mut().fill(&other, 4).unwrap();
        }
        let data = tensor.validate().unwrap().data_ptr();
        // SAFETY: fills some of what lies there, on the stream that it is for.
        let code = unsafe { sys::cudaMemsetAsync(data.cast_mut(), 7, 100, stream.as_raw()) };
        assert_eq!(code, sys::cudaError::cudaSuccess);
        drop((tensor, back));
        let z = DeviceBuffer::<u32>::zeroed(&other, 1000).unwrap();
        release.send(()).unwrap();
        assert_eq!(z.to_vec(&other).unwrap(), [0; 1000]);
        assert_eq!(copy.to_vec(&other).unwrap(), [3; 10]);
    }
}

#[test]
fn shapes_and_streams_that_do_not_fit_are_refused() {
    let stream = stream();
    let x = || DeviceBuffer::<u8>::zeroed(&stream, 12).unwrap();
    for shape in [&[][..], &[13], &[3, 5], &[0], &[usize::MAX, 12], &[usize::MAX, usize::MAX]] {
        let error = x().into_dlpack::<DLManagedTensor>(&stream, shape).map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { what: "shape", .. }), "{error}");
    }
    let one: legacy::Dlpack = DeviceBuffer::from_slice(&stream, &[5u8]).unwrap().into_dlpack(&stream, &[]).unwrap();
    assert_eq!(import::<u8, _>(one).unwrap().to_vec(&stream).unwrap(), [5]);
    let none: legacy::Dlpack = DeviceBuffer::<u8>::zeroed(&stream, 0).unwrap().into_dlpack(&stream, &[3, 0]).unwrap();
    assert!(import::<u8, _>(none).unwrap().is_empty());
    if let Ok(far) = Device::new(1) {
        let error = x().into_dlpack::<DLManagedTensor>(&Stream::new(far).unwrap(), &[12]).map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { what: "stream", .. }), "{error}");
    }
}

/// A tensor as somebody in C writes it down: whatever its fields say.
fn raw(tensor: DLTensor, deleted: Option<&'static AtomicUsize>) -> Managed<DLManagedTensor> {
    unsafe extern "C" fn delete(tensor: *mut DLManagedTensor) {
        // SAFETY: the box of `raw`, and the counter that lives for good.
        unsafe {
            let tensor = Box::from_raw(tensor);
            (*tensor.manager_ctx().cast::<AtomicUsize>()).fetch_add(1, Ordering::SeqCst);
        }
    }
    let context = deleted.map_or(std::ptr::null_mut(), |deleted| std::ptr::from_ref(deleted).cast_mut().cast());
    let managed = DLManagedTensor::from_parts(tensor, context, deleted.map(|_| delete as _));
    // SAFETY: the box is nobody else's.
    unsafe { Managed::from_raw(Box::into_raw(Box::new(managed))) }.expect("a tensor")
}

fn leaked(values: &[i64]) -> *mut i64 {
    values.to_vec().leak().as_mut_ptr()
}

#[test]
fn fields_that_nobody_should_write() {
    let stream = stream();
    let memory = DeviceBuffer::from_slice(&stream, &(0..64u32).collect::<Vec<_>>()).unwrap();
    stream.synchronize().unwrap();
    let made = |shape: &[i64]| DLTensor {
        data: memory.as_raw(),
        device: DLDevice::cuda(0),
        ndim: i32::try_from(shape.len()).unwrap(),
        dtype: DLDataType::U32,
        shape: leaked(shape),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let null = std::ptr::null_mut();
    let host = Box::leak(Box::new([0u32; 16])).as_mut_ptr().cast();
    // A tensor at the 16th element, whose offset leads back to the first one: past the last address.
    let back =
        DLTensor { data: memory.slice(16..).as_raw().cast_mut(), byte_offset: 64u64.wrapping_neg(), ..made(&[4]) };
    for (text, tensor) in [
        ("expected an address, got null", DLTensor { data: null, ..made(&[4]) }),
        ("memory that CUDA does not know, of the host perhaps", DLTensor { data: host, ..made(&[4]) }),
        ("ndim is negative: -1", DLTensor { ndim: -1, ..made(&[4]) }),
        ("shape pointer is null but ndim is 1", DLTensor { shape: std::ptr::null_mut(), ..made(&[4]) }),
        ("number of elements overflows", made(&[1 << 62, 4])),
        ("number of elements overflows", made(&[i64::MAX, i64::MAX, 4])),
        ("number of bytes overflows", DLTensor { strides: leaked(&[i64::MAX, 1]), ..made(&[2, i64::MAX]) }),
        (
            "byte offset: expected one within memory, got 18446744073709551612",
            DLTensor { byte_offset: u64::MAX - 3, ..made(&[4]) },
        ),
        ("byte offset: expected one within memory, got 18446744073709551552", back),
        ("strides [0, 1] of shape [3, 4]", DLTensor { strides: leaked(&[0, 1]), ..made(&[3, 4]) }),
    ] {
        let deleted: &'static AtomicUsize = Box::leak(Box::default());
        let error = import::<u32, _>(raw(tensor, Some(deleted))).map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{text}: {error:?}");
        assert!(error.to_string().contains(text), "{text}: {error}");
        until("a refused one is deleted", || deleted.load(Ordering::SeqCst) == 1);
    }
    // Nothing lies anywhere, and what has no deleter stays.
    assert!(import::<u32, _>(raw(DLTensor { data: null, ..made(&[0, 7]) }, None)).unwrap().is_empty());
    let kept = import::<u32, _>(raw(made(&[4, 4]), None)).unwrap();
    assert_eq!(kept.to_vec(&stream).unwrap(), (0..16).collect::<Vec<_>>());
    drop(kept);
    assert_eq!(memory.to_vec(&stream).unwrap(), (0..64).collect::<Vec<_>>());
}

/// The stream that a tensor went out on is dropped before the tensor comes back, or nobody deletes it.
#[test]
fn tensors_that_outlive_their_stream() {
    let own = stream();
    let x = DeviceBuffer::from_slice(&own, &[5u32; 1000]).unwrap();
    let tensor: legacy::Dlpack = x.into_dlpack(&own, &[1000]).unwrap();
    own.synchronize().unwrap();
    drop(own);
    let stream = stream();
    assert_eq!(import::<u32, _>(tensor).unwrap().to_vec(&stream).unwrap(), [5; 1000]);
    let forgotten: legacy::Dlpack =
        DeviceBuffer::<u8>::zeroed(&stream, 10).unwrap().into_dlpack(&stream, &[10]).unwrap();
    std::mem::forget(forgotten);
    stream.synchronize().unwrap();
}
