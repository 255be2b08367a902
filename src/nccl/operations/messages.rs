//! Messages: from one rank to another.

use crate::cuda::{AsSlice, AsSliceMut, Stream};
use crate::element::Element;
use crate::error::Result;
use crate::nccl::calls::buffers::Buffer;
use crate::nccl::calls::prepare;
use crate::nccl::calls::site::Site;
use crate::nccl::communicator::Communicator;
use crate::nccl::enqueue::submit;

impl Communicator {
    /// Wraps `ncclSend`: sends elements to `peer`, which receives them with `recv` and the same count.
    ///
    /// Exchanges in both directions belong into a [`group`](crate::nccl::group), or both ranks may wait for each other.
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
    pub fn send<'a, T: Element>(&'a self, data: impl AsSlice<'a, T>, peer: usize, stream: &'a Stream) -> Result<()> {
        let site = Site::new("send", self.inner(), stream)?;
        submit::prepared(prepare::send(site, Buffer::from(data.into()), peer))
    }

    /// Wraps `ncclRecv`: receives elements from `peer`, which sends them with `send` and the same count.
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
    pub fn recv<'a, T: Element>(&'a self, data: impl AsSliceMut<'a, T>, peer: usize, stream: &'a Stream) -> Result<()> {
        let site = Site::new("recv", self.inner(), stream)?;
        submit::prepared(prepare::recv(site, Buffer::from(data.into()), peer))
    }
}
