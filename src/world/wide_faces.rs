//! The operations by name, for all ranks at once.

use super::forms::{OfAll, OfOne, OfRoot};
use super::op::Op;
use super::requests::alike::{AllGather, AllToAll, Exchanged};
use super::requests::barrier::Barrier;
use super::requests::reducing::{AllReduce, Reduce, ReduceScatter};
use super::requests::rooted::{Broadcast, Gather, Scatter};
use super::requests::variable::{AllGatherV, AllToAllV, GatherV, Parts, ReduceScatterV, ScatterV};
use super::wide::Wide;
use super::world::World;
use crate::element::Reduce as Reducible;

/// Requests for all ranks of this process at once, with the buffers of each, in their order. Where the root alone has two buffers, those are
/// `(send, Some(recv))` and `(send, None)`, or `(Some(send), recv)` and `(None, recv)`.
///
/// ```
/// use gpucomm::world::World;
/// use gpucomm::{Device, DeviceBuffer, Stream};
///
/// # fn main() -> gpucomm::Result<()> {
/// let world = World::new(&Device::all()?)?;
/// let size = world.size();
/// let streams = world.devices().into_iter().map(Stream::new).collect::<gpucomm::Result<Vec<_>>>()?;
/// let own = |rank: usize| DeviceBuffer::from_slice(&streams[rank], &[rank as u32]);
/// // Rank 0 gathers.
/// let all = |rank| (rank == 0).then(|| DeviceBuffer::<u32>::zeroed(&streams[0], size)).transpose();
/// let forms = (0..size).map(|rank| Ok((own(rank)?, all(rank)?))).collect::<gpucomm::Result<Vec<_>>>()?;
/// let mut back = world.gather(forms, 0).wait()?;
/// let (_, all) = back.swap_remove(0);
/// assert_eq!(all.expect("the root has it").to_vec(&streams[0])?, (0..size as u32).collect::<Vec<_>>());
/// # Ok(())
/// # }
/// ```
impl World {
    /// [`Rank::all_reduce`](super::Rank::all_reduce) of all ranks.
    pub fn all_reduce<F: OfAll>(&self, forms: impl IntoIterator<Item = F>, op: Op<F::Element>) -> Wide<AllReduce<F>>
    where
        F::Element: Reducible,
    {
        self.submit(forms.into_iter().map(|form| AllReduce::new(form, op)))
    }

