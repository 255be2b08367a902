//! Handles go to other threads, and are used by several at once.

use gpucomm::cuda::vmm::{Mapping, PhysicalMemory};
use gpucomm::cuda::{Done, Event, Graph, GraphPinned, Slice, SliceMut};
use gpucomm::exchange::{C10d, Directory, Exchange, FdSocket, Tcp, Threads};
#[cfg(nccl_ge_2_29)]
use gpucomm::nccl::Invitation;
use gpucomm::nccl::{Aborter, PendingCommunicator, PreMulSum, Registration, Window};
use gpucomm::world::health::HealthWatch;
use gpucomm::world::{Answer, Lane, Rank, World};
use gpucomm::{
    Clique, CommBuffer, Communicator, Device, DeviceBuffer, Error, Launch, PinnedBuffer, ReduceOp, Stream, UniqueId,
};

const fn everywhere<T: Send + Sync>() {}

const _: () = {
    everywhere::<(Communicator, Clique, Aborter, UniqueId, PendingCommunicator)>();
    #[cfg(nccl_ge_2_29)]
    everywhere::<Invitation>();
    everywhere::<(CommBuffer<'static, f32>, Registration<'static>, Window<'static>, PreMulSum<'static, f32>)>();
    everywhere::<(Device, Stream, Event, Graph, DeviceBuffer<f32>, PinnedBuffer<f32>, GraphPinned<f32>)>();
    everywhere::<(Slice<'static, f32>, SliceMut<'static, f32>, PhysicalMemory, Mapping, Done)>();
    everywhere::<(Exchange, Threads, Directory, Tcp, C10d, FdSocket, Launch)>();
    everywhere::<(World, Rank, Answer<DeviceBuffer<f32>>, Lane, HealthWatch)>();
    everywhere::<(Error, ReduceOp)>();
};
