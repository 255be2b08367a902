//! Buffers of one type or another.

use gpucomm::nvshmem::{Context, SymmetricBuffer};
use gpucomm::{Result, Stream};

use super::step::Kind;
use crate::support::farewell::Farewell;
use crate::support::random::Bits;

pub enum Buffer<'c> {
    U8(SymmetricBuffer<'c, u8>),
    U32(SymmetricBuffer<'c, u32>),
    U64(SymmetricBuffer<'c, u64>),
}

/// Does something with a buffer, whatever its type.
macro_rules! of_any {
    ($buffer:expr, $name:ident => $what:expr) => {
        match $buffer {
            Buffer::U8($name) => $what,
            Buffer::U32($name) => $what,
            Buffer::U64($name) => $what,
        }
    };
}

/// The same with two of one type.
macro_rules! of_both {
    ($both:expr, $a:ident $b:ident => $what:expr) => {
        match $both {
            (Buffer::U8($a), Buffer::U8($b)) => $what,
            (Buffer::U32($a), Buffer::U32($b)) => $what,
            (Buffer::U64($a), Buffer::U64($b)) => $what,
            _ => unreachable!("they are of one type"),
        }
    };
}
pub(super) use of_both;

impl<'c> Buffer<'c> {
    pub fn alloc(ctx: &'c Context, kind: Kind, len: usize, zeroed: bool) -> Result<Self> {
        Ok(match (kind, zeroed) {
            (Kind::U8, true) => Self::U8(ctx.alloc(len)?),
            (Kind::U8, false) => Self::U8(ctx.alloc_uninit(len)?),
            (Kind::U32, true) => Self::U32(ctx.alloc(len)?),
            (Kind::U32, false) => Self::U32(ctx.alloc_uninit(len)?),
            (Kind::U64, true) => Self::U64(ctx.alloc(len)?),
            (Kind::U64, false) => Self::U64(ctx.alloc_uninit(len)?),
        })
    }

    /// Lets go of it; `stream` is for a host function.
    pub fn go(self, farewell: Farewell, stream: &Stream) -> Result<()> {
        of_any!(self, buffer => match farewell {
            Farewell::ThreadLocal | Farewell::HostFunction => farewell.to(buffer.into_shared(), stream),
            _ => {
                farewell.to_borrower(buffer);
                Ok(())
            }
        })
    }

    pub fn fill(&mut self, part: std::ops::Range<usize>, stream: &Stream, value: u64) -> Result<()> {
        of_any!(self, buffer => buffer.symmetric_mut(part).into_local().fill(stream, value as _))
    }

    /// All elements, as numbers.
    pub fn to_numbers(&self, stream: &Stream) -> Result<Vec<u64>> {
        of_any!(self, buffer => Ok(buffer.to_vec(stream)?.into_iter().map(Bits::bits).collect()))
    }
}
