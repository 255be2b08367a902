//! Element kinds as NCCL numbers them.

use crate::element::ElementKind;
use crate::sys::ncclDataType_t;

/// NCCL's number for a kind of element.
///
/// The numbers are written out: headers before 2.24 declare bf16 only under a macro, and no numbers of eight bits.
#[inline]
pub(crate) const fn raw(kind: ElementKind) -> ncclDataType_t {
    ncclDataType_t(match kind {
        ElementKind::I8 => 0,
        ElementKind::U8 => 1,
        ElementKind::I32 => 2,
        ElementKind::U32 => 3,
        ElementKind::I64 => 4,
        ElementKind::U64 => 5,
        ElementKind::F16 => 6,
        ElementKind::F32 => 7,
        ElementKind::F64 => 8,
        ElementKind::Bf16 => 9,
        ElementKind::F8E4M3 => 10,
        ElementKind::F8E5M2 => 11,
    })
}

const _: () = {
    assert!(raw(ElementKind::U64).0 == ncclDataType_t::ncclUint64.0);
    assert!(raw(ElementKind::F64).0 == ncclDataType_t::ncclFloat64.0);
    assert!(raw(ElementKind::F32).0 == ncclDataType_t::ncclFloat32.0);
};
