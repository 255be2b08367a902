//! One validated NCCL call, ready to be made.

use std::cell::Cell;

use smallvec::SmallVec;

#[cfg(nccl_ge_2_31)]
use super::call_config::CallConfig;
use super::kind::Kind;
use crate::cuda::{Access, Region, Stream};
use crate::element::ElementKind;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::NOWHERE;
use crate::nccl::validate::element_type::Type;
use crate::nccl::validate::operation;
use crate::nccl::validate::signature::Backings;

/// One call: what is passed to C, and the memory that it touches.
///
/// Whoever makes one has checked lengths, ranks, devices and overlap; `operation` is the method that the user called.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub(crate) operation: &'static str,
    pub(crate) comm: &'a Inner,
    pub(crate) stream: &'a Stream,
    pub(crate) kind: Kind,
    /// The element type that is passed to NCCL. Types that NCCL cannot reduce, and that only move, go as bytes.
    pub(crate) element: ElementKind,
    /// See [`head`](crate::nccl::validate::operation::head).
    pub(crate) head: u64,
    /// Elements, as the C function counts them.
    pub(crate) count: usize,
    /// Elements, as the user and the other ranks count them.
    pub(crate) elements: usize,
    /// What is read; `None` where this rank reads nothing, or reads what it writes.
    pub(crate) send: Option<Region<'a>>,
    /// What is written; `None` where this rank receives nothing.
    pub(crate) recv: Option<Region<'a>>,
    /// In place: the offset in bytes of the send buffer inside `recv`. `None` out of place.
    pub(crate) send_in_recv: Option<usize>,
    /// The pointer that C gets as receive buffer, in bytes from the start of `recv`.
    pub(crate) recv_offset: usize,
    /// The device scalar of a pre-multiplied sum, which the device reads when the operation runs.
    pub(crate) scalar: Option<Region<'a>>,
    /// Its number in the signatures, once it was agreed on: among the collectives, or the messages of its pair; else [`NOWHERE`].
    pub(crate) agreed: Cell<u64>,
    /// What lies behind its memory, once it was looked at, of a call that is captured.
    pub(crate) backings: Cell<Backings>,
    /// How it is to be made, if its user has said so.
    #[cfg(nccl_ge_2_31)]
    pub(crate) config: Option<&'a CallConfig>,
}

/// The calls of one operation, or of a group. Up to eight need no heap memory.
pub(crate) type Calls<'a> = SmallVec<[Call<'a>; 8]>;

impl<'a> Call<'a> {
    #[inline]
    pub(crate) fn new(
        operation: &'static str,
        comm: &'a Inner,
        stream: &'a Stream,
        kind: Kind,
        (of, elements): (Type, usize),
        (element, count): (ElementKind, usize),
    ) -> Self {
        Self {
            operation,
            comm,
            stream,
            kind,
            element,
            head: kind.head(of),
            count,
            elements,
            send: None,
            recv: None,
            send_in_recv: None,
            recv_offset: 0,
            scalar: None,
            agreed: Cell::new(NOWHERE),
            backings: Cell::default(),
            #[cfg(nccl_ge_2_31)]
            config: None,
        }
    }

    /// Visits the memory that it uses, until `visit` fails.
    #[inline]
    pub(crate) fn uses<E>(&self, mut visit: impl FnMut(&Region<'a>, Access) -> Result<(), E>) -> Result<(), E> {
        if let Some(send) = &self.send {
            visit(send, Access::Read)?;
        }
        if let Some(scalar) = &self.scalar {
            visit(scalar, Access::Read)?;
        }
        if let Some(recv) = &self.recv {
            visit(recv, Access::Write)?;
        }
        Ok(())
    }

    /// Whether it is an end of a message of the rank to itself.
    #[inline]
    pub(crate) fn is_to_itself(&self) -> bool {
        self.kind.message().is_some_and(|(_, peer)| peer == self.comm.rank)
    }

    /// Whether a graph uses some of the memory, or did.
    #[inline]
    pub(crate) fn is_in_graphs(&self) -> bool {
        self.uses(|region, _| if region.alloc.tracker().is_in_graphs() { Err(()) } else { Ok(()) }).is_err()
    }

    /// The type of the elements, as the ranks compare it.
    #[inline]
    pub(crate) fn of(&self) -> Type {
        operation::element(self.head)
    }

    /// The C function.
    #[inline]
    pub(crate) fn function(&self) -> &'static str {
        #[cfg(nccl_ge_2_31)]
        if self.config.is_some() {
            return self.kind.configured_function();
        }
        self.kind.function()
    }

    /// What is read: the one buffer there is, where that is also written.
    #[inline]
    pub(crate) fn source(&self) -> Option<&Region<'a>> {
        self.send.as_ref().or(self.recv.as_ref())
    }
}
