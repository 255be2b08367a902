//! One buffer on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};

use crate::{random, stream};

/// Whether values of these types may go to other threads, and whether several threads may use one.
macro_rules! threads {
    ($send:literal, $sync:literal: $($type:ty),* $(,)?) => {$({
        #[allow(dead_code)]
        trait Otherwise {
            const SEND: bool = false;
            const SYNC: bool = false;
        }
        struct Of<T>(std::marker::PhantomData<T>);
        impl<T> Otherwise for Of<T> {}
        // Where these are there, they come before those of the trait.
        #[allow(dead_code)]
        impl<T: Send> Of<T> {
            const SEND: bool = true;
        }
        #[allow(dead_code)]
        impl<T: Sync> Of<T> {
            const SYNC: bool = true;
        }
        assert_eq!((<Of<$type>>::SEND, <Of<$type>>::SYNC), ($send, $sync), stringify!($type));
    })*};
}

#[test]
fn values_go_between_threads() {
    use gpucomm::cuda::{self, vmm};
    threads!(true, true: Device, Stream, gpucomm::Event, cuda::Done, DeviceBuffer<f32>, cuda::Slice<'static, f32>);
    threads!(true, true: cuda::SliceMut<'static, f32>, PinnedBuffer<f32>, cuda::PinnedSlice<'static, f32>);
    threads!(true, true: cuda::PinnedSliceMut<'static, f32>, cuda::Graph, cuda::GraphPinned<f32>);
    threads!(true, true: vmm::PhysicalMemory, vmm::AddressRange, vmm::Mapping, gpucomm::exchange::Exchange);
    // What is of a thread stays there.
    threads!(false, false: cuda::ThreadStream, cuda::CurrentDevice);
    threads!(false, false: cuda::LentStream<'static>, cuda::Lent<'static, f32>, cuda::LentMut<'static, f32>);
    #[cfg(feature = "cudarc")]
    threads!(true, true: cuda::cudarc::SharedStream);
    #[cfg(feature = "nccl")]
    threads!(true, true: gpucomm::world::World, gpucomm::world::Rank);
    #[cfg(feature = "nccl")]
    {
        use gpucomm::nccl;
        threads!(true, true: nccl::Communicator, nccl::Clique, nccl::PendingCommunicator, nccl::Aborter, nccl::Dump);
        threads!(true, true: nccl::CommBuffer<'static, f32>, nccl::Registration<'static>, nccl::Config);
        threads!(true, true: nccl::PreMulSum<'static, f32>, nccl::Revoked<'static>, nccl::InitOptions);
        // One thread records a group.
        threads!(true, false: nccl::Group<'static>);
    }
    #[cfg(feature = "nvshmem")]
    {
        use gpucomm::nvshmem;
        threads!(true, true: nvshmem::SymmetricBuffer<'static, f32>, nvshmem::SymmetricSlice<'static, f32>);
        threads!(true, true: nvshmem::SymmetricSliceMut<'static, f32>, nvshmem::Signal<'static>);
        threads!(true, true: nvshmem::PeerView<'static, f32>, nvshmem::StreamScope<'static, 'static>);
        // One thread at a time calls the library.
        threads!(true, false: nvshmem::Context);
        threads!(false, false: nvshmem::Team<'static>, nvshmem::NonblockingScope<'static, 'static>);
        threads!(false, false: nvshmem::MulticastView<'static, f32>, nvshmem::Registered<'static, DeviceBuffer<f32>>);
    }
}

#[test]
fn halves_written_by_two_threads() {
    let home = stream();
    let streams = [stream(), stream(), stream()];
    let len = 4001;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&home, len).unwrap();
    for round in 0..30u32 {
        let (mut low, mut high) = buffer.split_at_mut(len / 3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..20 {
                    low.fill(&streams[at % 3], round * 100 + at as u32).unwrap();
                }
            });
            scope.spawn(|| {
                for at in 0..20 {
                    high.fill(&streams[(at + 1) % 3], round * 100 + 50 + at as u32).unwrap();
                    if at == 7 {
                        let got = high.as_slice().to_vec(&streams[0]).unwrap();
                        assert!(got.iter().all(|v| *v == round * 100 + 57));
                    }
                }
            });
        });
        let got = buffer.to_vec(&home).unwrap();
        assert!(got[..len / 3].iter().all(|v| *v == round * 100 + 19), "round {round}");
        assert!(got[len / 3..].iter().all(|v| *v == round * 100 + 69), "round {round}");
    }
}

/// Waits for another thread without going to sleep, so that both go on at nearly the same moment.
fn together(come: &AtomicUsize, until: usize) {
    come.fetch_add(1, Ordering::AcqRel);
    while come.load(Ordering::Acquire) < until {
        std::thread::yield_now();
    }
}

/// Each of two threads writes its half as the other one does: what one has waited for and forgotten between the steps of the other,
/// which are not one, is waited for by who comes next.
#[test]
fn halves_written_at_the_same_moment() {
    let (home, streams) = (stream(), [stream(), stream()]);
    let len = 600;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&home, 2 * len).unwrap();
    let device = [1, 2].map(|value| DeviceBuffer::from_slice(&home, &vec![value; len]).unwrap());
    let host = [3, 4].map(|value| vec![value; len]);
    let pinned = [5, 6].map(|value| PinnedBuffer::from_slice(&vec![value; len]).unwrap());
    home.synchronize().unwrap();
    for kind in 0..4u32 {
        for _ in 0..200 {
            let (come, halves) = (AtomicUsize::new(0), buffer.split_at_mut(len));
            std::thread::scope(|scope| {
                for (at, mut half) in [halves.0, halves.1].into_iter().enumerate() {
                    let (come, stream, device, host, pinned) =
                        (&come, &streams[at], &device[at], &host[at], &pinned[at]);
                    scope.spawn(move || {
                        together(come, 2);
                        match kind {
                            0 => half.copy_from(stream, device),
                            1 => half.copy_from_slice(stream, host),
                            2 => half.copy_from_pinned(stream, pinned),
                            _ => half.fill(stream, 7 + at as u32),
                        }
                        .unwrap();
                    });
                }
            });
            let got = buffer.to_vec(&home).unwrap();
            let first = 1 + 2 * kind;
            assert!(got[..len].iter().all(|value| *value == first), "kind {kind}");
            assert!(got[len..].iter().all(|value| *value == first + 1), "kind {kind}");
        }
    }
}

#[test]
fn many_readers_then_a_free() {
    let mut random = random("many_readers_then_a_free");
    for round in 0..20u32 {
        let home = stream();
        let len = random.usize(1..50_000);
        let buffer = DeviceBuffer::from_slice(&home, &vec![round; len]).unwrap();
        let copies: Vec<_> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let stream = stream();
                        let mut copy = DeviceBuffer::<u32>::zeroed(&stream, len).unwrap();
                        copy.copy_from(&stream, &buffer).unwrap();
                        (stream, copy)
                    })
                })
                .collect();
            readers.into_iter().map(|r| r.join().unwrap()).collect()
        });
        drop(buffer);
        let _next = DeviceBuffer::from_slice(&home, &vec![u32::MAX; len]).unwrap();
        for (stream, copy) in copies {
            assert!(copy.to_vec(&stream).unwrap().iter().all(|v| *v == round), "round {round}");
        }
    }
}

#[test]
fn threads_share_the_staging_memory() {
    std::thread::scope(|scope| {
        for id in 0..4u64 {
            scope.spawn(move || {
                let stream = stream();
                for len in [1, 9_000, 700_001, 3_000_001] {
                    let values: Vec<u64> = (0..len).map(|at| at * 4 + id).collect();
                    let buffer = DeviceBuffer::from_slice(&stream, &values).unwrap();
                    assert!(buffer.to_vec(&stream).unwrap() == values);
                }
            });
        }
    });
}

#[test]
fn pinned_memory_read_by_threads() {
    let stream = stream();
    let buffer = DeviceBuffer::from_slice(&stream, &[8i64; 3000]).unwrap();
    let mut target = PinnedBuffer::<i64>::zeroed(3000).unwrap();
    for _ in 0..20 {
        buffer.copy_to_pinned(&stream, &mut target).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert!(target.as_slice().unwrap().iter().all(|v| *v == 8)));
            }
        });
    }
}
