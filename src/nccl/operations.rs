//! The operations of communicators, each written once: alone, in a group, and with a configuration of the call.

use super::calls::buffers::{Buffer, Everywhere, Rooted, exchanged};
use super::calls::call::Calls;
use super::calls::forms::{AllRanks, AllToAll, FromRoot, IntoBuffers, ToRoot};
use super::calls::layout::Layout;
use super::calls::site::Site;
use super::calls::{personal, prepare, variable};
use super::communicator::Communicator;
#[cfg(nccl_ge_2_31)]
use super::configured::Configured;
use super::enqueue::submit;
use super::group::Group;
use super::reduction::Reduction;
use crate::cuda::{AsSlice, AsSliceMut, Stream};
use crate::element::{Element, Reduce};
use crate::error::Result;

/// Makes the methods of each operation. An entry has the documentation of [`Communicator`]'s method, the arguments before the
/// stream, and an expression that prepares what is submitted: `call` returns one call, `calls` adds to a list.
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $name:ident<$($life:lifetime,)? T: $bound:ident>($($arg:ident: $kind:ty),*)
            $form:ident |$site:ident $(, $calls:ident)?| $prepare:expr
            $(, configured $function:literal)?;
    )*) => {
        /// Operations. Each call enqueues its operation on `stream` and returns immediately. You may reuse or drop the buffers
        /// right away: later uses are ordered after the operation.
        ///
        /// A call is faster if the communicator's device is current on the calling thread, as NCCL otherwise switches to it and
        /// back: see [`Device::set_current`](crate::Device::set_current). [`Clique::spmd`](crate::Clique::spmd) makes it current.
        ///
        /// # Errors
        /// Returns [`InvalidArgument`](crate::Error::InvalidArgument), and submits nothing, if
        /// - a buffer is too short,
        /// - a buffer or the stream belongs to another device or communicator,
        /// - `root` or `peer` is not a rank of the communicator,
        /// - NCCL does not have `op`, or it is a [`PreMulSum`](crate::nccl::PreMulSum) of another communicator.
        ///
        /// Returns [`Disagreement`](crate::Error::Disagreement) if the ranks of a clique issue different operations,
        /// [`Aborted`](crate::Error::Aborted) after an abort, and [`Timeout`](crate::Error::Timeout) if too many operations are in
        /// flight, or a peer does not issue the first one.
        impl Communicator {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $name<'a, $($life,)? T: $bound>(&'a self, $($arg: $kind,)* stream: &'a Stream) -> Result<()> {
                    let $site = Site::new(stringify!($name), self.inner(), stream)?;
                    operations!(@alone $form $prepare $(, $calls)?)
                }
            )*
        }

        /// Operations: those of [`Communicator`], with the communicator first. Errors are found while recording, except those
        /// that only submitting can bring.
        ///
        /// ```
        /// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, Stream, group};
        /// # fn main() -> gpucomm::Result<()> {
        /// # let clique = Clique::init_all(&Device::all()?)?;
        /// # clique.spmd(|comm| {
        /// # let stream = Stream::new(comm.device())?;
        /// let next = (comm.rank() + 1) % comm.size();
        /// let before = (comm.rank() + comm.size() - 1) % comm.size();
        /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32])?;
        /// let (mut other, mut sum) = (DeviceBuffer::<f32>::zeroed(&stream, 1)?, DeviceBuffer::<f32>::zeroed(&stream, 1)?);
        /// group(|g| {
        ///     // A group may hold messages and collectives, in any order.
        ///     g.send(comm, &own, next, &stream)?;
        ///     g.recv(comm, &mut other, before, &stream)?;
        ///     g.all_reduce(comm, (&own, &mut sum), ReduceOp::Sum, &stream)
        /// })?;
        /// assert_eq!(other.to_vec(&stream)?, [before as f32]);
        /// # assert_eq!(sum.to_vec(&stream)?, [(0..comm.size()).sum::<usize>() as f32]);
        /// # Ok(())
        /// # })?;
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// Collectives with a count for each rank:
        ///
        /// ```
        /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream, group};
        /// # fn main() -> gpucomm::Result<()> {
        /// # let clique = Clique::init_all(&Device::all()?)?;
        /// # clique.spmd(|comm| {
        /// # let stream = Stream::new(comm.device())?;
        /// let (rank, size) = (comm.rank(), comm.size());
        /// // Rank r takes part with r elements.
        /// let counts: Vec<_> = (0..size).collect();
        /// let total = counts.iter().sum();
        /// let own = DeviceBuffer::from_slice(&stream, &vec![rank as u32; rank])?;
        /// let whole = DeviceBuffer::from_slice(&stream, &vec![1u32; total])?;
        /// let (mut all, mut at_root) = (DeviceBuffer::<u32>::zeroed(&stream, total)?, DeviceBuffer::<u32>::zeroed(&stream, total)?);
        /// let (mut summed, mut part) = (DeviceBuffer::<u32>::zeroed(&stream, rank)?, DeviceBuffer::<u32>::zeroed(&stream, rank)?);
        /// group(|g| {
        ///     g.all_gather_v(comm, (&own, &mut all), &counts, &stream)?;
        ///     g.reduce_scatter_v(comm, (&whole, &mut summed), &counts, ReduceOp::Sum, &stream)?;
        ///     g.gather_v(comm, (&own, &mut at_root), &counts, 0, &stream)?;
        ///     g.scatter_v(comm, (&whole, &mut part), &counts, 0, &stream)
        /// })?;
        /// assert_eq!(summed.to_vec(&stream)?, vec![size as u32; rank]);
        ///
        /// // Each rank sends r elements to rank r.
        /// let recv_counts = vec![rank; size];
        /// let (send, mut recv) = (DeviceBuffer::from_slice(&stream, &vec![rank as u32; total])?, DeviceBuffer::zeroed(&stream, rank * size)?);
        /// group(|g| g.all_to_all_v(comm, (&send, &mut recv), &counts, &recv_counts, &stream))?;
        /// assert_eq!(recv.to_vec(&stream)?, (0..size).flat_map(|from| vec![from as u32; rank]).collect::<Vec<_>>());
        /// # let (mut one, mut every, mut back) = (DeviceBuffer::from_slice(&stream, &[rank as u8])?, DeviceBuffer::zeroed(&stream, size)?, DeviceBuffer::zeroed(&stream, 1)?);
        /// # group(|g| g.gather(comm, (&one, &mut every), 0, &stream))?;
        /// # group(|g| g.scatter(comm, (&every, &mut back), 0, &stream))?;
        /// # assert_eq!(back.to_vec(&stream)?, [rank as u8]);
        /// # group(|g| g.broadcast(comm, InPlace(&mut one), 0, &stream))?;
        /// # assert_eq!(one.to_vec(&stream)?, [0]);
        /// # Ok(())
        /// # })?;
        /// # Ok(())
        /// # }
        /// ```
        impl<'a> Group<'a> {
            $(
                #[doc = concat!("Records [`Communicator::", stringify!($name), "`].")]
                pub fn $name<$($life,)? T: $bound>(&mut self, comm: &'a Communicator, $($arg: $kind,)* stream: &'a Stream) -> Result<()> {
                    let $site = Site::new(stringify!($name), comm.inner(), stream)?;
                    operations!(@recorded self $form $prepare $(, $calls)?)
                }
            )*
        }

        /// Collectives: those of [`Communicator`].
        ///
        /// ```
        /// # fn main() -> gpucomm::Result<()> {
        /// use gpucomm::nccl::CallConfig;
        /// use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream, group};
        ///
        /// # if gpucomm::nccl::version()? < gpucomm::version::Version::new(2, 31, 2) { return Ok(()) }
        /// let few = CallConfig::new().with_max_ctas(2);
        /// let clique = Clique::init_all(&Device::all()?)?;
        /// clique.spmd(|comm| {
        ///     let stream = &Stream::new(comm.device())?;
        ///     let n = comm.size();
        ///     let (mut one, mut all) = (DeviceBuffer::from_slice(stream, &[1u32; 8])?, DeviceBuffer::zeroed(stream, 8 * n)?);
        ///     comm.configured(&few).broadcast(InPlace(&mut one), 0, stream)?;
        ///     comm.configured(&few).reduce(InPlace(&mut one), ReduceOp::Max, 0, stream)?;
        ///     comm.configured(&few).all_gather((&one, &mut all), stream)?;
        ///     comm.configured(&few).reduce_scatter((&all, &mut one), ReduceOp::Min, stream)?;
        ///     comm.configured(&few).gather((&one, &mut all), 0, stream)?;
        ///     comm.configured(&few).scatter((&all, &mut one), 0, stream)?;
        ///     let mut other = DeviceBuffer::zeroed(stream, 8 * n)?;
        ///     group(|g| {
        ///         g.configured(comm, &few).all_to_all((&all, &mut other), stream)?;
        ///         g.configured(comm, &few).all_reduce(InPlace(&mut one), ReduceOp::Sum, stream)
        ///     })?;
        ///     assert_eq!(one.to_vec(stream)?, [n as u32; 8]);
        ///     Ok(())
        /// })?;
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// As there. Returns [`Unsupported`](crate::Error::Unsupported) if the running NCCL is older than 2.31.2, and
        /// [`InvalidArgument`](crate::Error::InvalidArgument) if NCCL would not take the configuration. Nothing is submitted then.
        #[cfg(nccl_ge_2_31)]
        impl<'a> Configured<'_, 'a> {
            $(operations! {
                @configured_method [$($function)?]
                $name<$($life,)? T: $bound>($($arg: $kind),*) $form |$site $(, $calls)?| $prepare
            })*
        }
    };

    (@configured_method [] $($rest:tt)*) => {};
    (
        @configured_method [$function:literal]
        $name:ident<$($life:lifetime,)? T: $bound:ident>($($arg:ident: $kind:ty),*) $form:ident |$site:ident $(, $calls:ident)?| $prepare:expr
    ) => {
        #[doc = concat!("As [`Communicator::", stringify!($name), "`]. Wraps `", $function, "`.")]
        pub fn $name<$($life,)? T: $bound>(self, $($arg: $kind,)* stream: &'a Stream) -> Result<()> {
            let $site = self.site(stringify!($name), stream)?;
            operations!(@configured self $form $prepare $(, $calls)?)
        }
    };

    (@alone call $prepare:expr) => {
        submit::prepared($prepare)
    };
    (@alone calls $prepare:expr, $calls:ident) => {{
        let mut list = Calls::new();
        let $calls = &mut list;
        $prepare?;
        submit::all(&list)
    }};
    (@recorded $group:ident call $prepare:expr) => {
        $group.add($prepare)
    };
    (@recorded $group:ident calls $prepare:expr, $calls:ident) => {{
        let $calls = $group.calls();
        $prepare
    }};
    (@configured $configured:ident call $prepare:expr) => {
        $configured.submit($prepare?)
    };
    (@configured $configured:ident calls $prepare:expr, $calls:ident) => {{
        let mut list = Calls::new();
        let $calls = &mut list;
        $prepare?;
        $configured.submit_only(list)
    }};
}

