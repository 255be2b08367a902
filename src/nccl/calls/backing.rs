//! What lies behind the memory of captured calls: see [`signature`](crate::nccl::validate::signature).

use std::ffi::c_void;

use super::call::Call;
use super::kind::Kind;
use crate::cuda::{Backing, Region};
use crate::error::{Error, Result};
use crate::nccl::setup::environment;
use crate::nccl::validate::signature::{Backings, backing_number, describe_backing};

/// The bytes of one of the two buffers of a call, as NCCL is told of them: how many it looks at together, and how often.
struct Told<'c, 'a> {
    region: &'c Region<'a>,
    begin: *mut c_void,
    bytes: usize,
    parts: usize,
}

impl Told<'_, '_> {
    /// What lies behind them; `None` where that is not the same behind all parts.
    fn backing(&self) -> Option<Backing> {
        let of = |at: usize| {
            let begin = self.begin.wrapping_byte_add(at * self.bytes);
            match self.region.alloc.backing(begin, self.bytes) {
                Backing::Allocated if !environment::registers_allocated() => Backing::Apart,
                backing => backing,
            }
        };
        let first = of(0);
        (1..self.parts).all(|at| of(at) == first).then_some(first)
    }
}

impl Call<'_> {
    /// Looks what lies behind the memory of a call that is to be captured.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where two buffers are not alike, one of which ranks send to from the other; what CUDA says.
    pub(crate) fn look_behind(&self) -> Result<()> {
        let to_itself = self.kind.message().is_some_and(|(_, peer)| peer == self.comm.rank);
        if self.count == 0 || self.comm.size == 1 || to_itself {
            return Ok(());
        }
        let _current = self.comm.device.bind(self.operation)?;
        let [send, recv] = self.told();
        let look = |told: Option<Told<'_, '_>>| match told {
            None => Ok(None),
            Some(told) => told.backing().map(Some).ok_or_else(|| self.in_pieces()),
        };
        let (send, recv) = (look(send)?, look(recv)?);
        let alone = |one: Option<Backing>| one.unwrap_or_default();
        let backings = if self.kind.symmetric() && !self.kind.is_exchange() {
            let in_place = matches!(self.kind, Kind::AllReduce { .. }) && self.send_in_recv.is_some();
            Backings { send: alone(send), recv: alone(recv), in_place }
        } else {
            if let (Some(send), Some(recv)) = (send, recv)
                && send != recv
            {
                let [expected, got] = [send, recv].map(|backing| describe_backing(backing_number(backing)));
                let expected = format!("{expected}, as what is sent");
                return Err(Error::argument(self.operation, "recv", expected, got));
            }
            let both = alone(send.or(recv));
            Backings { send: both, recv: both, in_place: false }
        };
        self.backings.set(backings);
        Ok(())
    }

    /// What NCCL is told of the memory that it reads, and of that which it writes.
    fn told(&self) -> [Option<Told<'_, '_>>; 2] {
        let (part, size) = (self.count * self.element.size(), self.comm.size);
        let ((send_bytes, send_parts), (recv_bytes, recv_parts)) = match self.kind {
            Kind::AllGather => ((part, 1), (part * size, 1)),
            Kind::ReduceScatter { .. } => ((part * size, 1), (part, 1)),
            #[cfg(nccl_ge_2_28)]
            Kind::AllToAll => ((part, size), (part, size)),
            #[cfg(nccl_ge_2_28)]
            Kind::Gather { .. } => ((part, 1), (part, size)),
            #[cfg(nccl_ge_2_28)]
            Kind::Scatter { .. } => ((part, size), (part, 1)),
            _ => ((part, 1), (part, 1)),
        };
        let recv = self.recv.as_ref();
        let (reads, at) = match (&self.send, self.send_in_recv) {
            (Some(send), _) => (Some(send), 0),
            (None, Some(at)) => (recv, at),
            (None, None) => (None, 0),
        };
        let told = |region: Option<_>, at: usize, bytes, parts| {
            region.map(|region: &Region<'_>| Told { region, begin: region.ptr().wrapping_byte_add(at), bytes, parts })
        };
        [told(reads, at, send_bytes, send_parts), told(recv, self.recv_offset, recv_bytes, recv_parts)]
    }

    /// The memory that NCCL may register for the graph that this is part of.
    pub(crate) fn registered(&self) -> impl Iterator<Item = &Region<'_>> {
        let Backings { send, recv, .. } = self.backings.get();
        let is = |backing: Backing| backing != Backing::Apart;
        let sent = self.send.as_ref().filter(|_| is(send));
        let received = self.recv.as_ref().filter(|_| is(recv) || self.send.is_none() && is(send));
        sent.into_iter().chain(received)
    }

    #[cold]
    fn in_pieces(&self) -> Error {
        let expected =
            "parts for ranks that all lie in memory that was mapped as one, or none of them, as they are captured";
        Error::argument(self.operation, "memory", expected, "memory that was mapped in pieces")
    }
}