    /// [`Rank::reduce`](super::Rank::reduce) of all ranks.
    ///
    /// ```
    /// # use gpucomm::world::{Op, World};
    /// # use gpucomm::{Device, DeviceBuffer, InPlace, Result, Stream};
    /// # fn main() -> Result<()> {
    /// # let world = World::new(&Device::all()?)?;
    /// let own = world.devices().into_iter().map(|device| DeviceBuffer::from_slice(&Stream::new(device)?, &[1u64; 4]));
    /// let back = world.reduce(own.map(|own| own.map(InPlace)).collect::<Result<Vec<_>>>()?, Op::Sum, 0).wait()?;
    /// assert_eq!(back[0].to_vec(&Stream::new(back[0].device())?)?, [world.size() as u64; 4]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce<F: OfRoot>(
        &self,
        forms: impl IntoIterator<Item = F>,
        op: Op<F::Element>,
        root: usize,
    ) -> Wide<Reduce<F>>
    where
        F::Element: Reducible,
    {
        self.submit(forms.into_iter().map(|form| Reduce::new(form, op, root)))
    }

    /// [`Rank::reduce_scatter`](super::Rank::reduce_scatter) of all ranks.
    ///
    /// ```
    /// # use gpucomm::world::{Op, World};
    /// # use gpucomm::{Device, DeviceBuffer, InPlace, Result, Stream};
    /// # fn main() -> Result<()> {
    /// # let world = World::new(&Device::all()?)?;
    /// # let size = world.size();
    /// let own = world.devices().into_iter().map(|device| DeviceBuffer::from_slice(&Stream::new(device)?, &vec![1u64; size]));
    /// world.reduce_scatter(own.map(|own| own.map(InPlace)).collect::<Result<Vec<_>>>()?, Op::Sum).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce_scatter<F: OfAll>(
        &self,
        forms: impl IntoIterator<Item = F>,
        op: Op<F::Element>,
    ) -> Wide<ReduceScatter<F>>
    where
        F::Element: Reducible,
    {
        self.submit(forms.into_iter().map(|form| ReduceScatter::new(form, op)))
    }

    /// [`Rank::broadcast`](super::Rank::broadcast) to all ranks.
    ///
    /// ```
    /// # use gpucomm::world::World;
    /// # use gpucomm::{Device, DeviceBuffer, InPlace, Result, Stream};
    /// # fn main() -> Result<()> {
    /// # let world = World::new(&Device::all()?)?;
    /// let own = world.ranks().into_iter().map(|rank| DeviceBuffer::from_slice(&Stream::new(rank.device())?, &[rank.rank() as u8]));
    /// let back = world.broadcast(own.map(|own| own.map(InPlace)).collect::<Result<Vec<_>>>()?, 0).wait()?;
    /// assert!(back.iter().all(|x| Stream::new(x.device()).and_then(|stream| x.to_vec(&stream)).is_ok_and(|x| x == [0])));
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast<F: OfOne>(&self, forms: impl IntoIterator<Item = F>, root: usize) -> Wide<Broadcast<F>> {
        self.submit(forms.into_iter().map(|form| Broadcast::new(form, root)))
    }

    /// [`Rank::all_gather`](super::Rank::all_gather) of all ranks.
    ///
    /// ```
    /// # use gpucomm::world::World;
    /// # use gpucomm::{Device, DeviceBuffer, Result, Stream};
    /// # fn main() -> Result<()> {
    /// # let world = World::new(&Device::all()?)?;
    /// # let size = world.size();
    /// let forms = world.devices().into_iter().map(|device| {
    ///     let stream = Stream::new(device)?;
    ///     Ok((DeviceBuffer::from_slice(&stream, &[7u8])?, DeviceBuffer::<u8>::zeroed(&stream, size)?))
    /// });
    /// world.all_gather(forms.collect::<Result<Vec<_>>>()?).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_gather<F: OfAll>(&self, forms: impl IntoIterator<Item = F>) -> Wide<AllGather<F>> {
        self.submit(forms.into_iter().map(AllGather::new))
    }

    /// [`Rank::all_to_all`](super::Rank::all_to_all) of all ranks.
    ///
    /// ```
    /// # use gpucomm::world::World;
    /// # use gpucomm::{Device, DeviceBuffer, Result, Stream};
    /// # fn main() -> Result<()> {
    /// # let world = World::new(&Device::all()?)?;
    /// # let size = world.size();
    /// let forms = world.devices().into_iter().map(|device| {
    ///     let stream = Stream::new(device)?;
    ///     Ok((DeviceBuffer::<u8>::zeroed(&stream, size)?, DeviceBuffer::<u8>::zeroed(&stream, size)?))
    /// });
    /// world.all_to_all(forms.collect::<Result<Vec<_>>>()?).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_to_all<F: Exchanged>(&self, forms: impl IntoIterator<Item = F>) -> Wide<AllToAll<F>> {
        self.submit(forms.into_iter().map(AllToAll::new))
    }

    /// [`Rank::gather`](super::Rank::gather) of all ranks.
    pub fn gather<F: OfRoot>(&self, forms: impl IntoIterator<Item = F>, root: usize) -> Wide<Gather<F>> {
        self.submit(forms.into_iter().map(|form| Gather::new(form, root)))
    }

    /// [`Rank::scatter`](super::Rank::scatter) to all ranks.
    ///
    /// ```
    /// # use gpucomm::world::World;
    /// # use gpucomm::{Device, DeviceBuffer, Result, Stream};
    /// # fn main() -> Result<()> {
    /// # let world = World::new(&Device::all()?)?;
    /// # let size = world.size();
    /// let forms = world.ranks().into_iter().map(|rank| {
    ///     let stream = Stream::new(rank.device())?;
    ///     let all = (rank.rank() == 0).then(|| DeviceBuffer::from_slice(&stream, &vec![1u8; size])).transpose()?;
    ///     Ok((all, DeviceBuffer::<u8>::zeroed(&stream, 1)?))
    /// });
    /// world.scatter(forms.collect::<Result<Vec<_>>>()?, 0).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scatter<F: OfOne>(&self, forms: impl IntoIterator<Item = F>, root: usize) -> Wide<Scatter<F>> {
        self.submit(forms.into_iter().map(|form| Scatter::new(form, root)))
    }

    /// [`Rank::all_to_all_v`](super::Rank::all_to_all_v) of all ranks: of each the buffers, and how they are divided.
    ///
    /// ```
    /// # use gpucomm::world::World;
    /// # use gpucomm::{Device, DeviceBuffer, Result, Stream};
    /// # fn main() -> Result<()> {
    /// # let world = World::new(&Device::all()?)?;
    /// # let size = world.size();
    /// let all = world.devices().into_iter().map(|device| {
    ///     let stream = Stream::new(device)?;
    ///     let form = (DeviceBuffer::<u8>::zeroed(&stream, 2 * size)?, DeviceBuffer::<u8>::zeroed(&stream, 2 * size)?);
    ///     Ok((form, vec![2; size], vec![2; size]))
    /// });
    /// world.all_to_all_v(all.collect::<Result<Vec<_>>>()?).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_to_all_v<F: Exchanged, P: Into<Parts>>(
        &self,
        all: impl IntoIterator<Item = (F, P, P)>,
    ) -> Wide<AllToAllV<F>> {
        self.submit(all.into_iter().map(|(form, send, recv)| AllToAllV::new(form, send, recv)))
    }

    /// [`Rank::all_gather_v`](super::Rank::all_gather_v) of all ranks.
    ///
    /// ```
    /// # use gpucomm::world::World;
    /// # use gpucomm::{Device, DeviceBuffer, Result, Stream};
    /// # fn main() -> Result<()> {
    /// # let world = World::new(&Device::all()?)?;
    /// # let size = world.size();
    /// // As many elements of each rank as its number.
    /// let counts: Vec<_> = (0..size).collect();
    /// let forms = world.ranks().into_iter().map(|rank| {
    ///     let stream = Stream::new(rank.device())?;
    ///     let total = counts.iter().sum();
    ///     Ok((DeviceBuffer::<u8>::zeroed(&stream, rank.rank())?, DeviceBuffer::<u8>::zeroed(&stream, total)?))
    /// });
    /// let forms = forms.collect::<Result<Vec<_>>>()?;
    /// world.all_gather_v(forms, counts).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_gather_v<F: OfAll>(
        &self,
        forms: impl IntoIterator<Item = F>,
        parts: impl Into<Parts>,
    ) -> Wide<AllGatherV<F>> {
        let parts = parts.into();
        self.submit(forms.into_iter().map(|form| AllGatherV::new(form, parts.clone())))
    }

    /// [`Rank::reduce_scatter_v`](super::Rank::reduce_scatter_v) of all ranks; [`World::all_gather_v`] shows how parts are given.
    pub fn reduce_scatter_v<F: OfAll>(
        &self,
        forms: impl IntoIterator<Item = F>,
        parts: impl Into<Parts>,
        op: Op<F::Element>,
    ) -> Wide<ReduceScatterV<F>>
    where
        F::Element: Reducible,
    {
        let parts = parts.into();
        self.submit(forms.into_iter().map(|form| ReduceScatterV::new(form, parts.clone(), op)))
    }

    /// [`Rank::gather_v`](super::Rank::gather_v) of all ranks.
    pub fn gather_v<F: OfRoot>(
        &self,
        forms: impl IntoIterator<Item = F>,
        parts: impl Into<Parts>,
        root: usize,
    ) -> Wide<GatherV<F>> {
        let parts = parts.into();
        self.submit(forms.into_iter().map(|form| GatherV::new(form, parts.clone(), root)))
    }

    /// [`Rank::scatter_v`](super::Rank::scatter_v) to all ranks.
    pub fn scatter_v<F: OfOne>(
        &self,
        forms: impl IntoIterator<Item = F>,
        parts: impl Into<Parts>,
        root: usize,
    ) -> Wide<ScatterV<F>> {
        let parts = parts.into();
        self.submit(forms.into_iter().map(|form| ScatterV::new(form, parts.clone(), root)))
    }

    /// [`Barrier`] of all ranks.
    pub fn barrier(&self) -> Wide<Barrier> {
        self.submit(self.ranks().iter().map(|_| Barrier))
    }
}