operations! {
    /// Reduces the elements of all ranks, position by position, and writes the result to every rank. Wraps `ncclAllReduce`.
    ///
    /// Out of place, `send` has `n` elements and `recv` has at least `n`. In place, the buffer has `n` elements.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut gradients = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32; 1000])?;
    /// comm.all_reduce(InPlace(&mut gradients), ReduceOp::Avg, &stream)?;
    /// assert_eq!(gradients.to_vec(&stream)?, [(comm.size() - 1) as f32 / 2.0; 1000]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclAllReduce")]
    all_reduce<T: Reduce>(io: impl IntoBuffers<'a, T, AllRanks>, op: impl Into<Reduction<'a, T>>)
        call |site| prepare::all_reduce(site, Everywhere::new(site.operation, io.into_buffers())?, op.into().operator()),
        configured "ncclAllReduceConfig";

    /// Reduces the elements of all ranks, position by position, and writes the result to `root`. Wraps `ncclReduce`.
    ///
    /// `send` has `n` elements. `recv` has at least `n` elements at the root, and is not needed elsewhere. In place, the buffer has `n`
    /// elements.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, SendOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let losses = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0])?;
    /// if comm.rank() == 0 {
    ///     let mut sums = DeviceBuffer::<f32>::zeroed(&stream, 2)?;
    ///     comm.reduce((&losses, &mut sums), ReduceOp::Sum, 0, &stream)?;
    ///     assert_eq!(sums.to_vec(&stream)?, [comm.size() as f32, 2.0 * comm.size() as f32]);
    /// } else {
    ///     comm.reduce(SendOnly(&losses), ReduceOp::Sum, 0, &stream)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclReduce")]
    reduce<T: Reduce>(io: impl IntoBuffers<'a, T, ToRoot>, op: impl Into<Reduction<'a, T>>, root: usize)
        call |site| prepare::reduce(site, Rooted::to(site.operation, io.into_buffers())?, op.into().operator(), root),
        configured "ncclReduceConfig";

    /// Copies the elements of `root` to every rank. Wraps `ncclBroadcast`.
    ///
    /// `recv` has `n` elements on every rank. Out of place, `send` has `n` elements at the root, and is not used elsewhere. In place,
    /// the buffer has `n` elements.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut weights = DeviceBuffer::<f32>::zeroed(&stream, 100)?;
    /// if comm.rank() == 0 {
    ///     weights.fill(&stream, 0.5)?;
    /// }
    /// comm.broadcast(InPlace(&mut weights), 0, &stream)?;
    /// assert_eq!(weights.to_vec(&stream)?, [0.5; 100]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclBroadcast")]
    broadcast<T: Element>(io: impl IntoBuffers<'a, T, FromRoot>, root: usize)
        call |site| prepare::broadcast(site, Rooted::from(site.operation, io.into_buffers())?, root),
        configured "ncclBroadcastConfig";

    /// Concatenates the elements of all ranks, in the order of the ranks, on every rank. Wraps `ncclAllGather`.
    ///
    /// Out of place, `send` has `n` elements and `recv` has at least `n * size`. In place, the buffer has `n * size` elements, and this
    /// rank's part begins at `n * rank`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as u32; 2])?;
    /// let mut all = DeviceBuffer::<u32>::zeroed(&stream, 2 * comm.size())?;
    /// comm.all_gather((&own, &mut all), &stream)?;
    /// let expected: Vec<_> = (0..comm.size() as u32).flat_map(|rank| [rank; 2]).collect();
    /// assert_eq!(all.to_vec(&stream)?, expected);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclAllGather")]
    all_gather<T: Element>(io: impl IntoBuffers<'a, T, AllRanks>)
        call |site| prepare::all_gather(site, Everywhere::new(site.operation, io.into_buffers())?),
        configured "ncclAllGatherConfig";

    /// Reduces the elements of all ranks, position by position, and writes one part of the result to each rank. Wraps
    /// `ncclReduceScatter`.
    ///
    /// Out of place, `send` has `n * size` elements and `recv` has at least `n`. In place, the buffer has `n * size` elements, the result
    /// is written at `n * rank`, and the other elements are unspecified afterwards.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // As many gradients as ranks: each rank gets the sum of those that it looks after.
    /// let gradients: Vec<_> = (0..comm.size()).map(|at| at as f32).collect();
    /// let gradients = DeviceBuffer::from_slice(&stream, &gradients)?;
    /// let mut own = DeviceBuffer::<f32>::zeroed(&stream, 1)?;
    /// comm.reduce_scatter((&gradients, &mut own), ReduceOp::Sum, &stream)?;
    /// assert_eq!(own.to_vec(&stream)?, [(comm.rank() * comm.size()) as f32]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclReduceScatter")]
    reduce_scatter<T: Reduce>(io: impl IntoBuffers<'a, T, AllRanks>, op: impl Into<Reduction<'a, T>>)
        call |site| prepare::reduce_scatter(site, Everywhere::new(site.operation, io.into_buffers())?, op.into().operator()),
        configured "ncclReduceScatterConfig";

    /// Sends part `r` of `send` to rank `r`, and receives what rank `r` sent into part `r` of `recv`. Wraps `ncclAlltoAll`, and before
    /// NCCL 2.28 a group of `ncclSend` and `ncclRecv`.
    ///
    /// `send` has `n * size` elements, and `recv` has at least as many.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // Tokens for experts: one for each rank.
    /// let tokens: Vec<_> = (0..comm.size() as u32).map(|to| 100 * comm.rank() as u32 + to).collect();
    /// let send = DeviceBuffer::from_slice(&stream, &tokens)?;
    /// let mut recv = DeviceBuffer::<u32>::zeroed(&stream, comm.size())?;
    /// comm.all_to_all((&send, &mut recv), &stream)?;
    /// let expected: Vec<_> = (0..comm.size() as u32).map(|from| 100 * from + comm.rank() as u32).collect();
    /// assert_eq!(recv.to_vec(&stream)?, expected);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclAlltoAll")]
    all_to_all<T: Element>(io: impl IntoBuffers<'a, T, AllToAll>)
        calls |site, calls| personal::all_to_all(site, exchanged(site.operation, io.into_buffers())?, calls),
        configured "ncclAlltoAllConfig";

    /// Concatenates the elements of all ranks, in the order of the ranks, at `root`. Wraps `ncclGather`, and before NCCL 2.28 a group of
    /// `ncclSend` and `ncclRecv`.
    ///
    /// `send` has `n` elements. `recv` has at least `n * size` elements at the root, and is not needed elsewhere. In place at the root,
    /// the buffer has `n * size` elements, and the root's own part is at `n * root` already.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, SendOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as u32])?;
    /// if comm.rank() == 0 {
    ///     let mut all = DeviceBuffer::<u32>::zeroed(&stream, comm.size())?;
    ///     comm.gather((&own, &mut all), 0, &stream)?;
    ///     assert_eq!(all.to_vec(&stream)?, (0..comm.size() as u32).collect::<Vec<_>>());
    /// } else {
    ///     comm.gather(SendOnly(&own), 0, &stream)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclGather")]
    gather<T: Element>(io: impl IntoBuffers<'a, T, ToRoot>, root: usize)
        calls |site, calls| personal::gather(site, Rooted::to(site.operation, io.into_buffers())?, root, calls),
        configured "ncclGatherConfig";

    /// Sends one part of the elements of `root` to each rank. Wraps `ncclScatter`, and before NCCL 2.28 a group of `ncclSend` and
    /// `ncclRecv`.
    ///
    /// `recv` has `n` elements. `send` has `n * size` elements at the root, and is not used elsewhere. In place at the root,
    /// the buffer has `n * size` elements, and the root's own part stays at `n * root`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, RecvOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut own = DeviceBuffer::<u32>::zeroed(&stream, 1)?;
    /// if comm.rank() == 0 {
    ///     let all = DeviceBuffer::from_slice(&stream, &(0..comm.size() as u32).collect::<Vec<_>>())?;
    ///     comm.scatter((&all, &mut own), 0, &stream)?;
    /// } else {
    ///     comm.scatter(RecvOnly(&mut own), 0, &stream)?;
    /// }
    /// assert_eq!(own.to_vec(&stream)?, [comm.rank() as u32]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclScatter")]
    scatter<T: Element>(io: impl IntoBuffers<'a, T, FromRoot>, root: usize)
        calls |site, calls| personal::scatter(site, Rooted::from(site.operation, io.into_buffers())?, root, calls),
        configured "ncclScatterConfig";

    /// Sends elements to `peer`, which calls `recv` with as many elements. Wraps `ncclSend`.
    ///
    /// If both ranks send and receive, put the calls into one [`group`](crate::nccl::group). Otherwise the ranks may wait for each
    /// other.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // Rank 0 sends to the last one.
    /// let (first, last) = (0, comm.size() - 1);
    /// if comm.rank() == first && first != last {
    ///     let data = DeviceBuffer::from_slice(&stream, &[1.5f32; 100])?;
    ///     comm.send(&data, last, &stream)?;
    /// } else if comm.rank() == last && first != last {
    ///     let mut data = DeviceBuffer::<f32>::zeroed(&stream, 100)?;
    ///     comm.recv(&mut data, first, &stream)?;
    ///     assert_eq!(data.to_vec(&stream)?, [1.5; 100]);
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclSend")]
    send<T: Element>(data: impl AsSlice<'a, T>, peer: usize)
        call |site| prepare::send(site, Buffer::from(data.into()), peer);

    /// Receives elements from `peer`, which calls `send` with as many elements. Wraps `ncclRecv`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // A ring: the odd ranks receive first, where their number is even.
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let own = DeviceBuffer::from_slice(&stream, &[rank as u16])?;
    /// let mut other = DeviceBuffer::<u16>::zeroed(&stream, 1)?;
    /// if rank % 2 == 1 {
    ///     comm.recv(&mut other, rank - 1, &stream)?;
    ///     comm.send(&own, rank - 1, &stream)?;
    /// } else if rank + 1 < size {
    ///     comm.send(&own, rank + 1, &stream)?;
    ///     comm.recv(&mut other, rank + 1, &stream)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclRecv")]
    recv<T: Element>(data: impl AsSliceMut<'a, T>, peer: usize)
        call |site| prepare::recv(site, Buffer::from(data.into()), peer);

    /// Sends part `r` of `send` to rank `r`, and receives what rank `r` sent into part `r` of `recv`. Each part has its own length.
    /// Wraps a group of `ncclSend` and `ncclRecv`.
    ///
    /// Part `r` of `send` is as long as the part of `recv` on rank `r` that belongs to this rank. The parts of `recv` do not overlap.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // One token for rank 0, two for rank 1, and so on.
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let (send_counts, recv_counts): (Vec<_>, Vec<_>) = ((1..=size).collect(), vec![rank + 1; size]);
    /// let send = DeviceBuffer::from_slice(&stream, &vec![rank as u32; send_counts.iter().sum()])?;
    /// let mut recv = DeviceBuffer::<u32>::zeroed(&stream, (rank + 1) * size)?;
    /// comm.all_to_all_v((&send, &mut recv), &send_counts, &recv_counts, &stream)?;
    /// assert_eq!(recv.to_vec(&stream)?, (0..size).flat_map(|from| vec![from as u32; rank + 1]).collect::<Vec<_>>());
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    all_to_all_v<'b, T: Element>(io: impl IntoBuffers<'a, T, AllToAll>, send_layout: impl Into<Layout<'b>>, recv_layout: impl Into<Layout<'b>>)
        calls |site, calls| {
            let layouts = (send_layout.into(), recv_layout.into());
            variable::all_to_all_v(site, exchanged(site.operation, io.into_buffers())?, layouts, calls)
        };

    /// Copies the elements of each rank to every rank. Each rank's part has its own length. Wraps a group of `ncclBroadcast`, one for
    /// each rank.
    ///
    /// `layout` divides `recv`, and is the same on all ranks. `send` is as long as this rank's part. In place, this rank's part is in
    /// its place already.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let counts: Vec<_> = (0..comm.size()).map(|rank| rank % 3).collect();
    /// let own = DeviceBuffer::from_slice(&stream, &vec![comm.rank() as u8; counts[comm.rank()]])?;
    /// let mut all = DeviceBuffer::<u8>::zeroed(&stream, counts.iter().sum())?;
    /// comm.all_gather_v((&own, &mut all), &counts, &stream)?;
    /// assert_eq!(all.to_vec(&stream)?, (0..comm.size()).flat_map(|rank| vec![rank as u8; rank % 3]).collect::<Vec<_>>());
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    all_gather_v<'b, T: Element>(io: impl IntoBuffers<'a, T, AllRanks>, layout: impl Into<Layout<'b>>)
        calls |site, calls| variable::all_gather_v(site, Everywhere::new(site.operation, io.into_buffers())?, layout.into(), calls);

    /// Reduces the elements of all ranks, position by position, and writes one part of the result to each rank. Each part has its own
    /// length. Wraps a group of `ncclReduce`, one for each rank.
    ///
    /// `layout` divides `send`, and is the same on all ranks. `recv` is at least as long as this rank's part. In place, the result is
    /// written to this rank's part, and the other elements stay as they were.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // 10 elements, of which the first ranks get one more where it does not come out even.
    /// let counts: Vec<_> = (0..comm.size()).map(|rank| 10 / comm.size() + usize::from(rank < 10 % comm.size())).collect();
    /// let all = DeviceBuffer::from_slice(&stream, &[1f32; 10])?;
    /// let mut own = DeviceBuffer::<f32>::zeroed(&stream, counts[comm.rank()])?;
    /// comm.reduce_scatter_v((&all, &mut own), &counts, ReduceOp::Sum, &stream)?;
    /// assert_eq!(own.to_vec(&stream)?, vec![comm.size() as f32; counts[comm.rank()]]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    reduce_scatter_v<'b, T: Reduce>(io: impl IntoBuffers<'a, T, AllRanks>, layout: impl Into<Layout<'b>>, op: impl Into<Reduction<'a, T>>)
        calls |site, calls| variable::reduce_scatter_v(site, Everywhere::new(site.operation, io.into_buffers())?, layout.into(), op.into().operator(), calls);

    /// Copies the elements of all ranks to `root`. Each rank's part has its own length. Wraps a group of `ncclSend` and `ncclRecv`.
    ///
    /// `layout` divides `recv` at the root, and is the same on all ranks. `send` is as long as this rank's part. In place at the root,
    /// its own part is in its place already.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, SendOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let counts: Vec<_> = (1..=comm.size()).collect();
    /// let own = DeviceBuffer::from_slice(&stream, &vec![comm.rank() as u8; comm.rank() + 1])?;
    /// if comm.rank() == 0 {
    ///     let mut all = DeviceBuffer::<u8>::zeroed(&stream, counts.iter().sum())?;
    ///     comm.gather_v((&own, &mut all), &counts, 0, &stream)?;
    ///     assert_eq!(all.slice(..1).to_vec(&stream)?, [0]);
    /// } else {
    ///     comm.gather_v(SendOnly(&own), &counts, 0, &stream)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    gather_v<'b, T: Element>(io: impl IntoBuffers<'a, T, ToRoot>, layout: impl Into<Layout<'b>>, root: usize)
        calls |site, calls| variable::gather_v(site, Rooted::to(site.operation, io.into_buffers())?, layout.into(), root, calls);

    /// Sends one part of the elements of `root` to each rank. Each part has its own length. Wraps a group of `ncclSend` and `ncclRecv`.
    ///
    /// `layout` divides `send` at the root, and is the same on all ranks. `recv` is at least as long as this rank's part. In place at
    /// the root, its own part stays where it is.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, RecvOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let counts: Vec<_> = (1..=comm.size()).collect();
    /// let mut own = DeviceBuffer::<u8>::zeroed(&stream, comm.rank() + 1)?;
    /// if comm.rank() == 0 {
    ///     let all = DeviceBuffer::from_slice(&stream, &vec![7u8; counts.iter().sum()])?;
    ///     comm.scatter_v((&all, &mut own), &counts, 0, &stream)?;
    /// } else {
    ///     comm.scatter_v(RecvOnly(&mut own), &counts, 0, &stream)?;
    /// }
    /// assert_eq!(own.to_vec(&stream)?, vec![7; comm.rank() + 1]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    scatter_v<'b, T: Element>(io: impl IntoBuffers<'a, T, FromRoot>, layout: impl Into<Layout<'b>>, root: usize)
        calls |site, calls| variable::scatter_v(site, Rooted::from(site.operation, io.into_buffers())?, layout.into(), root, calls);
}
