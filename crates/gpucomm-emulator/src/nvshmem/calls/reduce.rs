//! Reductions: element by element, in the order of the members, rounded to the type at each step.

use half::{bf16, f16};

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Sum,
    Prod,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// Of which type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Half,
    Bfloat16,
    Float,
    Double,
}

/// A reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub(crate) operator: Operator,
    pub(crate) of: Type,
}

/// A type that is reduced.
trait Number: Copy {
    fn combine(self, operator: Operator, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            fn combine(self, operator: Operator, other: Self) -> Self {
                match operator {
                    Operator::Sum => self.wrapping_add(other),
                    Operator::Prod => self.wrapping_mul(other),
                    Operator::Min => self.min(other),
                    Operator::Max => self.max(other),
                    Operator::And => self & other,
                    Operator::Or => self | other,
                    Operator::Xor => self ^ other,
                }
            }
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($t:ty)*) => {$(
        impl Number for $t {
            fn combine(self, operator: Operator, other: Self) -> Self {
                match operator {
                    Operator::Prod => self * other,
                    // Of zeros with different signs, any may come out where NVSHMEM does not use NCCL, and another on each PE.
                    Operator::Min => if self < other { self } else { other },
                    Operator::Max => if self > other { self } else { other },
                    // Bits of floats are not combined: no function asks for that.
                    _ => self + other,
                }
            }
        }
    )*};
}
floats!(f16 bf16 f32 f64);

impl Reduction {
    /// A number that tells it from others.
    pub(crate) fn code(self) -> u64 {
        ((1 + self.operator as u64) << 8) | self.of as u64
    }

    /// Combines `count` elements of all sources, and writes the result to all targets.
    ///
    /// # Safety
    /// Sources can be read, and targets written, for so many elements. A target may be a source.
    pub(crate) unsafe fn run(self, sources: &[*const u8], targets: &[*mut u8], count: usize) {
        // SAFETY: the types are those; the caller vouches for the rest.
        unsafe {
            match self.of {
                Type::I8 => reduce::<i8>(self.operator, sources, targets, count),
                Type::I16 => reduce::<i16>(self.operator, sources, targets, count),
                Type::I32 => reduce::<i32>(self.operator, sources, targets, count),
                Type::I64 => reduce::<i64>(self.operator, sources, targets, count),
                Type::U8 => reduce::<u8>(self.operator, sources, targets, count),
                Type::U16 => reduce::<u16>(self.operator, sources, targets, count),
                Type::U32 => reduce::<u32>(self.operator, sources, targets, count),
                Type::U64 => reduce::<u64>(self.operator, sources, targets, count),
                Type::Half => reduce::<f16>(self.operator, sources, targets, count),
                Type::Bfloat16 => reduce::<bf16>(self.operator, sources, targets, count),
                Type::Float => reduce::<f32>(self.operator, sources, targets, count),
                Type::Double => reduce::<f64>(self.operator, sources, targets, count),
            }
        }
    }
}

/// Elements that are combined at once.
const BLOCK: usize = 1024;

/// # Safety
/// As for [`Reduction::run`], of elements of that type.
unsafe fn reduce<T: Number>(operator: Operator, sources: &[*const u8], targets: &[*mut u8], count: usize) {
    let mut block: Vec<T> = Vec::with_capacity(BLOCK);
    for begin in (0..count).step_by(BLOCK) {
        let length = BLOCK.min(count - begin);
        block.clear();
        for source in sources {
            let source = source.cast::<T>();
            for index in 0..length {
                // SAFETY: the caller vouches for the element.
                let value = unsafe { source.add(begin + index).read_unaligned() };
                match block.get_mut(index) {
                    Some(sum) => *sum = sum.combine(operator, value),
                    None => block.push(value),
                }
            }
        }
        for target in targets {
            // SAFETY: the caller vouches for the target, and the block has as many elements.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    block.as_ptr().cast::<u8>(),
                    target.add(begin * size_of::<T>()),
                    length * size_of::<T>(),
                )
            };
        }
    }
}
