//! What ranks must agree on, packed into six words.

use super::call::{Call, Kind};
use crate::cuda::Region;
use crate::element::ElementKind;
use crate::sys;

/// One operation as all its ranks must issue it: kind, element type, reduction, root, count, and for operations that have
/// a symmetric form, which window each buffer lies in and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature(pub(crate) [u64; 6]);

/// The code of a window registration, beside those of [`Kind::code`].
const REGISTER: u8 = 32;

/// The code of a point at which windows retire, and nothing else happens.
const RECLAIM: u8 = 33;

/// The reduction code of every pre-multiplied sum: each rank has a handle and a factor of its own.
const PRE_MUL: u64 = 0xff;

impl Signature {
    #[inline]
    pub(crate) fn of(call: &Call<'_>) -> Self {
        let redop = match call.kind.redop() {
            None => 0,
            Some(op) if op.0 >= sys::ncclRedOp_t::ncclNumOps.0 => PRE_MUL,
            Some(op) => u64::from(op.0) + 1,
        };
        let root = call.kind.root().map_or(0, |root| root as u64 + 1);
        let (send, recv) = match call.kind {
            Kind::AllReduce { .. } | Kind::AllGather | Kind::ReduceScatter { .. } => {
                (place(call.send.as_ref().or(call.recv.as_ref())), place(call.recv.as_ref()))
            }
            #[cfg(nccl_ge_2_28)]
            Kind::AllToAll => (place(call.send.as_ref()), place(call.recv.as_ref())),
            _ => (Place::NONE, Place::NONE),
        };
        let in_place = call.send.is_none() && call.send_in_recv.is_some() && recv.window != 0;
        let head = u64::from(call.kind.code())
            | (call.element as u64) << 8
            | redop << 16
            | root << 24
            | u64::from(in_place) << 63;
        Self([head, call.count as u64, send.window, send.offset, recv.window, recv.offset])
    }

    /// Registration of a window of so many bytes.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn register(bytes: usize) -> Self {
        Self([u64::from(REGISTER), bytes as u64, 0, 0, 0, 0])
    }

    /// Windows that were dropped are taken away.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn reclaim() -> Self {
        Self([u64::from(RECLAIM), 0, 0, 0, 0, 0])
    }

    /// A message of `count` elements of the kind with this number.
    pub(crate) fn message(element: u64, count: u64) -> Self {
        Self([u64::from(Kind::MESSAGE) | element << 8, count, 0, 0, 0, 0])
    }

    /// The signature in words, for an error.
    pub(crate) fn describe(&self) -> String {
        let [head, count, send, send_offset, recv, recv_offset] = self.0;
        let name = match head as u8 {
            1 => "all_reduce",
            2 => "reduce",
            3 => "reduce_scatter",
            4 => "broadcast",
            5 => "all_gather",
            6 => "all_to_all",
            7 => "gather",
            8 => "scatter",
            Kind::MESSAGE => "send and recv",
            REGISTER => return format!("alloc of {count} bytes"),
            RECLAIM => return "reclaim".into(),
            _ => "an unknown operation",
        };
        let element = ElementKind::ALL.iter().find(|&&kind| kind as u64 == head >> 8 & 0xff);
        let mut text = format!("{name} of {count} {}", element.map_or("?", |kind| kind.name()));
        match head >> 16 & 0xff {
            0 => {}
            PRE_MUL => text.push_str(", pre-multiplied sum"),
            op => text.push_str([", sum", ", prod", ", max", ", min", ", avg"].get(op as usize - 1).unwrap_or(&", ?")),
        }
        match head >> 24 & 0xff_ffff {
            0 => {}
            root => text.push_str(&format!(", root {}", root - 1)),
        }
        for (what, window, offset) in [("sent", send, send_offset), ("received", recv, recv_offset)] {
            if window != 0 {
                text.push_str(&format!(", {what} at byte {offset} of window {window}"));
            }
        }
        text
    }
}

/// Where in which window a region lies.
struct Place {
    /// The number of the window, 0 outside of all.
    window: u64,
    /// Bytes from its start.
    offset: u64,
}

impl Place {
    const NONE: Self = Self { window: 0, offset: 0 };
}

#[inline]
fn place(region: Option<&Region<'_>>) -> Place {
    region.map_or(Place::NONE, |region| match region.window() {
        0 => Place::NONE,
        window => Place { window, offset: region.offset as u64 },
    })
}
