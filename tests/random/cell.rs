//! One element as the host knows it: its bits, and how far from them an answer may be.

use fastrand::Rng;
use gpucomm::{ElementKind, bf16, f16};
#[cfg(all(feature = "float8", nccl_ge_2_24))]
use gpucomm::{F8E4M3, F8E5M2};

/// An element of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    pub bits: u64,
    /// 0 where the bits must be these, infinity where they may be any. In between, for floats, the greatest difference.
    pub slack: f64,
}

impl Cell {
    pub const UNKNOWN: Self = Self { bits: 0, slack: f64::INFINITY };

    pub const fn exact(bits: u64) -> Self {
        Self { bits, slack: 0.0 }
    }

    pub fn is_known(self) -> bool {
        self.slack.is_finite()
    }

    /// Whether `bits` are a right answer.
    pub fn admits(self, kind: ElementKind, bits: u64) -> bool {
        if self.slack == 0.0 {
            return bits == self.bits;
        }
        !self.is_known() || (float(kind, bits) - float(kind, self.bits)).abs() <= self.slack
    }
}

/// What the host has to know of a float type.
pub struct Float {
    /// The largest relative error of one rounding.
    pub roundoff: f64,
    /// The smallest value above zero, which all are a multiple of: subnormal numbers are kept, on GPUs too.
    pub least: f64,
    pub largest: f64,
}

/// Whether it is a float of eight bits.
pub fn is_float8(kind: ElementKind) -> bool {
    matches!(kind, ElementKind::F8E4M3 | ElementKind::F8E5M2)
}

/// `None` for integers.
pub fn properties(kind: ElementKind) -> Option<Float> {
    let (roundoff, least, largest) = match kind {
        ElementKind::F16 => (1.0 / 2048.0, 1.0 / 16_777_216.0, 65504.0),
        ElementKind::Bf16 => (1.0 / 256.0, f64::from(f32::MIN_POSITIVE) / 128.0, f64::from(bf16::MAX)),
        ElementKind::F32 => (f64::from(f32::EPSILON) / 2.0, f64::from(f32::from_bits(1)), f64::from(f32::MAX)),
        ElementKind::F64 => (f64::EPSILON / 2.0, f64::from_bits(1), f64::MAX),
        ElementKind::F8E4M3 => (1.0 / 16.0, 1.0 / 512.0, 448.0),
        ElementKind::F8E5M2 => (1.0 / 8.0, 1.0 / 65536.0, 57344.0),
        _ => return None,
    };
    Some(Float { roundoff, least, largest })
}

/// The value of a float, exactly.
pub fn float(kind: ElementKind, bits: u64) -> f64 {
    match kind {
        ElementKind::F16 => f16::from_bits(bits as u16).to_f64(),
        ElementKind::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        ElementKind::F32 => f64::from(f32::from_bits(bits as u32)),
        ElementKind::F64 => f64::from_bits(bits),
        #[cfg(all(feature = "float8", nccl_ge_2_24))]
        ElementKind::F8E4M3 => F8E4M3::from_bits(bits as u8).to_f64(),
        #[cfg(all(feature = "float8", nccl_ge_2_24))]
        ElementKind::F8E5M2 => F8E5M2::from_bits(bits as u8).to_f64(),
        _ => panic!("{kind} is no float"),
    }
}

/// The nearest float of a kind.
pub fn nearest(kind: ElementKind, value: f64) -> u64 {
    match kind {
        ElementKind::F16 => u64::from(f16::from_f64(value).to_bits()),
        ElementKind::Bf16 => u64::from(bf16::from_f64(value).to_bits()),
        ElementKind::F32 => u64::from((value as f32).to_bits()),
        ElementKind::F64 => value.to_bits(),
        #[cfg(all(feature = "float8", nccl_ge_2_24))]
        ElementKind::F8E4M3 => u64::from(F8E4M3::from_f64(value).to_bits()),
        #[cfg(all(feature = "float8", nccl_ge_2_24))]
        ElementKind::F8E5M2 => u64::from(F8E5M2::from_f64(value).to_bits()),
        _ => panic!("{kind} is no float"),
    }
}

/// The bits that an element has.
pub fn mask(kind: ElementKind) -> u64 {
    u64::MAX >> (64 - 8 * kind.size())
}

/// A random element: integers from their whole range, floats mostly small enough to be summed and multiplied some times, now and
/// then any bits, NaN and infinities among them.
pub fn draw(rng: &mut Rng, kind: ElementKind) -> u64 {
    if properties(kind).is_none() || rng.u32(..250) == 0 {
        return rng.u64(..) & mask(kind);
    }
    nearest(kind, f64::from(rng.i32(-18..=18)) * 0.25)
}
